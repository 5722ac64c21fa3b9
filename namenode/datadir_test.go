package namenode_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode"
	"github.com/leasefs/leasefs/namenode/ensemble"
	"github.com/leasefs/leasefs/test/env"
)

// TestFoldersOfTheOtherKind: one of several namenodes refuses a backup, and the folder of
// a namenode alone, and removes nothing there; a namenode alone refuses the folder of one
// of several, and says what is missing.
func TestFoldersOfTheOtherKind(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	cfg, _ := p.config()
	a := p.active(cfg)
	r := env.RawAt(t, cfg.Listen, "r")
	if err := r.Close(r.Create("/f"), 0); err != nil {
		t.Fatal(err)
	}
	backup := t.TempDir()
	if err := backupTo(t, r, backup, nil); err != nil {
		t.Fatal(err)
	}
	files := func() (all []string) {
		for _, sub := range []string{"image", "journal", "blocks"} {
			entries, err := os.ReadDir(filepath.Join(backup, sub))
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				t.Fatal(err)
			}
			for _, e := range entries {
				all = append(all, filepath.Join(sub, e.Name()))
			}
		}
		return all
	}
	refused := func(what string, cfg namenode.Config, says ...string) {
		t.Helper()
		before := files()
		s, err := namenode.Start(t.Context(), cfg)
		if err == nil {
			_ = s.Close()
			t.Fatalf("%s was taken", what)
		}
		for _, say := range says {
			if !strings.Contains(err.Error(), say) && fserror.ReasonOf(err) != say {
				t.Errorf("%s: %v; want %q in it", what, err, say)
			}
		}
		if after := files(); len(before) == 0 || !slices.Equal(before, after) {
			t.Errorf("%s had %q, and has %q", what, before, after)
		}
	}
	other, _ := p.config(func(c *namenode.Config) { c.Data = backup })
	refused("a backup", other, backup, fserror.ReasonData)
	single := other
	single.HA, single.Blocks = nil, ""
	s, err := namenode.Start(t.Context(), single)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Close(), a.Close()); err != nil {
		t.Fatal(err)
	}
	refused("the folder of a namenode alone", other, backup, fserror.ReasonData)
	single.Data = cfg.Data
	refused("the folder of one of several", single, cfg.Data, fserror.ReasonAlone)
}

// A command waits for a ZooKeeper that was started just before it.
func TestCommandWaitsForZooKeeper(t *testing.T) {
	t.Parallel()
	z := env.LendZooKeeper(t)
	var said lines
	ha := &namenode.HA{
		ZooKeeper: z.Addrs(), Name: "n", SessionTimeout: time.Second,
		Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
			if said.Count("waiting for ZooKeeper") < 2 { // which is after ten seconds
				return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
			}
			return new(net.Dialer).DialContext(ctx, network, addr)
		},
	}
	sess, err := ha.DialOnce(t.Context(), slog.New(slog.NewTextHandler(&said, nil)))
	if err != nil {
		t.Fatal(err)
	}
	if err := sess.Close(); err != nil {
		t.Error(err)
	}
}

// Who mistypes the ensemble's name is told that, and not to start it.
func TestEnsembleThatDoesNotExist(t *testing.T) {
	ha := &namenode.HA{
		ZooKeeper: []string{"nosuch.example:2181"}, Name: "n", User: "u", Password: "p",
		Dial: func(context.Context, string, string) (net.Conn, error) {
			return nil, &net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", Name: "nosuch.example", IsNotFound: true}}
		},
	}
	ferr := env.TryFormat(t.Context(), namenode.Config{HA: ha, Blocks: "file://" + t.TempDir()})
	own := *ha
	own.SessionTimeout = namenode.DefaultSessionTimeout
	_, oerr := ensemble.OwnZooKeeper(t.Context(), &own, slog.New(slog.DiscardHandler))
	for what, err := range map[string]error{"format": ferr, "zookeeper-acl": oerr} {
		if !errors.Is(err, fserror.Unavailable) || !strings.Contains(err.Error(), "no such host") || fserror.ReasonOf(err) != fserror.ReasonZooKeeper || strings.Contains(err.Error(), "start the ensemble") {
			t.Errorf("%s: %v", what, err)
		}
	}
}
