package offline

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/leasefs/leasefs/internal/backup"
	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/vfs"
	"github.com/leasefs/leasefs/namenode/archive"
	"github.com/leasefs/leasefs/namenode/backups"
	"github.com/leasefs/leasefs/namenode/images"
	"github.com/leasefs/leasefs/namenode/namespace"
	"github.com/leasefs/leasefs/namenode/namespace/tables"
)

// Rewinding says which namespace is to be brought back as it was, and where to.
type Rewinding struct {
	Config Config // its store has the archive and the blocks
	ID     string // as Restoring's
	At     archive.At
	Dir    string // what is written: the folder of a backup
	// TreeOnly leaves the blocks out: for a namenode that takes the store over.
	TreeOnly bool
	// Path is what RewindFiles brings back.
	Path     string
	Progress func(bytes int64)
}

// Rewound says what was brought back.
type Rewound struct {
	Restored
	Last uint64 // the newest record that the archive has
}

// Rewind makes a backup of a namespace as it was at a moment of the archive. It
// changes nothing in the store, and namenodes may run. The tree is checked, and each block
// that is copied verified.
//
// NotFound if the moment is not kept, or a block of it is gone; InvalidArgument if it has not
// come yet; Exists if Dir is not empty.
func Rewind(ctx context.Context, r Rewinding) (Rewound, error) {
	from, newest, end, err := then(ctx, r)
	if err != nil {
		return Rewound{}, err
	}
	defer end()
	o := backup.Options{TreeOnly: r.TreeOnly}
	if r.Progress != nil {
		o.Progress = func(so backup.Result) { r.Progress(so.Bytes) }
	}
	wrote, err := backup.Write(ctx, from, r.Dir, o)
	if err != nil {
		return Rewound{}, err
	}
	last, ms := from.Tree.Last()
	return Rewound{Restored{
		ID: from.ID, TxID: last, Time: time.UnixMilli(ms), Files: from.Tree.CountReachable().Files,
		Blocks: int(wrote.Blocks), BlockBytes: wrote.BlockBytes, Copied: int(wrote.Blocks) - wrote.Reused, CopiedBytes: wrote.BlockBytes, //nolint:gosec // a count
	}, newest}, nil
}

// then makes the tree of the moment, checked, with the store that has its blocks, until end is
// called. newest is the newest record that the archive has.
func then(ctx context.Context, r Rewinding) (from source, newest uint64, end func(), err error) {
	w := &restore{Restoring: Restoring{ID: r.ID}, cfg: r.Config, close: func() error { return nil }}
	end = func() { _ = w.close() } // nothing was written
	defer func() {
		if err != nil {
			end()
		}
	}()
	id, err := w.findID(ctx)
	if err == nil {
		err = w.open(ctx, id, false)
	}
	if err != nil {
		return from, 0, end, err
	}
	catalog, err := archive.Open(ctx, w.objects, id, r.Config.Logger)
	if err != nil {
		return from, 0, end, err
	}
	now := r.Config.Clock.Wall()
	if last, _ := catalog.Times(0); r.At.Time.After(now) && r.At.Time.After(time.UnixMilli(last)) {
		return from, 0, end, fserror.New(fserror.InvalidArgument, "", "", "%s has not come yet: it is %s", r.At.Time.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339))
	}
	t, err := catalog.Tree(ctx, r.At)
	if err == nil {
		err = sound(t, id)
	}
	if err != nil {
		return from, 0, end, err
	}
	doubt(r, catalog, t, now)
	last, _ := t.Last()
	return source{backups.Contents{Tree: t, ID: id, By: r.Config.By, Made: now, Store: w.store}}, max(catalog.Newest(), last), end, nil
}

// doubt logs why the tree of a time may not be what was there at that time.
func doubt(r Rewinding, catalog *archive.Catalog, t *namespace.Tree, now time.Time) {
	if r.At.Time.IsZero() {
		return
	}
	last, ms := t.Last()
	newest, next := catalog.Times(last)
	at := func(ms int64) string { return time.UnixMilli(ms).UTC().Format(time.RFC3339) }
	switch log := r.Config.Logger; {
	case last >= catalog.Newest():
		log.Warn("the archive has no later record; if a namenode did not archive between that record and the moment, its changes are missing here", "reason", fserror.ReasonArchive, "last", last, "of", at(ms))
	case newest > now.UnixMilli():
		log.Warn("records of the archive are of a time that has not come yet: the clock of a namenode was ahead. The moment may be before its records, or among them; the number of a record says exactly which one is meant", "reason", fserror.ReasonArchive, "last", last, "of", at(ms), "next", at(next))
	}
}

// newestTree is the newest image that can be read and what the archive has behind it, or if
// there is none, what the archive has. image is the last record of that image, 0: there is
// none. It holds one tree at a time.
func (w *restore) newestTree(ctx context.Context, id [16]byte) (t *namespace.Tree, image uint64, err error) {
	t, noImage := w.newestImage(ctx, id)
	if noImage != nil && (images.Unknown(noImage) || images.Newer(noImage) != nil || ctx.Err() != nil) {
		return nil, 0, noImage
	}
	catalog, err := archive.Open(ctx, w.objects, id, w.cfg.Logger)
	if err != nil {
		return nil, 0, err
	}
	if noImage == nil {
		image, _ = t.Last()
		overruled := catalog.Overruled(image, t.Term())
		if !overruled && catalog.Newest() <= image {
			return t, image, nil
		}
		if overruled {
			if err := w.sameHistory(ctx, catalog, t); err != nil {
				return nil, 0, err
			}
		}
		t = nil
	}
	archived, err := catalog.Tree(ctx, archive.At{})
	if err == nil {
		err = sound(archived, id)
	}
	if err == nil {
		if to, _ := archived.Last(); to >= image {
			return archived, image, nil
		}
	}
	switch {
	case err != nil && (images.Unknown(err) || images.Newer(err) != nil || ctx.Err() != nil):
		return nil, 0, err
	case noImage != nil:
		return nil, 0, noImage
	case err != nil:
		w.cfg.Logger.Error("the archive of the journal cannot be used; what is newer than the newest image is lost", "reason", fserror.ReasonArchive, "cause", err)
	}
	t, err = w.newestImage(ctx, id)
	return t, image, err
}

// sameHistory makes sure that an image is of the history of which the archive has records up
// to there from a higher reign. That reign may have archived what its predecessor left
// behind; or it is of another history, and nobody but an operator can choose.
func (w *restore) sameHistory(ctx context.Context, catalog *archive.Catalog, t *namespace.Tree) error {
	image, _ := t.Last()
	reigns, term, of := t.Reigns(), t.Term(), sha256.New()
	if err := t.WriteImage(of); err != nil {
		return err
	}
	t, err := catalog.Tree(ctx, archive.At{TxID: image}) // takes the place of the other one
	if err == nil {
		other := sha256.New()
		if err = t.WriteImage(other); err == nil && bytes.Equal(of.Sum(nil), other.Sum(nil)) {
			return nil
		}
	}
	if err != nil && (images.Unknown(err) || images.Newer(err) != nil || ctx.Err() != nil) {
		return err
	}
	if errors.Is(err, fserror.NotFound) && catalog.Newest() < image { // there is nothing to compare
		t, newest := catalog.Tree(ctx, archive.At{})
		if newest == nil && sameReign(reigns, t.Reigns()) {
			if last, _ := t.Last(); last == catalog.Newest() {
				return nil // all that is archived is of before the image, in the reign that wrote it
			}
		}
	}
	why := ""
	if err != nil {
		why = fmt.Sprintf(" (nor can it be compared: %v)", err)
	}
	return fserror.New(fserror.Exists, "", "", "the block store has an image of reign %d up to record %d, and from a higher reign an archive of another history%s: two copies of the namespace used the store. "+
		"For the history of the higher reign, bring back its newest moment in a folder, and restore that to an empty store; for the image's, move the objects archive-* and base-* of higher reigns to another place first", term, image, why).Because(fserror.ReasonArchive)
}

// sameReign reports whether two trees are of one reign. Of two such trees one is what became of the other.
func sameReign(a, b []tables.Reign) bool {
	if len(a) == 0 || len(b) == 0 {
		return false
	}
	one, other := a[len(a)-1], b[len(b)-1]
	return one.Term == other.Term && one.Nonce == other.Nonce
}

// putImage puts an image of a tree.
func (w *restore) putImage(ctx context.Context, t *namespace.Tree) error {
	dir, err := os.MkdirTemp("", "leasefs-restore-")
	if err != nil {
		return fserror.Wrap(vfs.KindOf(err), "", "", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	o := images.Objects{Objects: w.objects, Local: images.Folder{FS: vfs.OS(), Dir: dir, Log: w.cfg.Logger}}
	_, _, err = o.Write(ctx, t)
	return err
}

// sound refuses a tree that is not whole.
func sound(t *namespace.Tree, id [16]byte) error {
	if got := t.NamespaceID(); got != id {
		return fserror.New(fserror.Damaged, "", "", "the archive of namespace %x has records of %x", id, got).Because(fserror.ReasonArchive)
	}
	if problems := t.Check(); len(problems) > 0 {
		last, _ := t.Last()
		return fserror.New(fserror.Damaged, "", "", "the tree after record %d is damaged (%d problems): %s", last, len(problems), strings.Join(problems[:min(3, len(problems))], "; ")).Because(fserror.ReasonArchive)
	}
	return nil
}

// source reads a backup out of the block store.
type source struct{ backups.Contents }

// ReadBackup implements backup.Source.
func (s source) ReadBackup(ctx context.Context, treeOnly bool, each func(*backups.Message) (bool, error)) error {
	enough := errors.New("enough")
	s.TreeOnly = treeOnly
	s.Sign = func(k blockstore.Key) (string, map[string]string, error) { return k.String(), nil, nil }
	err := s.Send(ctx, func(m *backups.Message) error {
		more, err := each(m)
		if err == nil && !more {
			err = enough
		}
		return err
	})
	if errors.Is(err, enough) {
		return nil
	}
	return err
}

// ReadBlock implements backup.Source.
func (s source) ReadBlock(ctx context.Context, m *backups.Message, dst []byte) error {
	key, err := blockstore.ParseKey(m.GetUrl())
	if err != nil {
		return err
	}
	r, err := s.Store.Get(ctx, key, 0, -1)
	if errors.Is(err, fserror.NotFound) {
		return fserror.New(fserror.Damaged, "", "", "block %s of %s is gone from the block store: it was deleted for want of room or because the moment is older than what is kept, or it was lost", key, s.fileOf(key)).Because(fserror.ReasonArchive)
	}
	if fserror.KindOf(err) == fserror.InvalidArgument { // no byte is there to begin at
		return fserror.New(fserror.Damaged, "", "", "block %s is empty in the block store, and %d bytes were written", key, len(dst)).Because(fserror.ReasonDamagedBlock)
	}
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }()
	n, err := io.ReadFull(r, dst)
	switch {
	case errors.As(err, new(*fserror.Error)): // it may have an EOF in it, of a connection
		return err
	case errors.Is(err, syscall.EIO):
		return fserror.New(fserror.Damaged, "", "", "block %s cannot be read in the block store: %v", key, err).Because(fserror.ReasonDamagedBlock)
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		return fserror.New(fserror.Damaged, "", "", "block %s has %d bytes in the block store, not %d: %v", key, n, len(dst), err).Because(fserror.ReasonDamagedBlock)
	}
	return here(err)
}

// fileOf is the path of the file that has a block.
func (s source) fileOf(key blockstore.Key) (path string) {
	s.Tree.Referenced(0, func(id namespace.InodeID, b namespace.Block) bool {
		if b.Key == key {
			path, _ = s.Tree.Path(id) // none: it is being freed
		}
		return b.Key != key
	})
	return cmp.Or(path, "a deleted file")
}
