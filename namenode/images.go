package namenode

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/leasefs/leasefs/blockstore"
	"github.com/leasefs/leasefs/fserror"
	"github.com/leasefs/leasefs/namenode/namespace"
)

// imageObjects keeps images in the block store, where every namenode finds
// them. One is written to the own data folder first: the store wants to know
// length and checksum before the first byte.
type imageObjects struct {
	objects blockstore.Objects
	local   imageFolder
}

const imagePrefix = "image-"

func imageObject(txid uint64) string { return fmt.Sprintf("%s%020d", imagePrefix, txid) }

func (o *imageObjects) where(txid uint64) string { return imageObject(txid) + " in the block store" }

func (o *imageObjects) list(ctx context.Context) ([]uint64, error) {
	var ids []uint64
	after := ""
	for {
		const page = 1000
		infos, err := o.objects.ListNamed(ctx, imagePrefix, after, page)
		if err != nil {
			return nil, err
		}
		for _, info := range infos {
			after = info.Name
			if id, err := strconv.ParseUint(strings.TrimPrefix(info.Name, imagePrefix), 10, 64); err == nil {
				ids = append(ids, id)
			}
		}
		if len(infos) < page {
			break
		}
	}
	slices.Sort(ids)
	slices.Reverse(ids)
	return ids, nil
}

func (o *imageObjects) read(ctx context.Context, txid uint64) (*namespace.Tree, error) {
	r, err := o.objects.GetNamed(ctx, imageObject(txid), 0, -1)
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Close() }()
	return readImage(r, txid)
}

func (o *imageObjects) room(bytes int64) error { return o.local.room(bytes) }

func (o *imageObjects) write(ctx context.Context, t *namespace.Tree) (int64, error) {
	last, _ := t.Last()
	size, err := o.local.write(ctx, t)
	if err != nil {
		return 0, err
	}
	defer func() { _ = o.local.fs.Remove(o.local.where(last)) }() // a leftover is removed at the next start
	f, err := o.local.fs.Open(o.local.where(last))
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }()
	sum := crc32.New(castagnoli)
	if _, err := io.Copy(sum, f); err != nil {
		return 0, err
	}
	put := func() error {
		return o.objects.PutNamed(ctx, imageObject(last), io.NewSectionReader(f, 0, size), size, sum.Sum32())
	}
	err = put()
	if errors.Is(err, fserror.Exists) {
		// Of the same state, by who was active before, or by us; unless it was
		// damaged since, and this namenode started from an older one.
		if _, rerr := o.read(ctx, last); rerr == nil {
			return size, nil
		} else if errors.Is(rerr, fserror.Unavailable) || ctx.Err() != nil {
			return 0, rerr
		}
		if err = o.objects.DeleteNamed(ctx, imageObject(last)); err == nil {
			err = put()
		}
	}
	return size, err
}

func (o *imageObjects) prune(ctx context.Context, keep []uint64) error {
	ids, err := o.list(ctx)
	if err != nil {
		return err
	}
	var gone []string
	for _, id := range ids {
		// One that is newer may be a successor's, who will know of it.
		if !slices.Contains(keep, id) && id < slices.Max(keep) {
			gone = append(gone, imageObject(id))
		}
	}
	return o.objects.DeleteNamed(ctx, gone...)
}

func (o *imageObjects) removeLeftovers() {
	o.local.removeLeftovers()
	ids, _ := o.local.list(context.Background()) // a folder: no network
	for _, id := range ids {
		if err := o.local.fs.Remove(o.local.where(id)); err != nil {
			o.local.log.Warn("an image that was on its way to the block store could not be removed", "file", o.local.where(id), "cause", err)
		}
	}
}

var (
	_ images = (*imageFolder)(nil)
	_ images = (*imageObjects)(nil)
)
