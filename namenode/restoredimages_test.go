package namenode_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode"
	"github.com/leasefs/leasefs/test/env"
)

// restored is a namespace with a file /f1, whose ZooKeeper was lost, and that a restore from its store has
// brought back; and the configuration of a namenode that has yet to be started.
func (p *pair) restored() namenode.Config {
	p.t.Helper()
	cfg, _ := p.config()
	a := p.active(cfg)
	publish(p.t, env.RawAt(p.t, cfg.Listen, "writer"), "f", 2)
	if err := a.Close(); err != nil {
		p.t.Fatal(err)
	}
	p.zk = env.LendZooKeeper(p.t)
	fresh, _ := p.config()
	restore := fresh
	_, err := env.Restore(p.t.Context(), restore, "")
	restore.TakeOver = incarnationOf(p.t, err)
	if done, err := env.Restore(p.t.Context(), restore, ""); err != nil || done.Files == 0 {
		p.t.Fatalf("%+v, %v", done, err)
	}
	return fresh
}

// damage has bits changed in some images, until they are put back.
func (p *pair) damage(paths ...string) (putBack func()) {
	p.t.Helper()
	var undo []func()
	for _, path := range paths {
		raw, err := os.ReadFile(path)
		if err != nil {
			p.t.Fatal(err)
		}
		put := func() {
			if err := os.WriteFile(path, raw, 0o600); err != nil {
				p.t.Fatal(err)
			}
		}
		raw[len(raw)/2] ^= 1
		put()
		raw[len(raw)/2] ^= 1
		undo = append(undo, put)
	}
	return func() {
		for _, put := range undo {
			put()
		}
	}
}

// TestFirstStartAfterARestore: the first start continues the image that was brought back. Without it, none
// makes an empty namespace, nor one of an older image.
func TestFirstStartAfterARestore(t *testing.T) {
	t.Parallel()
	for name, which := range map[string]func(all []string) []string{
		"all are damaged": func(all []string) []string { return all },
		"the one is":      func(all []string) []string { return all[len(all)-1:] },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPair(t)
			cfg := p.restored()
			all := p.images()
			if len(all) < 2 {
				t.Fatalf("images %v", all)
			}
			putBack := p.damage(which(all)...)
			for range 2 { // also when the journal has been made
				notServed(t, cfg, fserror.Damaged, "no usable image", filepath.Base(all[len(all)-1]), fserror.ReasonRestore)
			}
			putBack()
			b := p.active(cfg)
			r := env.RawAt(t, cfg.Listen, "reader")
			r.File("/f1")
			r.Create("/new")
			if err := b.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestImagesAfterARestore: the image that was brought back, which the journal continues, stays until there
// are two others. One that the journal does not continue does not count.
func TestImagesAfterARestore(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	cfg := p.restored()
	before := p.images()
	back := before[len(before)-1]
	a := p.active(cfg)
	publish(t, env.RawAt(t, cfg.Listen, "writer"), "g", 1)
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	all := p.images()
	putBack := p.damage(all[len(all)-1])
	b := p.active(cfg)
	r := env.RawAt(t, cfg.Listen, "reader")
	r.File("/f1")
	r.File("/g0")
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	putBack()
	c := p.active(cfg)
	publish(t, env.RawAt(t, cfg.Listen, "writer"), "h", 2)
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if all := p.images(); len(all) != 2 || strings.Contains(strings.Join(all, " "), back) {
		t.Errorf("images %v, before %v", all, before)
	}
}
