package namenode_test

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/leasefs/leasefs/test/env"
)

// TestBlocksOfImages: without an archive, the blocks of the newest image are there when ZooKeeper is lost, also
// those of files that were rewritten, or whose last block another has taken the place of, since that image; and
// also if another namenode became active meanwhile, a standby or one that starts.
func TestBlocksOfImages(t *testing.T) {
	for name, failover := range map[string]string{"one reign": "", "a standby takes over": "standby", "a start": "start"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			blocksOfImages(t, failover)
		})
	}
}

func blocksOfImages(t *testing.T, failover string) {
	t.Helper()
	p := newPair(t)
	o := &oneStore{pair: p, blocks: func() string { return "file://" + p.blocks }}
	a := o.run(o.prepare("pair"))
	lib := a.library(t)
	ctx := t.Context()
	old := bytes.Repeat([]byte("old"), fileSize/3)
	line := bytes.Repeat([]byte("a line of a log\n"), 2500) // 40 KB: a tail that is sealed
	for name, content := range map[string][]byte{"/quiet": old, "/rewritten": old, "/appended": line} {
		if err := lib.WriteFile(ctx, name, content); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.SealAll(ctx); err != nil {
		t.Fatal(err)
	}
	var b *rival
	if failover == "standby" {
		b = o.prepare("pair")
		b.Server = o.start(b.cfg)
		o.becomes(b.Server, "standby")
	}
	a.checkpoint(t)
	if failover != "" {
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		if b == nil {
			b = o.prepare("pair")
			b.Server = o.start(b.cfg)
		}
		o.becomes(b.Server, "active")
		b.raw = env.RawAt(t, b.cfg.Listen, "tester")
		a = b
		lib = a.library(t)
	}
	w, err := lib.Append(ctx, "/appended")
	if err != nil {
		t.Fatal(err)
	}
	_, err = w.Write(line[:20_000])
	err = errors.Join(err, w.Close(), a.SealAll(ctx), lib.Remove(ctx, "/rewritten"), lib.WriteFile(ctx, "/rewritten", bytes.ToUpper(old)))
	if err != nil {
		t.Fatal(err)
	}
	if err := o.gc(a); err != nil { // when each URL is over
		t.Fatal(err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	o.zk = env.LendZooKeeper(t)
	again := o.prepare("again")
	_, err = o.restore(again, "", "")
	if _, err := o.restore(again, "", incarnationOf(t, err)); err != nil {
		t.Fatal(err)
	}
	o.run(again)
	lib = again.library(t)
	for name, content := range map[string][]byte{"/quiet": old, "/rewritten": old, "/appended": line} {
		if got, err := lib.ReadFile(ctx, name); !slices.Equal(got, content) {
			t.Errorf("%s is not as the newest image has it: %v", name, err)
		}
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
}
