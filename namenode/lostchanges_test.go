package namenode_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/zkconn"
	"github.com/leasefs/leasefs/namenode"
	"github.com/leasefs/leasefs/namenode/datadir"
	"github.com/leasefs/leasefs/namenode/reign"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
	"github.com/leasefs/leasefs/test/env"
)

// loseFrom has ZooKeeper lose the batches of the journal from a number on; of 0, only the
// last one.
func (p *pair) loseFrom(number uint64) {
	p.t.Helper()
	s, err := zkconn.Dial(p.t.Context(), zkconn.Config{Servers: p.zk.Addrs(), SessionTimeout: calmSession})
	if err != nil {
		p.t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	path := "/leasefs/pair/journal/batches/" + fmt.Sprintf("%017d", 0)
	names, err := s.Children(p.t.Context(), path)
	slices.Sort(names)
	for at, name := range slices.Backward(names) {
		n, _ := strconv.ParseUint(name, 10, 64)
		if lose := number > 0 && n >= number || number == 0 && at == len(names)-1; lose && err == nil {
			err = s.Delete(p.t.Context(), path+"/"+name, -1)
		}
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

// reached is what the data folder of a namenode says of the journal; nothing if it does
// not say that.
func (p *pair) reached(folder string) (says struct{ TxID, Batch uint64 }) {
	p.t.Helper()
	raw, err := os.ReadFile(filepath.Join(folder, datadir.ReachedFile)) //nolint:gosec // a test's
	if err == nil {
		err = json.Unmarshal(raw, &says)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		p.t.Fatal(err)
	}
	return says
}

// TestKilledNamenodeMissesLostChanges: also a namenode that was killed does not go on
// without changes that ZooKeeper lost after it had said in its folder that they are there.
func TestKilledNamenodeMissesLostChanges(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	cfg, way := p.config()
	a := p.active(cfg)
	env.RawAt(t, cfg.Listen, "writer").Make("/lost")
	last, _ := a.Tree().Last()
	p.eventually("the folder says so", func() bool { return p.reached(cfg.Data).TxID >= last })
	killed := cfg // as a power cut leaves it
	killed.Data, killed.Listen, killed.HTTP = t.TempDir(), p.port(), p.port()
	ha := *cfg.HA
	ha.ZooKeeper = p.zk.Addrs()
	killed.HA = &ha
	if err := os.CopyFS(killed.Data, os.DirFS(cfg.Data)); err != nil {
		t.Fatal(err)
	}
	p.lose(way)
	p.loseFrom(p.reached(killed.Data).Batch)
	notServed(t, killed, fserror.Damaged, "ZooKeeper has lost changes")
	file := filepath.Join(killed.Data, datadir.ReachedFile)
	if err := os.WriteFile(file, []byte(`{"Incarnation":"x"}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	notServed(t, killed, fserror.Damaged, "remove it", file)
	_ = a.Close() // it cannot say anything any more
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
	p.loseFrom(0)
	if _, err := r.NN.Create(t.Context(), &pb.CreateRequest{Call: r.Call(), Caller: r.Who, At: pb.At("/more"), Close: true}); err == nil {
		t.Error("a change after those that were lost was taken")
	}
	for i, s := range []*namenode.Server{a, b} {
		p.eventually("it has ended", func() bool { return s.Err() != nil })
		if err := s.Err(); reign.Restartable(err) || fserror.KindOf(err) != fserror.Damaged {
			t.Errorf("it ended with %v", err)
		}
		// Before it is closed: it may be killed.
		p.eventually("its folder says how far the journal was", func() bool { return p.reached([]string{acfg.Data, bcfg.Data}[i]).TxID >= last })
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
	p.loseFrom(0)
	refused(acfg)
}
