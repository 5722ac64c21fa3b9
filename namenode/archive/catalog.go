package archive

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/journal"
	"github.com/leasefs/leasefs/namenode/images"
	"github.com/leasefs/leasefs/namenode/namespace"
)

// ahead is how many objects are read at a time, before they are needed.
const ahead = 8

// span is the part of a segment that counts.
type span struct {
	Segment
	from, to uint64
	time     int64 // of to, at least
}

// base is an image from which a tree can be made.
type base struct {
	images.Image
	term uint64
	in   *images.Objects
}

// Catalog is what a store has of the archive of one namespace, as it was when it was looked
// at. It does not change.
type Catalog struct {
	objects blockstore.Objects
	id      [16]byte
	log     *slog.Logger

	spans []span // in the order of txids; between two there may be a hole
	bases []base // the newest first
	all   []Segment
}

// Open looks into a store.
func Open(ctx context.Context, objects blockstore.Objects, id [16]byte, log *slog.Logger) (*Catalog, error) {
	names, err := blockstore.Names(ctx, objects, segmentPrefix)
	if err != nil {
		return nil, err
	}
	c := &Catalog{objects: objects, id: id, log: log}
	for _, name := range names {
		if s, ok := parseSegment(name); ok {
			c.all = append(c.all, s)
		}
	}
	begins := c.resolve()
	for _, in := range []*images.Objects{{Objects: objects, Prefix: BasePrefix}, {Objects: objects}} {
		list, err := in.List(ctx)
		if err != nil {
			return nil, err
		}
		for _, img := range list {
			b := base{img, images.TermOf(img.Name), in}
			superseded := slices.ContainsFunc(begins, func(s Segment) bool { return s.Term > b.term && s.First <= b.TxID })
			if !superseded {
				c.bases = append(c.bases, b)
			}
		}
	}
	slices.SortStableFunc(c.bases, func(a, b base) int { return cmp.Compare(b.TxID, a.TxID) })
	return c, nil
}

// resolve decides which records of which segments count: from the first record on that was
// archived in a reign, those of reigns before do not. It returns the first segment of each.
func (c *Catalog) resolve() (begins []Segment) {
	ordered := slices.Clone(c.all)
	slices.SortFunc(ordered, func(a, b Segment) int {
		return cmp.Or(cmp.Compare(a.Term, b.Term), cmp.Compare(a.First, b.First), cmp.Compare(a.Last, b.Last))
	})
	for i, s := range ordered {
		if i == 0 || ordered[i-1].Term != s.Term {
			begins = append(begins, s)
		}
		n := len(c.spans)
		for n > 0 && c.spans[n-1].from >= s.First {
			n--
		}
		c.spans = c.spans[:n]
		if n > 0 {
			if end := &c.spans[n-1]; end.to >= s.First {
				end.to, end.time = s.First-1, 0
				if n > 1 {
					end.time = c.spans[n-2].time
				}
			}
		}
		c.spans = append(c.spans, span{s, s.First, s.Last, s.Time})
	}
	return begins
}

// At is a moment: after the record TxID; or if that is 0, after the last one of Time or
// before; and if both are zero, the newest there is.
type At struct {
	TxID uint64
	Time time.Time
}

// over reports whether a record of that number and time is after the moment.
func (a At) over(txid uint64, ms int64) bool {
	switch {
	case a.TxID > 0:
		return txid > a.TxID
	case !a.Time.IsZero():
		return ms > a.Time.UnixMilli()
	}
	return false
}

// Tree makes the tree as it was at a moment. NotFound if that is not kept, Damaged if what
// it takes is damaged; the error says which moments can be had.
func (c *Catalog) Tree(ctx context.Context, at At) (*namespace.Tree, error) {
	if len(c.bases) == 0 {
		return nil, fserror.New(fserror.NotFound, "", "", "the block store has no archive of namespace %x: no base, and no image", c.id).Because(fserror.ReasonArchive)
	}
	for i, b := range c.bases {
		if at.TxID > 0 && b.TxID > at.TxID || !at.Time.IsZero() && c.sureAfter(b.TxID, at) {
			continue
		}
		t, err := images.Read(ctx, b.in, b.Image)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err != nil && (images.Unknown(err) || i == len(c.bases)-1) {
			return nil, fserror.Wrap(fserror.KindOf(err), "", "", err)
		}
		if err != nil {
			c.log.Warn("a base of the archive cannot be read; continuing with an older one", "base", b.Name, "cause", err)
			continue
		}
		if last, ms := t.Last(); at.over(last, ms) {
			continue
		}
		return t, c.replay(ctx, t, at)
	}
	oldest := c.bases[len(c.bases)-1]
	return nil, fserror.New(fserror.NotFound, "", "", "that moment is not kept: the oldest one that can be had is after record %d", oldest.TxID).Because(fserror.ReasonArchive)
}

// sureAfter reports whether record txid is surely later than a time.
func (c *Catalog) sureAfter(txid uint64, at At) bool {
	i, _ := slices.BinarySearchFunc(c.spans, txid, func(s span, txid uint64) int { return cmp.Compare(s.to, txid) })
	// Those before the span of txid are not later than txid.
	return i > 0 && c.spans[i-1].to < txid && at.over(c.spans[i-1].to, c.spans[i-1].time)
}

// replay brings a tree to a moment.
func (c *Catalog) replay(ctx context.Context, t *namespace.Tree, at At) error {
	last, ms := t.Last()
	next := last + 1
	i, _ := slices.BinarySearchFunc(c.spans, next, func(s span, txid uint64) int { return cmp.Compare(s.to, txid) })
	spans := slices.Clone(c.spans[i:])
	if len(spans) > 0 && spans[0].from < next {
		spans[0].from = next // the base is of the middle of an object
	}
	for n, s := range spans { // up to the first hole
		if s.from > next {
			spans = spans[:n]
			break
		}
		next = s.to + 1
	}
	enough := false
	err := c.read(ctx, spans, func(r journal.Record) (more bool, err error) {
		if enough = at.over(r.TxID, r.Time); enough {
			return false, nil
		}
		last, ms = r.TxID, r.Time
		_, _, err = images.Apply(t, r)
		return true, err
	})
	if err != nil {
		return fserror.Wrap(fserror.KindOf(err), "", "", err)
	}
	hole := i+len(spans) < len(c.spans)
	if hole && at == (At{}) {
		c.log.Error("the archive has a hole, and no base behind it: what is newer than the hole is lost", "reason", fserror.ReasonArchive, "last", last, "next", c.spans[i+len(spans)].from)
		return nil
	}
	switch {
	case enough, at.TxID == last, at.TxID == 0 && !hole:
		return nil
	case hole:
		after := c.spans[i+len(spans)]
		return fserror.New(fserror.NotFound, "", "", "the archive has a hole: records %d to %d are missing. Moments that can be had are those up to record %d of %s, and those from the next base on",
			last+1, after.from-1, last, time.UnixMilli(ms).UTC().Format(time.RFC3339)).Because(fserror.ReasonArchive)
	}
	return fserror.New(fserror.NotFound, "", "", "record %d is not archived: the newest that can be had is %d of %s", at.TxID, last, time.UnixMilli(ms).UTC().Format(time.RFC3339)).Because(fserror.ReasonArchive)
}

// read hands each the records of spans, in order, until it wants no more.
func (c *Catalog) read(ctx context.Context, spans []span, each func(journal.Record) (more bool, err error)) error {
	ctx, cancel := context.WithCancel(ctx)
	type result struct {
		object []byte
		err    error
	}
	var asked []chan result
	defer func() {
		cancel()
		for _, ch := range asked {
			<-ch
		}
	}()
	for i, begun := 0, 0; i < len(spans); i++ {
		for ; begun < min(i+ahead, len(spans)); begun++ {
			ch, s := make(chan result, 1), spans[begun].Segment
			asked = append(asked, ch)
			go func() {
				object, err := get(ctx, c.objects, s)
				ch <- result{object, err}
			}()
		}
		r := <-asked[0]
		asked = asked[1:]
		if r.err != nil {
			return r.err
		}
		more := true
		err := decode(c.id, spans[i].Segment, r.object, spans[i].from, func(rec journal.Record) (err error) {
			if more && rec.TxID <= spans[i].to {
				more, err = each(rec)
			}
			return err
		})
		if err != nil || !more {
			return err
		}
	}
	return nil
}

// Newest is the last record that is archived; 0: none is.
func (c *Catalog) Newest() (txid uint64, ms int64) {
	if n := len(c.spans); n > 0 {
		return c.spans[n-1].to, c.spans[n-1].time
	}
	return 0, 0
}

// timeOf is when a record was, at least: 0 if nothing that is archived tells.
func (c *Catalog) timeOf(txid uint64) int64 {
	i, exact := slices.BinarySearchFunc(c.spans, txid, func(s span, txid uint64) int { return cmp.Compare(s.to, txid) })
	if exact {
		return c.spans[i].time
	}
	if i == 0 {
		return 0
	}
	return c.spans[i-1].time
}
