package sim

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/vfs/crashfs"
	"github.com/leasefs/leasefs/namenode"
)

// A granted lease, and a lock, that live as short as the namenodes grant outlive the crash
// of the active one, whenever it comes between two renewals: their holder need not give
// them up, and the lease is alive afterwards.
func TestShortestLeasesOutliveACrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := New(t, Config{Seed: 1, Calm: true})
		if _, err := namenode.Format(t.Context(), w.nodes[0].config(&disks{own: w.nodes[0].disk, shared: w.shared})); err != nil {
			t.Fatal(err)
		}
		for _, n := range w.nodes {
			w.running.Go(n.run)
		}
		for _, c := range w.clients[:2] {
			c.ttl = time.Second
			if err := c.connect(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		fs := w.clients[0].fs
		g, err := fs.Grant(t.Context(), time.Second, 0)
		if err != nil {
			t.Fatal(err)
		}
		kept, err := fs.KeepAlive(t.Context(), g.ID)
		if err != nil {
			t.Fatal(err)
		}
		lock, err := w.clients[1].fs.Lock(t.Context(), "/lock", client.LockOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if least := 3 * sessionTimeout; g.TTL != least || lock.TTL() != least {
			t.Fatalf("the lease lives for %s, the lock for %s; want %s", g.TTL, lock.TTL(), least)
		}
		for round := range 40 {
			w.waitActive(t.Context())
			<-time.After(20*time.Second + time.Duration(round)*137*time.Millisecond) // renewals come at any time before
			var active *Node
			for _, n := range w.nodes {
				if n.active() {
					active = n
				}
			}
			if active == nil {
				t.Fatal("nobody is active")
			}
			began := time.Now()
			active.kill(crashfs.Strict)
			w.waitActive(t.Context())
			took := time.Since(began)
			active.start()
			<-time.After(2 * g.TTL)
			select {
			case <-lock.Jeopardy():
				t.Errorf("round %d: the lock was in jeopardy; the failover took %s", round, took)
			default:
			}
			if err := context.Cause(kept.Context()); err != nil {
				t.Errorf("round %d: %v; the failover took %s", round, err, took)
			}
			if _, err := fs.LeaseTimeToLive(t.Context(), g.ID, false); err != nil {
				t.Errorf("round %d: %v", round, err)
			}
			if t.Failed() {
				break
			}
		}
		kept.Stop()
		if err := lock.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
		w.end()
	})
}

// waitActive waits until a namenode is active.
func (w *World) waitActive(ctx context.Context) {
	for {
		for _, n := range w.nodes {
			if n.active() {
				return
			}
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return
		}
	}
}
