package namenode

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/vfs"
	"github.com/leasefs/leasefs/namenode/namespace"
)

// imageObjects keeps images in the block store, where every namenode finds
// them. One is written to the own data folder first: the store wants to know
// length and checksum before the first byte.
//
// No two are ever given one name. So a namenode that was deposed meanwhile can
// neither put something in the place of its successor's image, nor delete it.
type imageObjects struct {
	objects blockstore.Objects
	local   imageFolder
}

const imagePrefix = "image-"

// imageObject is a new name for an image: its txid, the reign that wrote it, and
// some chance, for what one reign writes twice, or two histories write alike.
func imageObject(txid, term uint64) string {
	var chance [4]byte
	_, _ = rand.Read(chance[:]) // it never fails
	return fmt.Sprintf("%s%020d-%016x-%x", imagePrefix, txid, term, chance)
}

// imageOf is the image of a name.
func imageOf(name string) (image, bool) {
	digits, ok := strings.CutPrefix(name, imagePrefix)
	digits, _, _ = strings.Cut(digits, "-")
	txid, err := strconv.ParseUint(digits, 10, 64)
	return image{txid, name}, ok && err == nil
}

func (o *imageObjects) where(img image) string { return img.name + " in the block store" }

func (o *imageObjects) list(ctx context.Context) ([]image, error) {
	var all []image
	after := ""
	for {
		const page = 1000
		infos, err := o.objects.ListNamed(ctx, imagePrefix, after, page)
		if err != nil {
			return nil, err
		}
		for _, info := range infos {
			after = info.Name
			if img, ok := imageOf(info.Name); ok {
				all = append(all, img)
			}
		}
		if len(infos) < page {
			break
		}
	}
	newestFirst(all)
	return all, nil
}

func (o *imageObjects) open(ctx context.Context, img image) (io.ReadCloser, error) {
	return o.objects.GetNamed(ctx, img.name, 0, -1)
}

func (o *imageObjects) room(bytes int64) error { return o.local.room(bytes) }

func (o *imageObjects) write(ctx context.Context, t *namespace.Tree) (image, int64, error) {
	staged, size, err := o.local.write(ctx, t)
	if err != nil {
		return image{}, 0, err
	}
	file := o.local.where(staged)
	defer func() { _ = o.local.fs.Remove(file) }() // a leftover is removed at the next start
	img := image{staged.txid, imageObject(staged.txid, t.Term())}
	return img, size, putFile(ctx, o.objects, o.local.fs, file, size, img.name)
}

// putFile puts a file of size bytes as a named object.
func putFile(ctx context.Context, objects blockstore.Objects, fsys vfs.FS, file string, size int64, name string) error {
	f, err := fsys.Open(file)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	sum := crc32.New(crc32.MakeTable(crc32.Castagnoli))
	if _, err := io.Copy(sum, f); err != nil {
		return err
	}
	return objects.PutNamed(ctx, name, io.NewSectionReader(f, 0, size), size, sum.Sum32())
}

func (o *imageObjects) prune(ctx context.Context, keep []image) error {
	all, err := o.list(ctx)
	if err != nil {
		return err
	}
	newest := slices.MaxFunc(keep, func(a, b image) int { return cmp.Compare(a.txid, b.txid) })
	var gone []string
	for _, img := range all {
		// One that is newer may be a successor's, who will know of it.
		if !slices.Contains(keep, img) && img.txid <= newest.txid {
			gone = append(gone, img.name)
		}
	}
	return o.objects.DeleteNamed(ctx, gone...)
}

func (o *imageObjects) removeLeftovers() {
	o.local.removeLeftovers()
	all, _ := o.local.list(context.Background()) // a folder: no network
	for _, img := range all {
		if err := o.local.fs.Remove(o.local.where(img)); err != nil {
			o.local.log.Warn("an image that was on its way to the block store could not be removed", "file", o.local.where(img), "cause", err)
		}
	}
}

var (
	_ images = (*imageFolder)(nil)
	_ images = (*imageObjects)(nil)
)
