package namenode_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
	"github.com/leasefs/leasefs/test/env"
	"github.com/leasefs/leasefs/test/env/s3env"
)

// TestURLsEndWithTheCredentials: clients are told that URLs end when the
// credentials do that signed them, where that is before the URLs' own life.
func TestURLsEndWithTheCredentials(t *testing.T) {
	server := s3env.Start(t, s3env.Versitygw)
	dir := t.TempDir()
	ends := time.Now().Add(9 * time.Minute).UTC().Truncate(time.Second)
	answer := fmt.Sprintf(`{"Version":1,"AccessKeyId":%q,"SecretAccessKey":%q,"Expiration":%q}`, server.AccessKey, server.SecretKey, ends.Format(time.RFC3339))
	for name, text := range map[string]string{
		"answer": answer,
		"config": "[default]\ncredential_process = cat " + filepath.Join(dir, "answer") + "\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, value := range map[string]string{
		"AWS_CONFIG_FILE": filepath.Join(dir, "config"), "AWS_SHARED_CREDENTIALS_FILE": filepath.Join(dir, "none"),
		"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "", "AWS_EC2_METADATA_DISABLED": "true",
	} {
		t.Setenv(name, value)
	}
	n := env.Start(t, func(c *namenode.Config) { c.Blocks = server.URL("urls") })
	r := n.Raw(t, "a")
	w := r.Create("/f")
	data := bytes.Repeat([]byte("x"), 100_000)
	intent := []*pb.BlockIntent{{StoredLength: 1000}}
	out, err := r.NN.AllocateBlock(t.Context(), &pb.AllocateBlockRequest{Writer: w, Blocks: intent})
	if err != nil {
		t.Fatal(err)
	}
	if got := time.UnixMilli(out.GetTargets()[0].GetExpiresUnixMs()); !got.Equal(ends) {
		t.Errorf("a PUT until %s, the credentials end at %s", got, ends)
	}
	block, err := r.PutBlock(w, data)
	if err == nil {
		err = r.Commit(w, 0, block, "")
	}
	if err != nil {
		t.Fatal(err)
	}
	before := time.Now()
	file, err := r.NN.GetFile(t.Context(), &pb.GetFileRequest{Caller: r.Who, At: pb.Follow("/f")})
	if err != nil {
		t.Fatal(err)
	}
	life := time.Duration(file.GetUrlsExpireMs()) * time.Millisecond
	if life <= 0 || before.Add(life).After(ends) || len(file.GetBlocks()) != 1 {
		t.Errorf("URLs of %d blocks for %s at %s, the credentials end at %s", len(file.GetBlocks()), life, before, ends)
	}
}

// TestSweepWithoutTheListingOfUploads: orphans are swept also where the credentials may not list
// uploads, and the refusal is told.
func TestSweepWithoutTheListingOfUploads(t *testing.T) {
	server := s3env.Start(t, s3env.Versitygw)
	server.SetEnv(t)
	proxy := server.Proxy(t)
	clk := &env.LeapingClock{}
	n := env.Start(t, func(c *namenode.Config) {
		c.Blocks, c.Clock, c.CollectEvery, c.SweepEvery = proxy.URL("here"), clk, time.Hour, time.Hour
	})
	r := n.Raw(t, "a")
	if _, err := r.PutBlock(r.Create("/f"), []byte("never committed")); err != nil {
		t.Fatal(err)
	}
	proxy.Set(func(req *http.Request, body []byte, send func([]byte) *s3env.Reply) *s3env.Reply {
		if req.URL.Query().Has("uploads") {
			return &s3env.Reply{
				Status: http.StatusForbidden, Header: http.Header{"Content-Type": {"application/xml"}},
				Body: []byte("<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"),
			}
		}
		return send(body)
	})
	stored := func() int { return strings.Count(server.List(t, "here/"), "/blocks/") }
	if stored() != 1 {
		t.Fatalf("%d blocks are in the store, want 1", stored())
	}
	clk.BeyondURLs()
	if err := n.SweepPass(t.Context()); !errors.Is(err, fserror.Permission) {
		t.Errorf("the sweep says %v, want %v", err, fserror.Permission)
	}
	clk.BeyondURLs()
	if deleted, _, err := n.CollectGarbage(t.Context()); err != nil || deleted != 1 || stored() != 0 {
		t.Errorf("%d blocks were deleted, %d are left; %v", deleted, stored(), err)
	}
}
