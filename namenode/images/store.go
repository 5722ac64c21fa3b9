// Package images keeps the images of a namespace: checkpoints of the tree, each with
// all that happened up to one txid.
//
// A [Store] is where they are: the [Folder] of a namenode alone, or the [Objects] in the
// block store that several share. A [Keeper] loads the newest one that can be used and
// the journal behind it, writes another when one is due, and then removes what only
// older images need: the two newest stay, and the journal from the older one on.
//
// A record publishes each image. While one of the two newest is known to be damaged or
// gone, nothing older is removed.
package images

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/vfs"
	"github.com/leasefs/leasefs/namenode/namespace"
	"github.com/leasefs/leasefs/namenode/namespace/codec"
)

// Image names a checkpoint: the last txid in it, and its file or object.
type Image struct {
	TxID uint64
	Name string
}

// published is the image that a record names.
func published(op namespace.OpImage) Image { return Image{op.TxID, op.Name} }

// Store is where images are kept.
type Store interface {
	// List returns the images there are, the newest first.
	List(ctx context.Context) ([]Image, error)
	// Where names the image to people.
	Where(img Image) string

	// open returns what was written of an image, from its beginning.
	open(ctx context.Context, img Image) (io.ReadCloser, error)
	// write makes an image of t, whole and durable or not at all.
	write(ctx context.Context, t *namespace.Tree) (img Image, size int64, err error)
	// room refuses to write so many bytes if there is no room for them.
	room(bytes int64) error
	// prune removes all images but those to keep. None may be under way.
	prune(ctx context.Context, keep []Image) error
	// removeLeftovers removes what a crash left of images that were being
	// written. None may be under way.
	removeLeftovers()
}

func newestFirst(all []Image) {
	slices.SortFunc(all, func(a, b Image) int {
		return cmp.Or(cmp.Compare(b.TxID, a.TxID), cmp.Compare(b.Name, a.Name))
	})
}

// Read loads an image, which must hold everything up to its txid.
func Read(ctx context.Context, from Store, img Image) (t *namespace.Tree, err error) {
	defer holdCollector()()
	err = read(ctx, from, img, func(r io.Reader) (last uint64, err error) {
		if t, err = namespace.ReadImage(r); err == nil {
			last, _ = t.Last()
		}
		return last, err
	})
	return t, err
}

// check reads an image without loading it: its checksums show whether it is as it was
// written.
func check(ctx context.Context, from Store, img Image) error {
	return read(ctx, from, img, namespace.CheckImage)
}

// read has an image read by fn, which returns its last txid.
func read(ctx context.Context, from Store, img Image, fn func(io.Reader) (uint64, error)) error {
	in, err := from.open(ctx, img)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	last, err := fn(&whileWanted{ctx, in})
	if err == nil && last != img.TxID {
		err = fmt.Errorf("holds txid %d, not %d as its name says", last, img.TxID)
	}
	return err
}

// whileWanted is a reader that ends with its context.
type whileWanted struct {
	ctx context.Context
	r   io.Reader
}

func (w *whileWanted) Read(p []byte) (int, error) {
	if err := context.Cause(w.ctx); err != nil {
		return 0, err
	}
	return w.r.Read(p)
}

// Unknown reports whether an error in reading an image says nothing of the image.
func Unknown(err error) bool {
	return errors.Is(err, fserror.Unavailable) || errors.Is(err, fserror.Permission)
}

// Newer is the error about an image or a record of a newer release, whose level this program does
// not know; nil if err is another.
func Newer(err error) error {
	var image *codec.ImageError
	switch {
	case fserror.ReasonOf(err) == fserror.ReasonNewer:
		return err
	case errors.As(err, &image) && image.Newer:
		return fserror.Wrap(fserror.Unsupported, "", "", err).Because(fserror.ReasonNewer)
	}
	return nil
}

// Folder keeps images in a folder.
type Folder struct {
	FS      vfs.FS
	Dir     string
	Log     *slog.Logger
	Reserve int64 // bytes kept free; an image leaves half of them
}

const suffix = ".img"

// FileName is the name of an image in a folder.
func FileName(txid uint64) string { return fmt.Sprintf("%020d%s", txid, suffix) }

func fileTxID(name string) (uint64, bool) {
	base, ok := strings.CutSuffix(name, suffix)
	id, err := strconv.ParseUint(base, 10, 64)
	return id, ok && err == nil
}

// List returns the images in the folder, the newest first.
func (f *Folder) List(context.Context) ([]Image, error) {
	names, err := f.FS.List(f.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []Image
	for _, n := range names {
		if id, ok := fileTxID(n); ok {
			all = append(all, Image{id, n})
		}
	}
	newestFirst(all)
	return all, nil
}

// Where is the path of an image.
func (f *Folder) Where(img Image) string { return filepath.Join(f.Dir, img.Name) }

func (f *Folder) open(_ context.Context, img Image) (io.ReadCloser, error) {
	return f.FS.Open(f.Where(img))
}

// write makes an image of t, whole and durable or not at all. NoSpace if it
// would go into the half of the reserve that is left for deleting.
func (f *Folder) write(_ context.Context, t *namespace.Tree) (img Image, size int64, err error) {
	last, _ := t.Last()
	img = Image{last, FileName(last)}
	size, err = vfs.WriteAtomic(f.FS, f.Where(img), func(w io.Writer) error {
		return t.WriteImage(&sparing{w, f})
	})
	return img, size, err
}

// room refuses to write so many bytes if less than half of the reserve would
// be left: deleting needs it for the journal.
func (f *Folder) room(bytes int64) error {
	free, _, err := f.FS.Usage(f.Dir)
	if err == nil && free-bytes < f.Reserve/2 {
		err = fserror.New(fserror.NoSpace, "", "", "no room for an image (%d MiB free, %d MiB of the reserve are left for deleting); delete files or add space", free>>20, f.Reserve>>21)
	}
	return err
}

// sparing writes an image as long as there is room.
type sparing struct {
	w io.Writer
	f *Folder
}

func (s *sparing) Write(p []byte) (int, error) {
	if err := s.f.room(int64(len(p))); err != nil {
		return 0, err
	}
	return s.w.Write(p)
}

func (f *Folder) removeLeftovers() {
	names, _ := f.FS.List(f.Dir) // no folder, no leftovers
	for _, name := range names {
		if strings.HasSuffix(name, suffix+vfs.TempSuffix) {
			if err := f.FS.Remove(filepath.Join(f.Dir, name)); err != nil {
				f.Log.Warn("what is left of an unfinished image could not be removed", "file", name, "cause", err)
			}
		}
	}
}

// prune removes all images but those to keep, and what a crash left of one that was
// being written.
func (f *Folder) prune(_ context.Context, keep []Image) error {
	names, err := f.FS.List(f.Dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		base := strings.TrimSuffix(name, vfs.TempSuffix)
		id, ok := fileTxID(base)
		if ok && (base != name || !slices.Contains(keep, Image{id, base})) {
			if err := f.FS.Remove(filepath.Join(f.Dir, name)); err != nil {
				return err
			}
		}
	}
	return f.FS.SyncDir(f.Dir)
}
