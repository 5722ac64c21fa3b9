package namenode_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasefs/leasefs/internal/backup"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode"
	"github.com/leasefs/leasefs/namenode/offline"
	"github.com/leasefs/leasefs/namenode/reign"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
	"github.com/leasefs/leasefs/test/env"
)

var takeOver = regexp.MustCompile(`belongs to incarnation ([0-9a-f]{32}) of namespace .* this is incarnation ([0-9a-f]{32}): .* take over the store of incarnation ([0-9a-f]{32})`)

// incarnationOf is the incarnation that a refusal says the store is of.
func incarnationOf(t *testing.T, err error) string {
	t.Helper()
	m := takeOver.FindStringSubmatch(fmt.Sprint(err))
	if m == nil || m[1] != m[3] || m[1] == m[2] || !errors.Is(err, fserror.Exists) || strings.Contains(err.Error(), "\n") {
		t.Fatalf("no refusal that names both incarnations: %v", err)
	}
	return m[1]
}

// oneStore is a test of namenodes of two histories of one namespace, over one
// block store.
type oneStore struct {
	*pair
	blocks func() string // a URL
	dir    string        // of a backup
	keep   time.Duration // in the archive; 0: nothing is archived
}

func (o *oneStore) prepare(name string) *rival {
	o.t.Helper()
	r := &rival{clock: &env.LeapingClock{}}
	r.cfg, r.zk = o.config(func(c *namenode.Config) {
		c.HA.Name, c.Blocks, c.Clock, c.Archive = name, o.blocks(), r.clock, o.keep
		c.BlockSize, c.MaxTail = 128<<10, 64<<10
		c.CollectEvery, c.SweepEvery = time.Hour, time.Hour // by hand
	})
	return r
}

func (o *oneStore) run(r *rival) *rival {
	o.t.Helper()
	r.Server = o.start(r.cfg)
	o.becomes(r.Server, "active")
	r.raw = env.RawAt(o.t, r.cfg.Listen, "tester")
	return r
}

func (o *oneStore) restore(r *rival, backup, takeOver string) (offline.Restored, error) {
	cfg := r.cfg
	cfg.TakeOver = takeOver
	return env.Restore(o.t.Context(), cfg, backup)
}

// overStores runs a test with a folder, and with each S3 server.
func overStores(t *testing.T, test func(*oneStore)) {
	t.Run("folder", func(t *testing.T) {
		p := newPair(t)
		test(&oneStore{pair: p, blocks: func() string { return "file://" + p.blocks }, dir: filepath.Join(t.TempDir(), "backup")})
	})
	if testing.Short() {
		return
	}
	onRivals(t, func(p *rivals) {
		test(&oneStore{pair: p.pair, blocks: func() string { return p.server.URL("here") }, dir: filepath.Join(p.t.TempDir(), "backup")})
	})
}

// TestTakenOverStore: a namespace is restored while its namenodes still run.
// They delete nothing any more that the restored one has, and end.
func TestTakenOverStore(t *testing.T) {
	t.Parallel()
	overStores(t, func(o *oneStore) {
		a := o.run(o.prepare("old"))
		standby := o.prepare("old")
		standby.Server = o.start(standby.cfg)
		o.becomes(standby.Server, "standby")
		f := a.library(o.t)
		const files = 4
		for i := range files {
			if err := f.WriteFile(o.t.Context(), fmt.Sprintf("/f%d", i), make([]byte, fileSize)); err != nil {
				o.t.Fatal(err)
			}
		}
		if _, err := backup.Write(o.t.Context(), f.Admin(), o.dir, backup.Options{}); err != nil {
			o.t.Fatal(err)
		}
		a.checkpoint(o.t)
		if err := f.Remove(o.t.Context(), "/f0"); err != nil {
			o.t.Fatal(err)
		}
		a.clock.BeyondURLs()
		o.becomes(a.Server, "active")

		b := o.prepare("new")
		_, err := o.restore(b, "", "")
		old := incarnationOf(o.t, err)
		if _, err := o.restore(b, "", strings.Repeat("0", 32)); incarnationOf(o.t, err) != old {
			o.t.Errorf("%v", err)
		}
		if _, err := o.restore(b, "", "x"); err == nil || !strings.Contains(err.Error(), `"x" is no incarnation`) {
			o.t.Errorf("%v", err)
		}
		if done, err := o.restore(b, "", old); err != nil || done.Files != files {
			o.t.Fatalf("%+v, %v", done, err)
		}
		// The older one has a file less, and its blocks to delete.
		_, err = a.raw.Admin.Collect(o.t.Context(), &pb.CollectRequest{Caller: a.raw.Who})
		if err == nil || fserror.ReasonOf(err) != fserror.ReasonOtherStore {
			o.t.Errorf("it collected: %v", err)
		}
		<-a.Done()
		if err := a.Err(); incarnationOf(o.t, err) == old || reign.Restartable(err) {
			o.t.Errorf("it ended with %v", err)
		}
		if err := a.Close(); err != nil {
			o.t.Error(err)
		}
		_, err = namenode.Start(o.t.Context(), a.cfg)
		incarnationOf(o.t, err)
		// Nor does the next one reign.
		<-standby.Done()
		incarnationOf(o.t, standby.Err())
		if err := standby.Close(); err != nil {
			o.t.Error(err)
		}

		o.run(b)
		g := b.library(o.t)
		intact(o.t, g, files)
		if got, err := g.Status(o.t.Context()); err != nil || got[0].Term <= 1<<16 {
			o.t.Errorf("%+v, %v", got, err) // what clients of the older one still put has lower terms
		}
		if err := g.WriteFile(o.t.Context(), "/f4", make([]byte, fileSize)); err != nil {
			o.t.Error(err)
		}
		for range 2 { // the reign, and its images, are its own
			b.checkpoint(o.t)
		}
		if err := b.Close(); err != nil {
			o.t.Error(err)
		}
		b.cfg.TakeOver = old // left in a start script: it has been done
		o.run(b)
		intact(o.t, b.library(o.t), files+1)
		if err := b.Close(); err != nil {
			o.t.Error(err)
		}
	})
}

// TestOneBackupOneStore: a backup is restored twice, at once and one after
// another, to two ensembles and to one store.
func TestOneBackupOneStore(t *testing.T) {
	t.Parallel()
	overStores(t, func(o *oneStore) {
		first := o.blocks()
		a := o.run(o.prepare("old"))
		f := a.library(o.t)
		for i := range 3 {
			if err := f.WriteFile(o.t.Context(), fmt.Sprintf("/f%d", i), make([]byte, fileSize)); err != nil {
				o.t.Fatal(err)
			}
		}
		if _, err := backup.Write(o.t.Context(), f.Admin(), o.dir, backup.Options{}); err != nil {
			o.t.Fatal(err)
		}
		if err := a.Close(); err != nil {
			o.t.Fatal(err)
		}
		elsewhere := strings.Replace(first, "/here", "/there", 1)
		if elsewhere == first {
			elsewhere = "file://" + o.t.TempDir()
		}
		o.blocks = func() string { return elsewhere }
		var wg sync.WaitGroup
		both := []*rival{o.prepare("one"), o.prepare("two")}
		var errs [2]error
		for i, r := range both {
			wg.Go(func() { _, errs[i] = o.restore(r, o.dir, "") })
		}
		wg.Wait()
		won := 0
		if errs[0] != nil {
			won = 1
		}
		if errs[won] != nil {
			o.t.Fatalf("%v", errs)
		}
		one, two := both[won], both[1-won]
		incarnationOf(o.t, errs[1-won])
		o.run(one)
		g := one.library(o.t)
		if err := g.WriteFile(o.t.Context(), "/f3", make([]byte, fileSize)); err != nil {
			o.t.Error(err)
		}
		// The winner writes an image if it is given time. From then on the backup is too old for its store.
		dir := o.dir
		again := func(takeOver string) (offline.Restored, error) {
			done, err := o.restore(two, dir, takeOver)
			if e := new(fserror.Error); dir != "" && errors.As(err, &e) && e.Reason == fserror.ReasonBlocks {
				dir = ""
				done, err = o.restore(two, dir, takeOver)
			}
			return done, err
		}
		_, err := again("")
		winner := incarnationOf(o.t, err)
		intact(o.t, g, 4)
		// Once it has ended, its store can be taken over, also for good.
		if err := one.Close(); err != nil {
			o.t.Error(err)
		}
		done, err := again(winner)
		if err != nil || done.Copied != 0 || done.Files < 3 || dir != "" && (done.Files != 3 || done.Blocks == 0) {
			o.t.Fatalf("%+v, %v", done, err)
		}
		o.run(two)
		intact(o.t, two.library(o.t), int(done.Files)) //nolint:gosec // three or four
		if err := two.Close(); err != nil {
			o.t.Error(err)
		}
		_, err = namenode.Start(o.t.Context(), one.cfg)
		incarnationOf(o.t, err)
	})
}

// TestRestoresAtOnce: of restores of one name one wins, whatever they restore.
func TestRestoresAtOnce(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	o := &oneStore{pair: p, blocks: func() string { return "file://" + t.TempDir() }}
	dir := filepath.Join(t.TempDir(), "backup")
	a := o.run(o.prepare("old"))
	f := a.library(t)
	if err := f.WriteFile(t.Context(), "/f0", make([]byte, fileSize)); err != nil {
		t.Fatal(err)
	}
	if _, err := backup.Write(t.Context(), f.Admin(), dir, backup.Options{}); err != nil {
		t.Fatal(err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var errs [3]error
	var all [3]*rival
	for i := range errs {
		all[i] = o.prepare("new") // each with a folder of its own
		wg.Go(func() { _, errs[i] = o.restore(all[i], dir, "") })
	}
	wg.Wait()
	won := -1
	for i, err := range errs {
		switch {
		case err == nil && won < 0:
			won = i
		case err == nil:
			t.Errorf("two restores won: %v", errs)
		case !errors.Is(err, fserror.Exists) || !strings.Contains(err.Error(), "another restore") && !strings.Contains(err.Error(), "ZooKeeper has"):
			t.Error(err)
		}
	}
	if won < 0 {
		t.Fatalf("none won: %v", errs)
	}
	o.run(all[won])
	intact(t, all[won].library(t), 1)
	if err := all[won].Close(); err != nil {
		t.Error(err)
	}
}

// TestStoreOfAnEarlierRelease has no incarnation. It gets one at the next start,
// and of two that start there one wins.
func TestStoreOfAnEarlierRelease(t *testing.T) {
	t.Parallel()
	disk := filepath.Join(t.TempDir(), "disk")
	n := env.Start(t, func(c *namenode.Config) { c.BlocksDir = disk })
	withBlock(t, n.Raw(t, "a"), "/f", "content")
	copied := n.Config()
	copied.Data = filepath.Join(t.TempDir(), "copy")
	if _, err := backup.Write(t.Context(), n.Client(t).Admin(), copied.Data, backup.Options{TreeOnly: true}); err != nil {
		t.Fatal(err)
	}
	n.Stop(t)
	made, err := filepath.Glob(filepath.Join(disk, "*", "named", "incarnation-*"))
	if err != nil || len(made) != 1 || filepath.Base(made[0]) != "incarnation-00000001" {
		t.Fatal(made, err)
	}
	if err := os.Remove(made[0]); err != nil {
		t.Fatal(err)
	}
	version := filepath.Join(n.Config().Data, "VERSION")
	raw, err := os.ReadFile(version)
	if err != nil {
		t.Fatal(err)
	}
	older := regexp.MustCompile(`(?m)^incarnation = .*\n`).ReplaceAll(raw, nil)
	if err := os.WriteFile(version, older, 0o600); err != nil || bytes.Equal(older, raw) {
		t.Fatalf("%v\n%s", err, raw)
	}
	for range 2 { // and it knows its own again
		n = env.Start(t, func(c *namenode.Config) { *c = n.Config() })
		if got, err := n.Client(t).ReadFile(t.Context(), "/f"); err != nil || string(got) != "content" {
			t.Fatalf("%q, %v", got, err)
		}
		n.Stop(t)
		incarnationOf(t, cannotStart(t, copied))
	}
}

// TestDamagedIncarnation: nothing is taken for this one's that cannot be read.
func TestDamagedIncarnation(t *testing.T) {
	t.Parallel()
	disk := filepath.Join(t.TempDir(), "disk")
	n := env.Start(t, func(c *namenode.Config) { c.BlocksDir = disk })
	n.Stop(t)
	made, err := filepath.Glob(filepath.Join(disk, "*", "named", "incarnation-*"))
	if err != nil || len(made) != 1 {
		t.Fatal(made, err)
	}
	for _, text := range []string{"{}", "x", `{"incarnation":"short"}`, strings.Repeat(" ", 1<<20)} {
		if err := os.WriteFile(made[0], []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := cannotStart(t, n.Config()); !errors.Is(err, fserror.Damaged) || !strings.Contains(err.Error(), filepath.Base(made[0])) {
			t.Errorf("%.20q: %v", text, err)
		}
	}
}
