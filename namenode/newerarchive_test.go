package namenode_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/leasefs/leasefs/internal/blockstore"
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
	archiveNext(t, blocks, at, term, &namespace.OpLevel{State: levels.State{Level: 99, Release: "9.0.0"}}, "more")
}

// archiveNext archives, in a later reign, a record behind a moment.
func archiveNext(t *testing.T, blocks string, at archive.At, term uint64, op namespace.Op, more string) {
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
	kind, body := record.Encode(nil, namespace.CallID{}, op)
	if err == nil {
		err = j.Append(journal.Record{TxID: last + 1, Time: now, Type: kind, Body: append(body, more...)})
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

// TestArchiveThatEndsBeforeTheImage: a later reign has archived what its predecessor left behind, but not up to
// the image of that, when all was lost. A restore takes the image. If that reign has begun before the image,
// nobody but an operator can choose.
func TestArchiveThatEndsBeforeTheImage(t *testing.T) {
	t.Parallel()
	for name, another := range map[string]bool{"of one history": false, "of another": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPair(t)
			o := &oneStore{pair: p, blocks: func() string { return "file://" + p.blocks }, keep: time.Hour}
			a := o.run(o.prepare("pair"))
			a.raw.Create("/archived")
			last, _ := a.Tree().Last()
			to := archivedTo(t, p.blocks, last).Newest()
			for i := range 3 {
				a.raw.Create(fmt.Sprint("/in-the-image", i))
			}
			image := a.checkpoint(t)
			archivedTo(t, p.blocks, image)
			term, of := a.Tree().Term(), a.Tree().NamespaceID()
			if err := a.Close(); err != nil {
				t.Fatal(err)
			}
			p.endArchive(to, term+1)
			if another {
				archiveNext(t, p.blocks, archive.At{TxID: to}, term+1, &namespace.OpActivate{Term: term + 1, NamespaceID: of, User: "root", Group: "root", Nonce: [16]byte{1}}, "")
			}
			if c := catalog(t, p.blocks); c.Newest() >= image || !c.Overruled(image, term) {
				t.Fatalf("the archive goes up to %d, and overrules image %d: %t", c.Newest(), image, c.Overruled(image, term))
			}
			o.zk = env.LendZooKeeper(t)
			again := o.prepare("again")
			_, err := o.restore(again, "", "")
			if another {
				if !errors.Is(err, fserror.Exists) || !strings.Contains(err.Error(), "another history") {
					t.Errorf("%v", err)
				}
				return
			}
			if done, err := o.restore(again, "", incarnationOf(t, err)); err != nil || done.TxID != image {
				t.Errorf("%+v, %v, want %d", done, err, image)
			}
		})
	}
}

// endArchive has the archive end with a record, as if a reign of that term had put all there is.
func (p *pair) endArchive(to, term uint64) {
	p.t.Helper()
	ctx := p.t.Context()
	st, _ := storeOf(p.t, p.blocks)
	names, err := blockstore.Names(ctx, st, "archive-")
	for _, name := range names {
		var last, first, was, at uint64
		if _, serr := fmt.Sscanf(name, "archive-%d-%d-%x-%d", &last, &first, &was, &at); serr != nil {
			p.t.Fatal(name, serr)
		}
		object, gerr := blockstore.GetBytes(ctx, st, name, 1<<20)
		if err = errors.Join(err, gerr, st.DeleteNamed(ctx, name)); err != nil {
			break
		}
		if last <= to { // see Segment: the term, and the checksum of the header
			binary.LittleEndian.PutUint64(object[40:], term)
			binary.LittleEndian.PutUint32(object[72:], blockstore.CRC(object[:72]))
			err = blockstore.PutBytes(ctx, st, archive.Segment{First: first, Last: last, Term: term, Time: int64(at)}.Name(), object) //nolint:gosec // of our time
		}
	}
	if err != nil {
		p.t.Fatal(err)
	}
}
