package hdfs_test

import (
	"context"
	"errors"
	"os"
	"syscall"
	"testing"
	"time"

	native "github.com/colinmarc/hdfs/v2"
	"go.uber.org/goleak"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/gateway/hdfs"
	"github.com/leasefs/leasefs/test/env"
)

func TestMain(m *testing.M) {
	// The client keeps a goroutine for each block that it could not write.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/colinmarc/hdfs/v2/internal/transfer.(*blockWriteStream).ackPackets"))
}

// start starts a namenode and a gateway to it, which ends with the test.
func start(t testing.TB, mods ...func(*hdfs.Config)) (*env.Namenode, *hdfs.Server) {
	t.Helper()
	n := env.Start(t)
	return n, gateway(t, n, mods...)
}

// gateway starts one, which ends with the test.
func gateway(t testing.TB, n *env.Namenode, mods ...func(*hdfs.Config)) *hdfs.Server {
	t.Helper()
	cfg := hdfs.Config{Client: client.Config{Namenodes: []string{n.Addr()}}, Listen: "127.0.0.1:0", Data: "127.0.0.1:0"}
	for _, mod := range mods {
		mod(&cfg)
	}
	s, err := hdfs.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second) //nolint:usetesting // the test's own is over
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return s
}

// connect returns a client of HDFS, which ends before the gateway does.
func connect(t testing.TB, s *hdfs.Server, user string) *native.Client {
	t.Helper()
	c, err := native.NewClient(native.ClientOptions{Addresses: []string{s.Addr()}, User: user})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// remote is what a client says of an error that it has no own name for.
type remote interface {
	error
	Exception() string
}

// wantClass fails the test unless the error is of a Java class.
func wantClass(t *testing.T, what string, err error, class string) {
	t.Helper()
	var r remote
	if !errors.As(err, &r) || r.Exception() != class {
		t.Errorf("%s: %v, want %s", what, err, class)
	}
}

func check(t testing.TB, errs ...error) {
	t.Helper()
	for n, err := range errs {
		if err != nil {
			t.Fatalf("call %d: %v", n+1, err)
		}
	}
}

// TestNamespace: what is about names and attributes, by an unchanged client of HDFS.
func TestNamespace(t *testing.T) {
	_, s := start(t)
	c := connect(t, s, "root")
	check(t, c.Mkdir("/a", 0o755), c.MkdirAll("/a/b/c", 0o700), c.MkdirAll("/a/b/c", 0o700))
	if err := c.Mkdir("/a", 0o755); !errors.Is(err, os.ErrExist) {
		t.Errorf("mkdir of what is there: %v", err)
	}
	if err := c.Mkdir("/no/parent", 0o755); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("mkdir without a parent: %v", err)
	}
	if _, err := c.Stat("/none"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("stat of nothing: %v", err)
	}
	at := time.Unix(1_500_000_000, 0)
	check(t, c.Chmod("/a/b", 0o1750), c.Chown("/a/b", "ann", "staff"), c.Chtimes("/a/b", at, at))
	i, err := c.Stat("/a/b")
	check(t, err)
	if fi := i.(*native.FileInfo); i.Mode().Perm() != 0o750 || fi.Owner() != "ann" || fi.OwnerGroup() != "staff" || !i.ModTime().Equal(at) || !i.IsDir() {
		t.Errorf("%v %s %s %v", i.Mode(), fi.Owner(), fi.OwnerGroup(), i.ModTime())
	}
	check(t, c.SetXAttr("/a", "user.one", "1"), c.SetXAttr("/a", "user.two", "2"), c.RemoveXAttr("/a", "user.two"))
	if l, err := c.ListXAttrs("/a"); err != nil || len(l) != 1 || l["user.one"] != "1" {
		t.Errorf("extended attributes: %v, %v", l, err)
	}
	if _, err := c.GetXAttrs("/a", "user.two"); err == nil {
		t.Error("an attribute that was removed is there")
	}
	check(t, c.Mkdir("/d", 0o755), c.Rename("/d", "/e"))
	if err := c.Rename("/none", "/x"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("rename of nothing: %v", err)
	}
	if err := c.Rename("/a", "/a/b/a"); err == nil {
		t.Error("a directory was renamed below itself")
	}
	if err := c.Remove("/a"); !errors.Is(err, syscall.ENOTEMPTY) {
		t.Errorf("remove of a directory with entries: %v", err)
	}
	l, err := c.ReadDir("/")
	check(t, err)
	if len(l) != 2 || l[0].Name() != "a" || l[1].Name() != "e" {
		t.Errorf("%v", l)
	}
	sum, err := c.GetContentSummary("/")
	check(t, err)
	if sum.DirectoryCount() != 5 || sum.FileCount() != 0 {
		t.Errorf("%d directories, %d files", sum.DirectoryCount(), sum.FileCount())
	}
	st, err := c.StatFs()
	check(t, err)
	if st.Capacity == 0 || st.Remaining == 0 {
		t.Errorf("%+v", st)
	}
	check(t, c.RemoveAll("/a"), c.RemoveAll("/a"))
	p := connect(t, s, "plain")
	if err := p.Mkdir("/mine", 0o755); !errors.Is(err, os.ErrPermission) {
		t.Errorf("mkdir of a user who may not: %v", err)
	}
}
