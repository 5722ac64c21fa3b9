package namenode_test

import (
	"encoding/binary"
	"encoding/json"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/client/upgrade"
	"github.com/leasefs/leasefs/internal/backup"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/zkconn"
	"github.com/leasefs/leasefs/namenode"
	"github.com/leasefs/leasefs/namenode/ensemble"
	"github.com/leasefs/leasefs/namenode/namespace/levels"
	"github.com/leasefs/leasefs/test/env"
)

// formatOf changes the node format of a namespace, unless change is nil, and returns what is in it.
func (p *pair) formatOf(name string, change func(*ensemble.Format)) (f ensemble.Format) {
	p.t.Helper()
	path := "/leasefs/" + name + "/format"
	look := func() error {
		sess, err := zkconn.Dial(p.t.Context(), zkconn.Config{Servers: p.zk.Addrs(), SessionTimeout: calmSession})
		if err != nil {
			return err
		}
		defer func() { _ = sess.Close() }()
		raw, _, err := sess.Get(p.t.Context(), path)
		if err == nil {
			err = json.Unmarshal(raw, &f)
		}
		if err == nil && change != nil {
			change(&f)
			if raw, err = json.Marshal(f); err == nil {
				_, err = sess.Set(p.t.Context(), path, raw, -1)
			}
		}
		return err
	}
	err := look()
	for range 10 { // a machine that stalls loses connections, and sessions
		if err != nil && zkconn.Unknown(err) {
			err = look()
		}
	}
	if err != nil {
		p.t.Fatal(err)
	}
	return f
}

// lookLevel is at which level the namespace is.
func lookLevel(t *testing.T, f *client.FS) uint64 {
	t.Helper()
	s, err := upgrade.Look(t.Context(), f)
	if err != nil {
		t.Fatal(err)
	}
	return s.Level
}

// TestLevelOfSeveral: a new namespace has the level of its format; raised, the format says so, also
// if whoever raised it died before; a backup is of the level of its moment, and so is what it is
// restored to, which can be raised.
func TestLevelOfSeveral(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	cfg, _ := p.config()
	p.format(cfg)
	if f := p.formatOf("pair", nil); f.At() != (levels.State{Level: levels.Newest(), Release: "dev"}) {
		t.Fatalf("a new namespace has the format %+v", f)
	}
	p.formatOf("pair", func(f *ensemble.Format) { f.Format = levels.First }) // as the first release makes it
	a := p.active(cfg)
	f := p.client(cfg.Listen)
	if level := lookLevel(t, f); level != levels.First {
		t.Fatalf("it is at level %d", level)
	}
	if err := f.WriteFile(t.Context(), "/f", []byte("text")); err != nil {
		t.Fatal(err)
	}
	saved := filepath.Join(t.TempDir(), "backup")
	if _, err := backup.Write(t.Context(), f.Admin(), saved, backup.Options{}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		s, err := upgrade.Finish(t.Context(), f)
		if err != nil || s.Level != levels.Newest() || s.Release != "dev" || s.Brings != "" {
			t.Fatalf("%+v, %v", s, err)
		}
	}
	if f := p.formatOf("pair", nil); f.At() != (levels.State{Level: levels.Newest(), Release: "dev"}) {
		t.Errorf("raised, the format is %+v", f)
	}
	p.formatOf("pair", func(f *ensemble.Format) { f.Format = levels.First }) // as if it had died just before
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	a = p.active(cfg)
	p.eventually("the next reign has the format say so", func() bool {
		f := p.formatOf("pair", nil)
		return f.At().Level == levels.Newest()
	})
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	p.formatOf("pair", func(f *ensemble.Format) { f.Format, f.Release = 99, "9.0.0" })
	notServed(t, cfg, fserror.Unsupported, "namespace pair is at feature level 99", "leasefs 9.0.0 raised it", fserror.ReasonNewer)

	rcfg, _ := p.config()
	rcfg.HA.Name, rcfg.Blocks = "restored", "file://"+filepath.Join(p.blocks, "restored")
	if done, err := env.Restore(t.Context(), rcfg, saved); err != nil || done.Files != 1 {
		t.Fatalf("%+v, %v", done, err)
	}
	if f := p.formatOf("restored", nil); f.At().Level != levels.First {
		t.Errorf("restored, the format is %+v", f)
	}
	b := p.active(rcfg)
	f = p.client(rcfg.Listen)
	if level := lookLevel(t, f); level != levels.First {
		t.Errorf("restored, it is at level %d", level)
	}
	if s, err := upgrade.Finish(t.Context(), f); err != nil || s.Level != levels.Newest() {
		t.Errorf("%+v, %v", s, err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

// TestImageOfANewLevel: an image of the new level is written soon, also if whoever raised it ended at once.
func TestImageOfANewLevel(t *testing.T) {
	t.Parallel()
	for name, standby := range map[string]bool{"restarted": false, "a standby takes over": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPair(t)
			cfg, _ := p.config()
			p.format(cfg)
			p.formatOf("pair", func(f *ensemble.Format) { f.Format = levels.First })
			a := p.active(cfg)
			publish(t, env.RawAt(t, cfg.Listen, "writer"), "f", 1)
			f := p.client(cfg.Listen)
			next := cfg
			var b *namenode.Server
			if standby {
				next, _ = p.config()
				b = p.start(next)
				p.becomes(b, "standby")
			}
			if s, err := upgrade.Finish(t.Context(), f); err != nil || s.Level != levels.Newest() {
				t.Fatalf("%+v, %v", s, err)
			}
			if err := a.Close(); err != nil {
				t.Fatal(err)
			}
			if !standby {
				b = p.active(next)
			}
			p.eventually("an image has the new level", func() bool {
				all := p.images()
				raw, err := os.ReadFile(all[len(all)-1])
				return err == nil && binary.LittleEndian.Uint32(raw[8:]) == levels.At(levels.Newest()).Image
			})
			if err := b.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestLevelIsNotRaised: by nobody but superusers, to no level that there is not, and not while a
// namenode is missing.
func TestLevelIsNotRaised(t *testing.T) {
	t.Parallel()
	n := env.Start(t)
	if level := lookLevel(t, n.Client(t)); level != levels.Newest() {
		t.Errorf("a new folder is at level %d", level)
	}
	_, err := upgrade.Finish(t.Context(), n.Client(t, func(c *client.Config) { c.User = "ann" }))
	if fserror.KindOf(err) != fserror.Permission {
		t.Errorf("somebody: %v", err)
	}
	const nobody = "127.0.0.1:1"
	f := n.Client(t, func(c *client.Config) { c.Namenodes = append(c.Namenodes, nobody) })
	_, err = upgrade.Finish(t.Context(), f)
	if fserror.KindOf(err) != fserror.Unavailable || fserror.ReasonOf(err) != fserror.ReasonUpgrade || !strings.Contains(err.Error(), "namenode "+nobody+" does not answer, and may be of an older release") {
		t.Errorf("one that is missing: %v", err)
	}
	if s, err := upgrade.Finish(t.Context(), f, nobody); err != nil || s.Level != levels.Newest() {
		t.Errorf("without it: %+v, %v", s, err)
	}
}

// newerImage makes an image one of a newer release, as its header says.
func newerImage(t *testing.T, path string) {
	t.Helper()
	image, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	binary.LittleEndian.PutUint32(image[8:], 99)
	binary.LittleEndian.PutUint32(image[12:], crc32.Checksum(image[:12], crc32.MakeTable(crc32.Castagnoli)))
	if err := os.WriteFile(path, image, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestNewerImages: images of a newer release are not taken for damaged ones: a restore from the
// store takes no older image instead, and a start that needs one says which release to install.
func TestNewerImages(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	cfg, _ := p.config()
	a := p.active(cfg)
	f := p.client(cfg.Listen)
	for _, path := range []string{"/a", "/b", "/c"} { // what is before the older image is purged
		if err := f.WriteFile(t.Context(), path, nil); err != nil {
			t.Fatal(err)
		}
		if _, err := f.Admin().Checkpoint(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	both := p.images()
	slices.Sort(both)
	const says = "it has format 99, and the newest that this release of leasefs knows is 13: leasefs dev can read it; install that release or a newer one"
	newerImage(t, both[len(both)-1])
	old := p.zk
	p.zk = env.LendZooKeeper(t)
	lost, _ := p.config()
	if _, err := env.Restore(t.Context(), lost, ""); fserror.ReasonOf(err) != fserror.ReasonNewer || !strings.Contains(err.Error(), says) {
		t.Errorf("a restore: %v", err)
	}
	p.zk = old
	for _, path := range both[:len(both)-1] {
		newerImage(t, path)
	}
	notServed(t, cfg, fserror.Unsupported, says, fserror.ReasonNewer)
}
