package images

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/vfs"
	"github.com/leasefs/leasefs/namenode/namespace"
)

// Objects keeps images in the block store, where every namenode finds them.
//
// No two are ever given one name. So a namenode that was deposed meanwhile can
// neither put something in the place of its successor's image, nor delete it.
type Objects struct {
	Objects blockstore.Objects
	// Local is where one is written first: the store wants to know length and checksum
	// before the first byte. Who only reads images, or puts files, needs none.
	Local Folder
	// Prefix is what names begin with; empty: images.Prefix.
	Prefix string
	// Term is the term that names bear; 0: that of the tree.
	Term uint64
}

// Prefix is what the names of images in a block store begin with.
const Prefix = "image-"

// objectName is a new name for an image: its txid, the reign that wrote it, and
// some chance, for what one reign writes twice, or two histories write alike.
func objectName(prefix string, txid, term uint64) string {
	var chance [4]byte
	_, _ = rand.Read(chance[:]) // it never fails
	return fmt.Sprintf("%s%020d-%016x-%x", prefix, txid, term, chance)
}

func (o *Objects) prefix() string { return cmp.Or(o.Prefix, Prefix) }

// image is the image of a name.
func (o *Objects) image(name string) (Image, bool) {
	digits, ok := strings.CutPrefix(name, o.prefix())
	digits, _, _ = strings.Cut(digits, "-")
	txid, err := strconv.ParseUint(digits, 10, 64)
	return Image{txid, name}, ok && err == nil
}

// TermOf is the reign that wrote the image of a name; 0 if the name does not tell.
func TermOf(name string) uint64 {
	parts := strings.Split(name, "-")
	if len(parts) != 4 { // of another program
		return 0
	}
	term, _ := strconv.ParseUint(parts[2], 16, 64) // 0 if it is none
	return term
}

// Where names an image to people.
func (o *Objects) Where(img Image) string { return img.Name + " in the block store" }

// List returns the images in the store, the newest first.
func (o *Objects) List(ctx context.Context) ([]Image, error) {
	names, err := blockstore.Names(ctx, o.Objects, o.prefix())
	if err != nil {
		return nil, err
	}
	var all []Image
	for _, name := range names {
		if img, ok := o.image(name); ok {
			all = append(all, img)
		}
	}
	newestFirst(all)
	return all, nil
}

func (o *Objects) open(ctx context.Context, img Image) (io.ReadCloser, error) {
	return o.Objects.GetNamed(ctx, img.Name, 0, -1)
}

func (o *Objects) room(bytes int64) error { return o.Local.room(bytes) }

// Write puts an image of t, which it writes to Local first.
func (o *Objects) Write(ctx context.Context, t *namespace.Tree) (img Image, size int64, err error) {
	if err := o.Local.FS.MkdirAll(o.Local.Dir); err != nil {
		return img, 0, err
	}
	o.removeLeftovers()
	return o.write(ctx, t)
}

func (o *Objects) write(ctx context.Context, t *namespace.Tree) (img Image, size int64, err error) {
	staged, _, err := o.Local.write(ctx, t)
	if err != nil {
		return img, 0, err
	}
	file := o.Local.Where(staged)
	defer func() { _ = o.Local.FS.Remove(file) }() // a leftover is removed at the next start
	return o.Put(ctx, o.Local.FS, file, staged.TxID, cmp.Or(o.Term, t.Term()))
}

// Put puts a file as an image of txid in the reign of a term.
func (o *Objects) Put(ctx context.Context, fsys vfs.FS, file string, txid, term uint64) (img Image, size int64, err error) {
	f, err := fsys.Open(file)
	if err != nil {
		return img, 0, err
	}
	defer func() { _ = f.Close() }()
	crc, size, err := blockstore.SumCRC(f)
	if err != nil {
		return img, 0, err
	}
	img = Image{txid, objectName(o.prefix(), txid, term)}
	return img, size, o.Objects.PutNamed(ctx, img.Name, f, size, crc)
}

func (o *Objects) prune(ctx context.Context, keep []Image) error {
	all, err := o.List(ctx)
	if err != nil {
		return err
	}
	newest := slices.MaxFunc(keep, func(a, b Image) int { return cmp.Compare(a.TxID, b.TxID) })
	var gone []string
	for _, img := range all {
		// One that is newer may be a successor's, who will know of it.
		if !slices.Contains(keep, img) && img.TxID <= newest.TxID {
			gone = append(gone, img.Name)
		}
	}
	return o.Objects.DeleteNamed(ctx, gone...)
}

func (o *Objects) removeLeftovers() {
	o.Local.removeLeftovers()
	all, _ := o.Local.List(context.Background()) // a folder: no network
	for _, img := range all {
		if err := o.Local.FS.Remove(o.Local.Where(img)); err != nil {
			o.Local.Log.Warn("an image that was on its way to the block store could not be removed", "file", o.Local.Where(img), "cause", err)
		}
	}
}
