package namenode_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/zkconn"
	"github.com/leasefs/leasefs/namenode"
	"github.com/leasefs/leasefs/namenode/datadir"
	"github.com/leasefs/leasefs/namenode/reign"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
	"github.com/leasefs/leasefs/test/env"
)

// loseLast has ZooKeeper lose the last batch of the journal.
func (p *pair) loseLast() {
	p.t.Helper()
	s, err := zkconn.Dial(p.t.Context(), zkconn.Config{Servers: p.zk.Addrs(), SessionTimeout: calmSession})
	if err != nil {
		p.t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	path := "/leasefs/pair/journal/batches/" + fmt.Sprintf("%017d", 0)
	names, err := s.Children(p.t.Context(), path)
	if err == nil {
		err = s.Delete(p.t.Context(), path+"/"+slices.Max(names), -1)
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

// TestZooKeeperLosesChanges: ZooKeeper has lost changes that were acknowledged. Nobody who
// knew of them goes on without them, also after a restart, until an operator says so.
func TestZooKeeperLosesChanges(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	acfg, _ := p.config()
	bcfg, _ := p.config()
	a := p.active(acfg)
	b := p.start(bcfg)
	p.becomes(b, "standby")
	r := env.RawAt(t, acfg.Listen, "writer")
	r.Make("/kept")
	r.Make("/lost")
	last, _ := a.Tree().Last()
	p.eventually("the standby has followed", func() bool { txid, _ := b.Tree().Last(); return txid == last })
	p.loseLast()
	if _, err := r.NN.Create(t.Context(), &pb.CreateRequest{Call: r.Call(), Caller: r.Who, At: pb.At("/more"), Close: true}); err == nil {
		t.Error("a change after those that were lost was taken")
	}
	for _, s := range []*namenode.Server{a, b} {
		p.eventually("it has ended", func() bool { return s.Err() != nil })
		if err := s.Err(); reign.Restartable(err) || fserror.KindOf(err) != fserror.Damaged {
			t.Errorf("it ended with %v", err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	refused := func(cfg namenode.Config) (file string) {
		t.Helper()
		file = filepath.Join(cfg.Data, datadir.ReachedFile)
		for range 2 {
			notServed(t, cfg, fserror.Damaged, "ZooKeeper has lost changes", "remove "+file)
		}
		return file
	}
	for _, cfg := range []namenode.Config{acfg, bcfg} {
		if err := os.Remove(refused(cfg)); err != nil {
			t.Fatal(err)
		}
	}
	a = p.active(acfg)
	r = env.RawAt(t, acfg.Listen, "writer")
	r.Make("/after")
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	p.loseLast()
	refused(acfg)
}
