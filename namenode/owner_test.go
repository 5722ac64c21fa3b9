package namenode_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	zookeeper "github.com/go-zookeeper/zk"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/zkconn"
	"github.com/leasefs/leasefs/namenode"
	"github.com/leasefs/leasefs/namenode/reign"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
	"github.com/leasefs/leasefs/test/env"
)

// copyNodes makes in one ensemble what is in another, as a copy of its folders
// would, with the versions of nodes, which fence.
func copyNodes(t *testing.T, from, to *env.ZooKeeper) {
	t.Helper()
	var sess [2]*zkconn.Session
	for i, z := range []*env.ZooKeeper{from, to} {
		s, err := zkconn.Dial(t.Context(), zkconn.Config{Servers: z.Addrs(), SessionTimeout: calmSession})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = s.Close() }()
		sess[i] = s
	}
	var one func(path string) error
	one = func(path string) error {
		data, stat, err := sess[0].Get(t.Context(), path)
		if err != nil || stat.EphemeralOwner != 0 {
			return err
		}
		if _, err := sess[1].Create(t.Context(), path, data, 0); err != nil {
			return err
		}
		for range stat.Version {
			if _, err := sess[1].Set(t.Context(), path, data, -1); err != nil {
				return err
			}
		}
		names, err := sess[0].Children(t.Context(), path)
		for _, name := range names {
			if err == nil {
				err = one(path + "/" + name)
			}
		}
		return err
	}
	if err := one("/leasefs"); err != nil && !errors.Is(err, zookeeper.ErrNoNode) {
		t.Fatal(err)
	}
}

// fork prepares one store for two fleets whose ZooKeepers are copies: a runs,
// with files, and b is a namenode over the copy, which has not begun.
func fork(o *oneStore) (a, b *rival) {
	o.t.Helper()
	a = o.prepare("pair")
	o.run(a)
	f := a.library(o.t)
	for i := range 3 {
		if err := f.WriteFile(o.t.Context(), fmt.Sprintf("/f%d", i), make([]byte, fileSize)); err != nil {
			o.t.Fatal(err)
		}
	}
	a.checkpoint(o.t)
	was := o.zk
	o.zk = env.LendZooKeeper(o.t)
	copyNodes(o.t, was, o.zk)
	b = o.prepare("pair")
	return a, b
}

// gc is what a namenode deletes, by hand and by itself, after every URL is over.
// It returns the refusal, if it was refused.
func (o *oneStore) gc(r *rival) error {
	t := o.t
	t.Helper()
	r.clock.BeyondURLs()
	o.becomes(r.Server, "active")
	if err := r.SweepPass(t.Context()); err != nil {
		t.Error(err)
	}
	if _, _, err := r.CollectGarbage(t.Context()); err != nil {
		t.Error(err)
	}
	_, err := r.raw.Admin.Collect(t.Context(), &pb.CollectRequest{Caller: r.raw.Who})
	return err
}

func conflictOf(t *testing.T, r *rival) string {
	t.Helper()
	s, err := r.raw.Admin.Status(t.Context(), &pb.StatusRequest{Caller: r.raw.Who})
	if err != nil {
		t.Fatal(err)
	}
	return s.GetStoreConflict()
}

// TestCopiedZooKeepers: two fleets whose ZooKeepers are copies of each other use
// one store. Neither deletes a block of the other; both say so; and an operator
// gives the store to one of them, after which the other ends.
func TestCopiedZooKeepers(t *testing.T) {
	t.Parallel()
	overStores(t, func(o *oneStore) {
		a, b := fork(o)
		o.run(b) // it continues where a was, under the next term
		for i, r := range []*rival{a, b} {
			f := r.library(o.t)
			for j := range 2 {
				if err := f.WriteFile(o.t.Context(), fmt.Sprintf("/%d-%d", i, j), make([]byte, fileSize)); err != nil {
					o.t.Fatal(err)
				}
			}
			if err := f.Remove(o.t.Context(), fmt.Sprintf("/f%d", i)); err != nil { // the other has it
				o.t.Fatal(err)
			}
		}
		for range 2 {
			for _, r := range []*rival{a, b} {
				if err := o.gc(r); !errors.Is(err, fserror.Exists) || fserror.ReasonOf(err) != fserror.ReasonStoreConflict {
					o.t.Errorf("it collected: %v", err)
				}
				if text := conflictOf(o.t, r); !strings.Contains(text, "two copies of the namespace") {
					o.t.Errorf("status: %q", text)
				}
				r.checkpoint(o.t) // whose images are not the other's to remove
			}
		}
		for i, r := range []*rival{a, b} {
			f := r.library(o.t)
			for _, path := range []string{fmt.Sprintf("/%d-0", i), fmt.Sprintf("/%d-1", i), fmt.Sprintf("/f%d", 1-i), "/f2"} {
				if got, err := f.ReadFile(o.t.Context(), path); err != nil || len(got) != fileSize {
					o.t.Errorf("%s at %d: %d bytes, %v", path, i, len(got), err)
				}
			}
		}

		res, err := a.raw.Admin.ResolveStore(o.t.Context(), &pb.ResolveStoreRequest{Caller: a.raw.Who})
		if err != nil || !res.GetResolved() {
			o.t.Fatalf("%v, %v", res, err)
		}
		if res, err = a.raw.Admin.ResolveStore(o.t.Context(), &pb.ResolveStoreRequest{Caller: a.raw.Who}); err != nil || res.GetResolved() {
			o.t.Errorf("again: %v, %v", res, err)
		}
		if _, err := b.raw.Admin.Collect(o.t.Context(), &pb.CollectRequest{Caller: b.raw.Who}); err == nil {
			o.t.Error("the other went on")
		}
		<-b.Done()
		if reign.Restartable(b.Err()) || !errors.Is(b.Err(), fserror.Exists) {
			o.t.Errorf("the other ended with %v", b.Err())
		}
		if err := b.Close(); err != nil {
			o.t.Error(err)
		}
		notServed(o.t, b.cfg, fserror.Exists, "belongs to incarnation")
		if err := o.gc(a); err != nil {
			o.t.Error(err)
		}
		if text := conflictOf(o.t, a); text != "" {
			o.t.Errorf("status: %q", text)
		}
		f := a.library(o.t)
		for _, path := range []string{"/0-0", "/0-1", "/f1", "/f2"} {
			if got, err := f.ReadFile(o.t.Context(), path); err != nil || len(got) != fileSize {
				o.t.Errorf("%s: %d bytes, %v", path, len(got), err)
			}
		}
		if err := a.Close(); err != nil {
			o.t.Error(err)
		}
	})
}

// TestZooKeeperFromABackup: ZooKeeper's folders are put back from before reigns
// that the store was told of. Their blocks are left alone, until an operator says
// that nobody else has the store; and then deleted only if they are asked for.
func TestZooKeeperFromABackup(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	o := &oneStore{pair: p, blocks: func() string { return "file://" + p.blocks }}
	a, b := fork(o)
	for i := range 2 { // later reigns, which the backup does not know
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		o.run(a)
		if err := a.library(o.t).WriteFile(t.Context(), fmt.Sprint("/later", i), make([]byte, fileSize)); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	blocks := len(blockFiles(t, p.blocks))
	o.run(b)
	if err := o.gc(b); !errors.Is(err, fserror.Exists) {
		t.Errorf("it collected: %v", err)
	}
	if n := len(blockFiles(t, p.blocks)); n != blocks {
		t.Errorf("%d blocks of %d are left", n, blocks)
	}
	intact(t, b.library(o.t), 3)
	if res, err := b.raw.Admin.ResolveStore(t.Context(), &pb.ResolveStoreRequest{Caller: b.raw.Who}); err != nil || !res.GetResolved() {
		t.Fatalf("%v, %v", res, err)
	}
	for range 2 {
		b.clock.BeyondURLs()
		o.becomes(b.Server, "active")
		if err := b.SweepPass(t.Context()); err != nil {
			t.Error(err)
		}
		if _, _, err := b.CollectGarbage(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if n := len(blockFiles(t, p.blocks)); n != blocks {
		t.Errorf("%d blocks of %d are left after the sweep", n, blocks)
	}
	intact(t, b.library(o.t), 3)
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

// TestBlocksOfLaterReignsOverAFailover: blocks of reigns that no record tells of
// are left by every namenode, not only by the one that met them first.
func TestBlocksOfLaterReignsOverAFailover(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	clk := &env.LeapingClock{}
	often := func(c *namenode.Config) { c.Clock = clk }
	cfg, _ := p.config(often)
	p.format(cfg)
	ids, err := filepath.Glob(p.blocks + "/*/NAMESPACE")
	if err != nil || len(ids) != 1 {
		t.Fatal(ids, err)
	}
	lost := filepath.Join(filepath.Dir(ids[0]), fmt.Sprintf("%016x", 50), fmt.Sprintf("%014x", 0), fmt.Sprintf("%016x.blk", 7))
	if err := os.MkdirAll(filepath.Dir(lost), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(lost, make([]byte, 1004), 0o600); err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		cfg, _ := p.config(often)
		s := p.start(cfg)
		p.becomes(s, "active")
		for range 2 {
			clk.BeyondURLs()
			p.becomes(s, "active")
			if err := s.SweepPass(t.Context()); err != nil {
				t.Error(err)
			}
			if _, _, err := s.CollectGarbage(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if _, err := os.Stat(lost); err != nil {
			t.Errorf("namenode %d has deleted a block of a later reign: %v", i, err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestNothingIsDeletedAtFirst: a namenode that has just become active lets others
// object before it deletes; admin gc says what waits.
func TestNothingIsDeletedAtFirst(t *testing.T) {
	t.Parallel()
	clk, fake := env.FakeClock()
	disk := filepath.Join(t.TempDir(), "disk")
	n := env.Start(t, fake, func(c *namenode.Config) {
		c.BlocksDir, c.DeleteAfter, c.URLLife = disk, time.Hour, time.Minute
		c.CollectEvery, c.SweepEvery = time.Hour, time.Hour
	})
	r := n.Raw(t, "a")
	withBlock(t, r, "/f", "content")
	remove(t, r, "/f")
	for _, waits := range []uint64{1, 0} {
		clk.Advance(31 * time.Minute)
		res, err := r.Admin.Collect(t.Context(), &pb.CollectRequest{Caller: r.Who})
		if err != nil || res.GetWaiting() != waits || uint64(len(blockFiles(t, disk))) != waits {
			t.Errorf("%v, %v; %d waits", res, err, waits)
		}
	}
}
