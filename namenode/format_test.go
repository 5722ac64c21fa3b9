package namenode_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/zkconn"
	"github.com/leasefs/leasefs/namenode"
	"github.com/leasefs/leasefs/test/env"
	"github.com/leasefs/leasefs/test/env/crashfs"
)

// notServed is the refusal of a start, which has to name what is wrong.
func notServed(t *testing.T, cfg namenode.Config, kind error, says ...string) {
	t.Helper()
	err := cannotStart(t, cfg)
	if !errors.Is(err, kind) || strings.Contains(err.Error(), "\n") {
		t.Errorf("%v, want %v", err, kind)
	}
	for _, s := range says {
		if !strings.Contains(err.Error(), s) && fserror.ReasonOf(err) != s {
			t.Errorf("the error does not say %q: %v (%s)", s, err, fserror.ReasonOf(err))
		}
	}
}

// emptyFolder fails if there is something in a folder.
func emptyFolder(t *testing.T, dir string) {
	t.Helper()
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%s has %v, %v", dir, left, err)
	}
}

// TestStartsMakeNoNamespace: a namenode on an empty ZooKeeper, or with a mistyped
// name, is refused and leaves no trace, so that a format or a restore can follow.
func TestStartsMakeNoNamespace(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	cfg, _ := p.config()
	notServed(t, cfg, fserror.NotFound, "no namespace pair:", fserror.ReasonNoNamespace)
	sess, err := zkconn.Dial(t.Context(), zkconn.Config{Servers: p.zk.Addrs()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sess.Close() }()
	if there, err := sess.Exists(t.Context(), "/leasefs"); there || err != nil {
		t.Errorf("the start has made nodes: %t, %v", there, err)
	}
	emptyFolder(t, p.blocks)

	a := p.start(cfg)
	p.becomes(a, "active")
	r := env.RawAt(t, cfg.Listen, "writer")
	publish(t, r, "f", 2)
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	mistyped, _ := p.config(func(c *namenode.Config) { c.HA.Name = "piar" })
	notServed(t, mistyped, fserror.NotFound, "no namespace piar (it has pair)", fserror.ReasonNoNamespace)

	// ZooKeeper's data is lost, and namenodes are started before the restore.
	p.zk = env.LendZooKeeper(t)
	fresh, _ := p.config()
	old := fresh
	old.Data = cfg.Data
	for _, c := range []namenode.Config{fresh, old} {
		notServed(t, c, fserror.NotFound, "no namespace pair")
	}
	restore := fresh
	_, err = env.Restore(t.Context(), restore, "")
	restore.TakeOver = incarnationOf(t, err)
	if done, err := env.Restore(t.Context(), restore, ""); err != nil || done.Files == 0 {
		t.Fatalf("%+v, %v", done, err)
	}

	// With another store by mistake nothing is served, nor is that one taken.
	wrong := fresh
	wrong.Data, wrong.Blocks = t.TempDir(), "file://"+t.TempDir()
	notServed(t, wrong, fserror.NotFound, "not the block folder of the namespace", fserror.ReasonBlocks)
	emptyFolder(t, strings.TrimPrefix(wrong.Blocks, "file://"))
	clk := new(wrongClock)
	clk.ahead.Store(int64(24 * time.Hour)) // so long ago the image was made
	fresh.Clock = clk
	b, err := namenode.Start(t.Context(), fresh)
	if err != nil {
		t.Fatal(err)
	}
	p.becomes(b, "active")
	r = env.RawAt(t, fresh.Listen, "reader")
	r.File("/f1")
	r.Create("/new")
	if off := time.UnixMilli(r.File("/new").GetAttr().GetMtimeUnixMs()).Sub(clk.Wall()); off.Abs() > time.Minute {
		t.Errorf("the time of a file that is made after the restore is %s ahead", off)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

// TestNamenodesWithDifferentStores: of a new namespace's namenodes only those
// start that have the store which its format has claimed.
func TestNamenodesWithDifferentStores(t *testing.T) {
	t.Parallel()
	onRivals(t, func(p *rivals) {
		right, _ := p.config(func(c *namenode.Config) { c.Blocks = p.server.URL("here") })
		p.format(right)
		wrong, _ := p.config(func(c *namenode.Config) { c.Blocks = p.server.URL("heer") })
		notServed(p.t, wrong, fserror.NotFound, "heer", `no object "incarnation-00000001"`, fserror.ReasonBlocks)
		theirs, _ := p.config(func(c *namenode.Config) { c.HA.Name, c.Blocks = "theirs", p.server.URL("theirs") })
		p.format(theirs)
		wrong.Blocks = theirs.Blocks
		notServed(p.t, wrong, fserror.NotFound, "theirs", fserror.ReasonBlocks)
		if left := p.server.List(p.t, "heer/"); strings.Contains(left, "<Key>") {
			p.t.Errorf("the refused start has left %v", left)
		}
		s := p.pair.start(right)
		p.becomes(s, "active")
		if err := s.Close(); err != nil {
			p.t.Error(err)
		}
	})
}

// TestFormatRefusesWhatExists, and says what, and what to do.
func TestFormatRefusesWhatExists(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	cfg, _ := p.config()
	s := p.start(cfg)
	p.becomes(s, "active")
	publish(t, env.RawAt(t, cfg.Listen, "writer"), "f", 1)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	refuses := func(cfg namenode.Config, says ...string) {
		t.Helper()
		err := env.TryFormat(t.Context(), cfg)
		if !errors.Is(err, fserror.Exists) {
			t.Errorf("%v", err)
		}
		for _, s := range says {
			if !strings.Contains(fmt.Sprint(err), s) && fserror.ReasonOf(err) != s {
				t.Errorf("it does not say %q: %v", s, err)
			}
		}
	}
	refuses(cfg, "ZooKeeper has a namespace pair already", fserror.ReasonNamespaceTaken)
	other := cfg
	other.Blocks = "file://" + t.TempDir()
	refuses(other, "ZooKeeper has a namespace pair already")
	emptyFolder(t, strings.TrimPrefix(other.Blocks, "file://"))

	// ZooKeeper is lost, the store is not.
	p.zk = env.LendZooKeeper(t)
	cfg, _ = p.config()
	refuses(cfg, "has files of a namespace pair", fserror.ReasonStoreTaken)
	_, err := env.Restore(t.Context(), cfg, "")
	incarnationOf(t, err) // refused, but the restore has begun
	refuses(cfg, "restore of namespace pair", "has not ended", "/leasefs/pair")
	cfg, _ = p.config(func(c *namenode.Config) { c.HA.Name = "another" }) // which may share the store
	if err := env.TryFormat(t.Context(), cfg); err != nil {
		t.Error(err)
	}
}

// TestFormatAfterACrash: a format that a crash ended at any of its steps is
// repeated, and makes a namespace.
func TestFormatAfterACrash(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	for n := 1; ; n++ {
		cfg, _ := p.config(func(c *namenode.Config) {
			c.HA.Name, c.Data, c.Blocks = fmt.Sprint("crash-", n), "/data", "file:///blocks"
		})
		disk := crashfs.New()
		disk.CrashAt(n)
		cfg.FS = disk
		err := env.TryFormat(t.Context(), cfg)
		if err == nil {
			if n < 10 {
				t.Errorf("only %d steps", n)
			}
			return
		}
		if cfg.FS = disk.Crash(crashfs.Strict); errors.Is(err, crashfs.ErrCrashed) {
			err = env.TryFormat(t.Context(), cfg)
		}
		if err != nil {
			t.Fatalf("step %d: %v", n, err)
		}
		if n%8 != 1 { // some of them are served
			continue
		}
		s, err := namenode.Start(t.Context(), cfg)
		if err != nil {
			t.Fatalf("step %d: %v", n, err)
		}
		p.becomes(s, "active")
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestFormatsAtOnce: of formats of one name, each with a store of its own, one
// wins, and only its store is served.
func TestFormatsAtOnce(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	var all [3]namenode.Config
	var errs [3]error
	var wg sync.WaitGroup
	for i := range all {
		all[i], _ = p.config(func(c *namenode.Config) { c.Blocks = "file://" + t.TempDir() })
		wg.Go(func() { errs[i] = env.TryFormat(t.Context(), all[i]) })
	}
	wg.Wait()
	won := 0
	for i, err := range errs {
		if err != nil {
			if !errors.Is(err, fserror.Exists) {
				t.Error(err)
			}
			notServed(t, all[i], fserror.NotFound, fserror.ReasonBlocks)
			continue
		}
		won++
		s, err := namenode.Start(t.Context(), all[i])
		if err != nil {
			t.Fatal(err)
		}
		p.becomes(s, "active")
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	if won != 1 {
		t.Errorf("%d formats won: %v", won, errs)
	}
}

// TestNewFolderIsTold: a namenode alone makes its namespace by itself, and warns,
// so that who expected an old one learns of it.
func TestNewFolderIsTold(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	dir := filepath.Join(t.TempDir(), "data")
	onIt := func(c *namenode.Config) { c.Data, c.Logger = dir, slog.New(slog.NewTextHandler(&log, nil)) }
	for _, made := range []bool{true, false} {
		log.Reset()
		env.Start(t, onIt).Stop(t)
		told := false
		for line := range strings.Lines(log.String()) {
			told = told || strings.Contains(line, "level=WARN") && strings.Contains(line, "made a new, empty namespace") && strings.Contains(line, "folder="+dir)
		}
		if told != made {
			t.Errorf("told: %t, made: %t\n%s", told, made, log.String())
		}
	}
}
