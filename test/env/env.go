// Package env starts real namenodes and clients for tests: over real
// sockets, on a folder of the test's own, with the time and the network in the
// test's hand.
//
//   - Start, Restart, Stop: a namenode in this process.
//   - Client: the library. With a Wire under it, its calls can be counted, lost
//     and held back, and its connection cut.
//   - Raw: the wire contract without the library, to send what the library
//     never would.
package env

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode"
	"github.com/leasefs/leasefs/namenode/offline"
	"github.com/leasefs/leasefs/test/env/spawn"
)

// Namenode is a namenode in this process.
type Namenode struct {
	*namenode.Server
	Dial []grpc.DialOption // of Raw's connections, beside the usual ones
	HTTP *http.Client      // of Raw's blocks; nil: the usual one
	cfg  namenode.Config
}

// Start starts a namenode on an address of its own and a new folder, as
// superuser "root". It ends with the test.
func Start(t testing.TB, mods ...func(*namenode.Config)) *Namenode {
	t.Helper()
	addr := spawn.Loopback() + ":0"
	cfg := namenode.Config{
		Data: t.TempDir(), Listen: addr, HTTP: addr, OpenPort: OpenPort, Superuser: "root", Supergroup: "supergroup",
		Groups: func(string) []string { return nil }, Limits: namenode.Limits{Reserve: 1 << 20}, Upkeep: namenode.Upkeep{DeleteAfter: time.Nanosecond}, Logger: slog.New(slog.NewTextHandler(testWriter{t}, nil)),
	}
	for _, mod := range mods {
		mod(&cfg)
	}
	if cfg.HA != nil {
		Format(t, cfg)
	}
	n := &Namenode{cfg: cfg}
	n.Start(t)
	t.Cleanup(func() {
		if n.Server != nil {
			_ = n.Close()
		}
	})
	return n
}

// Format makes the namespace of several namenodes, unless ZooKeeper has it.
func Format(t testing.TB, cfg namenode.Config) {
	t.Helper()
	if err := TryFormat(t.Context(), cfg); err != nil && !errors.Is(err, fserror.Exists) {
		t.Fatalf("format: %v", err)
	}
}

// TryFormat makes the namespace of several namenodes.
func TryFormat(ctx context.Context, cfg namenode.Config) error {
	how, err := cfg.Offline()
	if err == nil {
		_, err = offline.Format(ctx, how)
	}
	return err
}

// Restore brings a namespace back from a backup, or without one from the block store.
func Restore(ctx context.Context, cfg namenode.Config, backup string) (offline.Restored, error) {
	how, err := cfg.Offline()
	if err != nil {
		return offline.Restored{}, err
	}
	return offline.Restore(ctx, offline.Restoring{Config: how, Backup: backup})
}

// Start starts it again after Stop.
func (n *Namenode) Start(t testing.TB) {
	t.Helper()
	s, err := namenode.Start(t.Context(), n.cfg)
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
	n.Start(t)
}

// Config is the configuration the namenode runs with.
func (n *Namenode) Config() namenode.Config { return n.cfg }

// BlockFile is where the namenode's disk has a block. The test fails if it
// does not.
func (n *Namenode) BlockFile(t testing.TB, term, seq uint64) string {
	t.Helper()
	found := n.BlockFiles(t, term, seq)
	if len(found) != 1 {
		t.Fatalf("block %x/%x: %d files, want 1", term, seq, len(found))
	}
	return found[0]
}

// BlockFiles is BlockFile for a block that may be missing.
func (n *Namenode) BlockFiles(t testing.TB, term, seq uint64) (found []string) {
	t.Helper()
	name := fmt.Sprintf("%016x.blk", seq)
	err := filepath.WalkDir(filepath.Join(n.cfg.Data, "blocks"), func(path string, _ fs.DirEntry, err error) error {
		if err == nil && filepath.Base(path) == name && filepath.Base(filepath.Dir(filepath.Dir(path))) == fmt.Sprintf("%016x", term) {
			found = append(found, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// Client connects a client of its own session to the namenode. It is closed
// with the test.
func (n *Namenode) Client(t testing.TB, mods ...func(*client.Config)) *client.FS {
	t.Helper()
	cfg := client.Config{Namenodes: []string{n.cfg.Listen}, User: "root", Timeout: 45 * time.Second}
	if n.cfg.Clock != nil {
		cfg.Clock = n.cfg.Clock
	}
	for _, mod := range mods {
		mod(&cfg)
	}
	ctx, cancel := context.WithTimeout(t.Context(), eventuallyLimit)
	defer cancel()
	fs, err := client.New(ctx, cfg)
	for errors.Is(err, fserror.Unavailable) && ctx.Err() == nil { // a machine may stall for all of the Timeout
		fs, err = client.New(ctx, cfg)
	}
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

// FakeClock makes a clock that moves only when told, and what gives it to a
// namenode and to the clients that Client connects to it.
func FakeClock() (*clock.Fake, func(*namenode.Config)) {
	clk := &clock.Fake{}
	clk.Advance(time.Hour)                   // a stamp of 0 could hide that it was never set
	clk.ShiftWall(56 * 365 * 24 * time.Hour) // to the twenties
	return clk, func(c *namenode.Config) { c.Clock = clk }
}

type testWriter struct{ t testing.TB }

func (w testWriter) Write(p []byte) (int, error) {
	if testing.Verbose() {
		w.t.Log(string(p))
	}
	return len(p), nil
}
