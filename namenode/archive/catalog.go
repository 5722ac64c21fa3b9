package archive

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
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

	begins map[uint64]uint64 // the first record of each term
	all    []Segment         // also those that do not count
	stored []base            // also those that do not count, but no images
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
	for _, in := range []*images.Objects{{Objects: objects, Prefix: BasePrefix}, {Objects: objects}} {
		list, err := in.List(ctx)
		if err != nil {
			return nil, err
		}
		for _, img := range list {
			c.bases = append(c.bases, base{img, images.TermOf(img.Name), in})
		}
		if in.Prefix == BasePrefix {
			c.stored = slices.Clone(c.bases)
		}
	}
	slices.SortStableFunc(c.bases, func(a, b base) int { return cmp.Or(cmp.Compare(b.TxID, a.TxID), cmp.Compare(b.term, a.term)) })
	c.resolve()
	return c, nil
}

// resolve decides which records of which segments count, and which bases: from where a reign
// begins in the archive, nothing of reigns before it does. It begins with its first segment, or
// with its first base. The records behind a base so never continue those of another history, which
// has a record of the base's number, too. Within one history nothing is lost: a reign's bases have
// the record with which it began, and no reign before archived that.
func (c *Catalog) resolve() {
	begins := map[uint64]uint64{}
	c.begins = begins
	begin := func(term, first uint64) {
		if before, ok := begins[term]; !ok || first < before {
			begins[term] = first
		}
	}
	segments := map[uint64][]Segment{}
	for _, s := range c.all {
		begin(s.Term, s.First)
		segments[s.Term] = append(segments[s.Term], s)
	}
	for _, b := range c.bases {
		begin(b.term, b.TxID)
	}
	for _, term := range slices.Sorted(maps.Keys(begins)) {
		c.cut(begins[term])
		of := segments[term]
		slices.SortFunc(of, func(a, b Segment) int { return cmp.Or(cmp.Compare(a.First, b.First), cmp.Compare(a.Last, b.Last)) })
		for _, s := range of {
			c.cut(s.First)
			c.spans = append(c.spans, span{s, s.First, s.Last, s.Time})
		}
	}
	c.bases = slices.DeleteFunc(c.bases, func(b base) bool { return c.Overruled(b.TxID, b.term) })
}

// Overruled reports whether a record as a term has it is of a history that a higher term has
// left before.
func (c *Catalog) Overruled(txid, term uint64) bool {
	for higher, first := range c.begins {
		if higher > term && first <= txid {
			return true
		}
	}
	return false
}

// before is the last record that is older than the moments of that long: 0 if there is none.
//
// What passes counts only between objects of one reign, in which the times of records follow
// no clock that can be set. The clock at the start of a reign may be wrong.
func (c *Catalog) before(keep time.Duration) uint64 {
	age := int64(0)
	for i := len(c.spans) - 1; i > 0; i-- {
		s, next := c.spans[i-1], c.spans[i]
		if s.Term == next.Term {
			age += max(0, next.Time-s.Time)
		}
		if age >= keep.Milliseconds() {
			return s.to
		}
	}
	return 0
}

// cut ends the spans before a record.
func (c *Catalog) cut(before uint64) {
	n := len(c.spans)
	for n > 0 && c.spans[n-1].from >= before {
		n--
	}
	c.spans = c.spans[:n]
	if n == 0 || c.spans[n-1].to < before {
		return
	}
	end := &c.spans[n-1]
	end.to, end.time = before-1, 0
	if n > 1 {
		end.time = c.spans[n-2].time
	}
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
	whole := len(c.spans) > 0 && c.spans[0].from == 1 // no base is needed
	if len(c.bases) == 0 && !whole {
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
		if err != nil && (images.Unknown(err) || images.Newer(err) != nil || i == len(c.bases)-1 && !whole) {
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
	if whole {
		t := namespace.New()
		err := c.replay(ctx, t, at)
		if last, _ := t.Last(); err != nil || last > 0 {
			return t, err
		}
	}
	return nil, fserror.New(fserror.NotFound, "", "", "that moment is not kept; %s", c.kept()).Because(fserror.ReasonArchive)
}

// kept says which moments can be had.
func (c *Catalog) kept() string {
	oldest := uint64(1)
	if len(c.spans) == 0 || c.spans[0].from > 1 {
		oldest = c.bases[len(c.bases)-1].TxID
	}
	i := slices.IndexFunc(c.spans, func(s span) bool { return s.to > oldest })
	if i < 0 {
		return fmt.Sprintf("available: records up to %d", c.Newest())
	}
	last := c.spans[len(c.spans)-1]
	return fmt.Sprintf("available: records %d (before %s) to %d (%s)", oldest, moment(c.spans[i].time), c.Newest(), moment(last.time))
}

// moment is a time of records, for people.
func moment(ms int64) string { return time.UnixMilli(ms).UTC().Format(time.RFC3339) }

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
	for n, s := range spans { // up to the first hole, and not behind the moment
		if s.from > next || at.TxID > 0 && s.from > at.TxID {
			spans = spans[:n]
			break
		}
		next = s.to + 1
	}
	enough, misfit := false, error(nil)
	err := c.read(ctx, spans, func(r journal.Record) (bool, error) {
		if enough = at.over(r.TxID, r.Time); enough {
			return false, nil
		}
		if _, _, misfit = images.Apply(t, r); misfit == nil {
			last, ms = r.TxID, r.Time
		}
		return true, misfit
	})
	gone := misfit == nil && (errors.Is(err, fserror.Damaged) || errors.Is(err, fserror.NotFound)) // the tree is that of last
	switch {
	case gone && at == (At{}):
		c.log.Error("a part of the archive cannot be used: what is newer is lost", "reason", fserror.ReasonArchive, "last", last, "cause", err)
		return nil
	case gone:
		err = fmt.Errorf("%w; the newest moment before it is record %d of %s", err, last, moment(ms))
	}
	if err != nil {
		return fserror.Wrap(fserror.KindOf(err), "", "", err)
	}
	missing := c.missing(last)
	hole := missing > 0
	if hole && at == (At{}) {
		c.log.Error("the archive has a hole, and no usable base behind it: what is newer than the hole is lost", "reason", fserror.ReasonArchive, "last", last, "missing to", missing)
		return nil
	}
	switch {
	case enough, at.TxID == last, at.TxID == 0 && !hole:
		return nil
	case hole:
		return fserror.New(fserror.NotFound, "", "", "the archive has a hole: records %d to %d are missing. Moments that can be had are those up to record %d of %s, and those from the next base on",
			last+1, missing, last, moment(ms)).Because(fserror.ReasonArchive)
	}
	return fserror.New(fserror.NotFound, "", "", "record %d is not archived: the newest that can be had is %d of %s", at.TxID, last, moment(ms)).Because(fserror.ReasonArchive)
}

// missing is the last record of the hole that begins behind a record: 0 if none does.
func (c *Catalog) missing(behind uint64) (to uint64) {
	for _, s := range c.spans {
		if s.to > behind {
			if s.from <= behind+1 {
				return 0
			}
			to = s.from - 1
			break
		}
	}
	for _, b := range c.bases { // the newest first
		if b.TxID > behind && (to == 0 || b.TxID < to) {
			to = b.TxID
		}
	}
	return to
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
func (c *Catalog) Newest() (txid uint64) {
	if n := len(c.spans); n > 0 {
		txid = c.spans[n-1].to
	}
	if len(c.bases) > 0 {
		txid = max(txid, c.bases[0].TxID)
	}
	return txid
}

// Times returns when the newest record was that is archived, at least, and the one behind a
// record: 0 if nothing that is archived tells.
func (c *Catalog) Times(behind uint64) (newest, next int64) {
	if i, _ := slices.BinarySearchFunc(c.spans, behind+1, func(s span, txid uint64) int { return cmp.Compare(s.to, txid) }); i < len(c.spans) {
		next = c.spans[i].time
	}
	return c.timeOf(c.Newest()), next
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
