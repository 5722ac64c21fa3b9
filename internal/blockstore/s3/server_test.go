package s3_test

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/blockstore/s3"
	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/test/env/s3env"
)

func keys(access, secret string) func(*s3.Config) {
	return func(c *s3.Config) {
		c.Credentials = aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: access, SecretAccessKey: secret}, nil
		})
	}
}

func wrongSettings(t *testing.T, server *s3env.Server) {
	for _, c := range []struct {
		name string
		mod  func(*s3.Config)
		kind fserror.Kind
		says string
	}{
		{"access key", keys("nobody", server.SecretKey), fserror.Permission, "AWS_ACCESS_KEY_ID"},
		{"secret", keys(server.AccessKey, "wrong"), fserror.Permission, "AWS_SECRET_ACCESS_KEY"},
		{"bucket", func(c *s3.Config) { c.Bucket = "no-such-bucket" }, fserror.Unavailable, "no bucket no-such-bucket"},
		{"region", func(c *s3.Config) { c.Region = "elsewhere" }, fserror.InvalidArgument, "another region than elsewhere"},
	} {
		if c.name == "region" && server.Name == s3env.SeaweedFS {
			continue // it takes any region
		}
		store := open(t, server, server.URL("p"), c.mod)
		_, stat := store.Stat(t.Context(), blockstore.Key{Term: 1})
		for what, err := range map[string]error{
			"Check":  store.Check(t.Context()),
			"Probe":  store.Probe(t.Context()),
			"Stat":   stat,
			"Delete": store.Delete(t.Context(), blockstore.Key{Term: 1}),
		} {
			if !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "\n") {
				t.Errorf("wrong %s, %s: %v\nwant %s and %q", c.name, what, err, c.kind, c.says)
			}
		}
	}
}

func clockOff(t *testing.T, server *s3env.Server) {
	for off, says := range map[time.Duration]string{-2 * time.Hour: "2h0m0s behind", 2 * time.Hour: "2h0m0s ahead"} {
		var c clock.Fake
		c.ShiftWall(time.Since(c.Wall()) + off)
		store := open(t, server, server.URL(""), func(cfg *s3.Config) { cfg.Clock = &c })
		if err := store.Probe(t.Context()); !errors.Is(err, fserror.Unavailable) || !strings.Contains(err.Error(), says) {
			t.Errorf("a clock that is off by %s: %v", off, err)
		}
		skew, known := store.Skew()
		if !known || (skew.Ahead-off).Abs() > time.Minute || !skew.Beyond(time.Hour) { // a busy machine takes its time
			t.Errorf("a clock that is off by %s: the store tells %+v (%t)", off, skew, known)
		}
	}
}

// environment: the credentials come from where they usually do.
func environment(t *testing.T, server *s3env.Server) {
	for _, pair := range server.Env() {
		name, value, _ := strings.Cut(pair, "=")
		t.Setenv(name, value)
	}
	if err := open(t, server, server.URL("env"), func(c *s3.Config) { c.Credentials = nil }).Probe(t.Context()); err != nil {
		t.Error(err)
	}
}

// root is what the names of a store's objects begin with.
func root(prefix string, id [16]byte) string { return prefix + "/" + hex.EncodeToString(id[:]) + "/" }

func foreignNames(t *testing.T, server *s3env.Server) {
	id := [16]byte{1, 2, 3}
	mine := root("foreign", id)
	store := open(t, server, server.URL("foreign"), func(c *s3.Config) { c.NamespaceID = id })
	obj, crc := blockstore.Seal([]byte("mine"))
	for _, seq := range []uint64{1, 2} {
		if err := store.Put(t.Context(), blockstore.Key{Term: 0x10, Seq: seq}, obj, crc); err != nil {
			t.Fatal(err)
		}
	}
	foreign := []string{
		mine + "blocks/0000000000000010/0000000000000001.bak",
		mine + "blocks/0000000000000010/000000000000001A",
		mine + "blocks/0000000000000010/1",
		mine + "blocks/0000000000000010/notes%20of%20mine.txt",
		mine + "blocks/zz",
		mine + "other",
		root("foreign", [16]byte{9}) + "blocks/0000000000000010/0000000000000001",
	}
	for _, name := range foreign {
		server.Put(t, name, []byte("theirs"))
	}
	for _, limit := range []int{1, 2, 1000} {
		var got []blockstore.Key
		for after := (blockstore.Key{}); ; after = got[len(got)-1] {
			page, err := store.List(t.Context(), after, limit)
			if err != nil {
				t.Fatal(err)
			}
			if len(page) == 0 {
				break
			}
			for _, info := range page {
				got = append(got, info.Key)
			}
		}
		if fmt.Sprint(got) != "[10/1 10/2]" {
			t.Errorf("List by %d: %v", limit, got)
		}
		if err := store.Delete(t.Context(), got...); err != nil && limit == 1000 {
			t.Error(err)
		} else if limit < 1000 {
			for _, key := range got { // again, for the next limit
				if err := store.Put(t.Context(), key, obj, crc); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	left := server.List(t, "foreign/")
	if n := strings.Count(left, "<Key>"); n != len(foreign) {
		t.Errorf("%d names are left, want %d:\n%s", n, len(foreign), left)
	}
}

// manyBlocks: more than a page of List and of Delete.
func manyBlocks(t *testing.T, server *s3env.Server) {
	const n = 1010
	store := open(t, server, server.URL("many"))
	obj, crc := blockstore.Seal([]byte("x"))
	all := make([]blockstore.Key, n)
	for i := range all {
		all[i] = blockstore.Key{Term: 1, Seq: uint64(i) + 1}
		if err := store.Put(t.Context(), all[i], obj, crc); err != nil {
			t.Fatal(err)
		}
	}
	infos, err := store.List(t.Context(), blockstore.Key{}, 5000)
	if err != nil || len(infos) != n || infos[n-1].Key != all[n-1] {
		t.Fatalf("List: %d, %v", len(infos), err)
	}
	if d := time.Since(infos[0].Stored); d < -time.Minute || d > time.Hour {
		t.Errorf("stored %s ago", d)
	}
	if infos, err = store.List(t.Context(), all[3], 1003); err != nil || len(infos) != 1003 || infos[0].Key != all[4] {
		t.Errorf("List after %s: %d, %v", all[3], len(infos), err)
	}
	if err := store.Delete(t.Context(), all...); err != nil {
		t.Fatal(err)
	}
	if infos, err := store.List(t.Context(), blockstore.Key{}, 5000); err != nil || len(infos) != 0 {
		t.Errorf("List after Delete: %d, %v", len(infos), err)
	}
}

func probeLeavesNothing(t *testing.T, server *s3env.Server) {
	if err := open(t, server, server.URL("probed")).Probe(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left := server.List(t, "probed/"); strings.Contains(left, "<Key>") {
		t.Error(left)
	}
}

func gone(t *testing.T, server *s3env.Server) {
	store := open(t, server, server.URL("p"))
	server.Kill()
	if err := store.Check(t.Context()); !errors.Is(err, fserror.Unavailable) || !strings.Contains(err.Error(), "cannot be reached") {
		t.Error(err)
	}
}
