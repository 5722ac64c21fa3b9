package namenode_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/journal"
	journallocal "github.com/leasefs/leasefs/internal/journal/local"
	"github.com/leasefs/leasefs/internal/vfs"
	"github.com/leasefs/leasefs/namenode/archive"
	"github.com/leasefs/leasefs/namenode/images"
	"github.com/leasefs/leasefs/namenode/namespace"
	"github.com/leasefs/leasefs/namenode/namespace/levels"
	"github.com/leasefs/leasefs/namenode/record"
	"github.com/leasefs/leasefs/test/env"
)

// raise archives, as a newer release does in a later reign, that the level was raised behind a
// moment.
func raise(t *testing.T, blocks string, at archive.At, term uint64) {
	t.Helper()
	tree, err := catalog(t, blocks).Tree(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	last, now := tree.Last()
	st, id := storeOf(t, blocks)
	defer func() { _ = st.Close() }()
	j, err := journallocal.Open(journallocal.Config{Dir: t.TempDir(), First: last + 1, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = j.Close() }()
	if _, err = j.Replay(t.Context(), last+1, func(journal.Record) error { return nil }); err == nil {
		err = j.BeginTerm(t.Context(), term)
	}
	kind, body := record.Encode(nil, namespace.CallID{}, &namespace.OpLevel{State: levels.State{Level: 99, Release: "9.0.0"}})
	if err == nil {
		err = j.Append(journal.Record{TxID: last + 1, Time: now, Type: kind, Body: append(body, "more"...)})
	}
	if err == nil {
		err = j.WaitDurable(t.Context(), last+1)
	}
	if err != nil {
		t.Fatal(err)
	}
	a := archive.New(archive.Config{
		Clock: clock.System{}, Log: slog.New(slog.DiscardHandler), Objects: st, ID: id, Keep: func() time.Duration { return time.Hour },
		Local:    images.Folder{FS: vfs.OS(), Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)},
		Snapshot: func(context.Context) (*namespace.Tree, error) { return tree, nil }, Now: func() int64 { return now },
		Check: func(context.Context) error { return nil }, Term: func() (uint64, error) { return term, nil },
		Remove: func(ctx context.Context, remove func(context.Context) error) error { return remove(ctx) },
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { _ = a.Run(ctx, j); close(ended) }()
	env.Eventually(t, "it is archived", func() bool { return a.Stats().TxID > last })
	cancel()
	<-ended
}

// TestRestoreMeetsANewerArchive: a restore from a store whose archive a newer release has continued
// says which to install, and neither takes an older moment nor calls it another history.
func TestRestoreMeetsANewerArchive(t *testing.T) {
	t.Parallel()
	for name, behindTheImage := range map[string]bool{"behind the image": true, "in place of the image's records": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPair(t)
			o := &oneStore{pair: p, blocks: func() string { return "file://" + p.blocks }, keep: time.Hour}
			a := o.run(o.prepare("pair"))
			if err := a.library(o.t).WriteFile(t.Context(), "/before", make([]byte, fileSize)); err != nil {
				t.Fatal(err)
			}
			image := a.checkpoint(t)
			last, _ := a.Tree().Last()
			c := archivedTo(t, p.blocks, last)
			term := a.Tree().Term()
			if err := a.Close(); err != nil {
				t.Fatal(err)
			}
			at := archive.At{TxID: image - 1}
			if behindTheImage {
				at.TxID = c.Newest()
			}
			raise(t, p.blocks, at, term+1)
			if c := catalog(t, p.blocks); c.Overruled(image, term) == behindTheImage {
				t.Fatalf("the archive overrules image %d: %t", image, !behindTheImage)
			}
			o.zk = env.LendZooKeeper(t)
			done, err := o.restore(o.prepare("again"), "", "")
			if fserror.ReasonOf(err) != fserror.ReasonNewer || !strings.Contains(err.Error(), "leasefs 9.0.0 raised it; install that release") {
				t.Errorf("%+v, %v", done, err)
			}
		})
	}
}
