// Package testenv starts real namenodes and clients for tests: over real
// sockets, on a folder of the test's own.
package testenv

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/namenode"
)

// Namenode is a namenode in this process.
type Namenode struct {
	*namenode.Server
	cfg namenode.Config
}

// Start starts a namenode on free ports and a new folder, as superuser "root".
// It ends with the test.
func Start(t testing.TB, mods ...func(*namenode.Config)) *Namenode {
	t.Helper()
	cfg := namenode.Config{
		Data: t.TempDir(), Listen: "127.0.0.1:0", HTTP: "127.0.0.1:0", Superuser: "root", Supergroup: "supergroup",
		Groups: func(string) []string { return nil }, Reserve: 1 << 20, Logger: slog.New(slog.NewTextHandler(testWriter{t}, nil)),
	}
	for _, mod := range mods {
		mod(&cfg)
	}
	n := &Namenode{cfg: cfg}
	n.start(t)
	t.Cleanup(func() {
		if n.Server != nil {
			_ = n.Close()
		}
	})
	return n
}

func (n *Namenode) start(t testing.TB) {
	t.Helper()
	s, err := namenode.Start(context.Background(), n.cfg)
	if err != nil {
		t.Fatalf("start namenode: %v", err)
	}
	n.Server = s
	// A restart serves at the same addresses, so that clients find it again.
	n.cfg.Listen, n.cfg.HTTP = s.Addr(), s.HTTPAddr()
}

// Stop ends the namenode cleanly.
func (n *Namenode) Stop(t testing.TB) {
	t.Helper()
	s := n.Server
	n.Server = nil
	if err := s.Close(); err != nil {
		t.Fatalf("stop namenode: %v", err)
	}
}

// Restart ends the namenode cleanly and starts it again on the same folder and
// addresses.
func (n *Namenode) Restart(t testing.TB, mods ...func(*namenode.Config)) {
	t.Helper()
	n.Stop(t)
	for _, mod := range mods {
		mod(&n.cfg)
	}
	n.start(t)
}

// Config is the configuration the namenode runs with.
func (n *Namenode) Config() namenode.Config { return n.cfg }

// Client connects a client of its own session to the namenode. It is closed
// with the test.
func (n *Namenode) Client(t testing.TB, mods ...func(*client.Config)) *client.FS {
	t.Helper()
	cfg := client.Config{Namenodes: []string{n.cfg.Listen}, User: "root", Timeout: 20 * time.Second}
	for _, mod := range mods {
		mod(&cfg)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	fs, err := client.New(ctx, cfg)
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	t.Cleanup(func() { _ = fs.Close() })
	return fs
}

// Named gives a client its name.
func Named(name string) func(*client.Config) {
	return func(c *client.Config) { c.Client = name }
}

// Limits sets a namenode's lease limits.
func Limits(soft, hard time.Duration) func(*namenode.Config) {
	return func(c *namenode.Config) { c.SoftLimit, c.HardLimit = soft, hard }
}

type testWriter struct{ t testing.TB }

func (w testWriter) Write(p []byte) (int, error) {
	if testing.Verbose() {
		w.t.Log(string(p))
	}
	return len(p), nil
}
