package namenode_test

import (
	"context"
	"io"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode"
	"github.com/leasefs/leasefs/test/env"
)

// TestLocalCalls: a client in the process of a namenode makes its calls without a connection,
// is audited and refused as any other, and shares no memory with the namenode.
func TestLocalCalls(t *testing.T) {
	audit := filepath.Join(t.TempDir(), "audit")
	n := env.Start(t, func(c *namenode.Config) { c.Audit.File = audit })
	within := func(c *client.Config) {
		c.DialOptions = append(c.DialOptions, grpc.WithChainUnaryInterceptor(n.Local()))
	}
	fs := n.Client(t, within)
	data := []byte("content")
	if err := fs.WriteFile(t.Context(), "/f", data); err != nil {
		t.Fatal(err)
	}
	copy(data, "another")
	r, err := n.Client(t).Open(t.Context(), "/f")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	if got, err := io.ReadAll(r); err != nil || string(got) != "content" {
		t.Errorf("read %q, %v", got, err)
	}
	bob := n.Client(t, within, func(c *client.Config) { c.User = "bob" })
	if err := bob.Mkdir(t.Context(), "/d", 0o755); fserror.KindOf(err) != fserror.Permission {
		t.Errorf("bob makes a directory in the root: %v", err)
	}
	other := env.Start(t)
	if _, err := other.Client(t, within).Stat(t.Context(), "/f"); fserror.KindOf(err) != fserror.NotFound {
		t.Errorf("a call to another namenode: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := fs.Stat(ctx, "/f"); fserror.KindOf(err) != fserror.Canceled {
		t.Errorf("a call that was canceled: %v", err)
	}
	w, err := fs.Append(t.Context(), "/f")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel = context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := n.Client(t, within).Append(ctx, "/f", client.WithWait(time.Minute)); fserror.KindOf(err) != fserror.Deadline {
		t.Errorf("a call that waits for longer than its context: %v", err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	there := false
	for _, l := range auditOf(t, n) {
		there = there || l.User == "bob" && l.Op == "mkdir" && l.Address == "127.0.0.1:0" && l.Result == "denied"
	}
	if !there {
		t.Error("the audit log does not tell of a denied call without a connection")
	}
}

// TestLocalCallsProve: where callers prove who they are, being in the process proves nothing.
func TestLocalCallsProve(t *testing.T) {
	f := newFort(t)
	within := func(proof client.Proof) error {
		cfg := client.Config{Namenodes: []string{f.Addr()}, User: "bob", Proof: proof, TLS: f.clientTLS(nil), HTTPClient: f.HTTP, Timeout: 20 * time.Second}
		cfg.DialOptions = append(cfg.DialOptions, grpc.WithChainUnaryInterceptor(f.Local()))
		fs, err := client.New(t.Context(), cfg)
		if err != nil {
			return err
		}
		defer func() { _ = fs.Close() }()
		_, err = fs.Stat(t.Context(), "/")
		return err
	}
	if err := within(client.Proof{}); fserror.KindOf(err) != fserror.Permission {
		t.Errorf("without a proof: %v", err)
	}
	if err := within(client.Proof{Token: func(context.Context) (string, error) { return string(f.bob), nil }}); err != nil {
		t.Errorf("with a token: %v", err)
	}
}
