package namenode

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
	"github.com/leasefs/leasefs/namenode/datadir"
	"github.com/leasefs/leasefs/namenode/namespace"
)

const imageSuffix = ".img"

// image names a checkpoint: the last txid in it, and its file or object.
type image struct {
	txid uint64
	name string
}

// published is the image that a record names.
func published(op namespace.OpImage) image { return image{op.TxID, op.Name} }

// images is where checkpoints of the tree are kept.
type images interface {
	// list returns the images there are, the newest first.
	list(ctx context.Context) ([]image, error)
	// open returns what was written of an image, from its beginning.
	open(ctx context.Context, img image) (io.ReadCloser, error)
	// write makes an image of t, whole and durable or not at all.
	write(ctx context.Context, t *namespace.Tree) (img image, size int64, err error)
	// room refuses to write so many bytes if there is no room for them.
	room(bytes int64) error
	// prune removes all images but those to keep. None may be under way.
	prune(ctx context.Context, keep []image) error
	// removeLeftovers removes what a crash left of images that were being
	// written. None may be under way.
	removeLeftovers()
	// where names the image to people.
	where(img image) string
}

// imageFolder keeps images in a folder.
type imageFolder struct {
	fs      vfs.FS
	dir     string
	log     *slog.Logger
	reserve int64 // bytes kept free; an image leaves half of them
}

func imageName(txid uint64) string { return fmt.Sprintf("%020d%s", txid, imageSuffix) }

func imageTxID(name string) (uint64, bool) {
	base, ok := strings.CutSuffix(name, imageSuffix)
	id, err := strconv.ParseUint(base, 10, 64)
	return id, ok && err == nil
}

func (f *imageFolder) list(context.Context) ([]image, error) {
	names, err := f.fs.List(f.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []image
	for _, n := range names {
		if id, ok := imageTxID(n); ok {
			all = append(all, image{id, n})
		}
	}
	newestFirst(all)
	return all, nil
}

func newestFirst(all []image) {
	slices.SortFunc(all, func(a, b image) int {
		return cmp.Or(cmp.Compare(b.txid, a.txid), cmp.Compare(b.name, a.name))
	})
}

func (f *imageFolder) where(img image) string { return filepath.Join(f.dir, img.name) }

func (f *imageFolder) open(_ context.Context, img image) (io.ReadCloser, error) {
	return f.fs.Open(f.where(img))
}

// readImage loads an image, which must hold everything up to its txid.
func readImage(ctx context.Context, from images, img image) (t *namespace.Tree, err error) {
	err = withImage(ctx, from, img, func(r io.Reader) (last uint64, err error) {
		if t, err = namespace.ReadImage(r); err == nil {
			last, _ = t.Last()
		}
		return last, err
	})
	return t, err
}

// checkImage reads an image without loading it: its checksums show whether it is as
// it was written.
func checkImage(ctx context.Context, from images, img image) error {
	return withImage(ctx, from, img, namespace.CheckImage)
}

// withImage has an image read by fn, which returns its last txid.
func withImage(ctx context.Context, from images, img image, fn func(io.Reader) (uint64, error)) error {
	in, err := from.open(ctx, img)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	last, err := fn(&whileWanted{ctx, in})
	if err == nil && last != img.txid {
		err = fmt.Errorf("holds txid %d, not %d as its name says", last, img.txid)
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

// imageUnknown reports whether an error in reading an image says nothing of it.
func imageUnknown(err error) bool {
	return errors.Is(err, fserror.Unavailable) || errors.Is(err, fserror.Permission)
}

// write makes an image of t, whole and durable or not at all. NoSpace if it
// would go into the half of the reserve that is left for deleting.
func (f *imageFolder) write(_ context.Context, t *namespace.Tree) (img image, size int64, err error) {
	last, _ := t.Last()
	img = image{last, imageName(last)}
	size, err = datadir.WriteAtomic(f.fs, f.where(img), func(w io.Writer) error {
		return t.WriteImage(&sparing{w, f})
	})
	return img, size, err
}

// room refuses to write so many bytes if less than half of the reserve would
// be left: deleting needs it for the journal.
func (f *imageFolder) room(bytes int64) error {
	free, _, err := f.fs.Usage(f.dir)
	if err == nil && free-bytes < f.reserve/2 {
		err = fserror.New(fserror.NoSpace, "", "", "no room for an image (%d MiB free, %d MiB of the reserve are left for deleting); delete files or add space", free>>20, f.reserve>>21)
	}
	return err
}

// sparing writes an image as long as there is room.
type sparing struct {
	w io.Writer
	f *imageFolder
}

func (s *sparing) Write(p []byte) (int, error) {
	if err := s.f.room(int64(len(p))); err != nil {
		return 0, err
	}
	return s.w.Write(p)
}

// removeLeftovers removes what a crash left of images that were being written.
// None may be under way.
func (f *imageFolder) removeLeftovers() {
	names, _ := f.fs.List(f.dir) // no folder, no leftovers
	for _, name := range names {
		if strings.HasSuffix(name, imageSuffix+datadir.TempSuffix) {
			if err := f.fs.Remove(filepath.Join(f.dir, name)); err != nil {
				f.log.Warn("what is left of an unfinished image could not be removed", "file", name, "cause", err)
			}
		}
	}
}

// prune removes all images but the published ones, and what a crash left of one
// that was being written. No image may be under way.
func (f *imageFolder) prune(_ context.Context, keep []image) error {
	names, err := f.fs.List(f.dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		base := strings.TrimSuffix(name, datadir.TempSuffix)
		id, ok := imageTxID(base)
		if ok && (base != name || !slices.Contains(keep, image{id, base})) {
			if err := f.fs.Remove(filepath.Join(f.dir, name)); err != nil {
				return err
			}
		}
	}
	return f.fs.SyncDir(f.dir)
}
