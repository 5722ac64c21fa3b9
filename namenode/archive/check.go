package archive

import (
	"context"
	"errors"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/journal"
	"github.com/leasefs/leasefs/namenode/images"
)

// Next lists objects of the archive: up to so many, in the order of names from behind one on.
func (a *Archive) Next(ctx context.Context, after string, most int) (list []blockstore.NamedInfo, err error) {
	if a.cfg.Keep() <= 0 {
		return nil, nil
	}
	for _, prefix := range []string{segmentPrefix, BasePrefix} {
		if len(list) == 0 && err == nil {
			list, err = a.cfg.Objects.ListNamed(ctx, prefix, after, most)
		}
	}
	return list, err
}

// Survey lists all objects, and returns how many bytes they have. It tells of records that are
// missing between two of them, but not where a base closes that hole: a purge left it.
func (a *Archive) Survey(ctx context.Context) (bytes int64, err error) {
	var holes [][3]uint64 // the first and the last record that are missing, and the last of the object behind
	var bases []uint64
	a.listing.Lock()
	defer a.listing.Unlock()
	for last, name := uint64(0), ""; ; {
		list, err := a.Next(ctx, name, removable)
		if err != nil {
			return 0, err
		}
		if len(list) == 0 {
			break
		}
		for _, o := range list {
			bytes += o.Length
			if s, ok := parseSegment(o.Name); ok {
				if last > 0 && s.First > last+1 {
					holes = append(holes, [3]uint64{last + 1, s.First - 1, s.Last})
				}
				last = s.Last
			} else if img, ok := a.base.Image(o.Name); ok {
				bases = append(bases, img.TxID)
			}
		}
		name = list[len(list)-1].Name
	}
	for _, h := range holes {
		closed := false
		for _, base := range bases {
			closed = closed || h[1] <= base && base <= h[2]
		}
		if !closed {
			a.want(h[2])
			a.hole(h[0], "objects of the archive are gone")
		}
	}
	return bytes, nil
}

// Check reads an object, and verifies it: Damaged, or what else the store said. Moments behind one that
// is damaged can be had from the next base on, which is made soon. One that is not there any
// more was removed since it was listed.
func (a *Archive) Check(ctx context.Context, name string) (err error) {
	var last uint64
	if s, ok := parseSegment(name); ok {
		last = s.Last
		var object []byte
		if object, err = get(ctx, a.cfg.Objects, s); err == nil {
			err = decode(a.cfg.ID, s, object, s.First, func(journal.Record) error { return nil })
		}
	} else if img, ok := a.base.Image(name); ok {
		last = img.TxID + 1
		if err = images.Check(ctx, a.base, img); err != nil && ctx.Err() == nil && !images.Unknown(err) && !errors.Is(err, fserror.NotFound) {
			err = fserror.New(fserror.Damaged, "", "", "the base %s of the archive is damaged: %v", name, err).Because(fserror.ReasonArchive)
		}
	}
	if errors.Is(err, fserror.Damaged) {
		a.want(last)
	}
	if errors.Is(err, fserror.NotFound) {
		return nil
	}
	return err
}

// want has a base made that goes up to a record, at least, if there is none.
func (a *Archive) want(txid uint64) {
	for was := a.wanted.Load(); was < txid && !a.wanted.CompareAndSwap(was, txid); was = a.wanted.Load() {
	}
}
