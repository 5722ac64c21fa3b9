package history

import (
	"errors"
	"io/fs"
	"math"
	"slices"

	"github.com/leasefs/leasefs/internal/vfs"
	"github.com/leasefs/leasefs/namenode/namespace"
	"github.com/leasefs/leasefs/namenode/namespace/calls"
)

// maxLook is how many bytes of the files one call looks at, but at least one file.
const maxLook = 8 << 20

// Place is a place in the history. What is at a lower one ended before.
type Place struct {
	TxID uint64
	N    uint32
}

func (p Place) before(o Place) bool { return p.TxID < o.TxID || p.TxID == o.TxID && p.N < o.N }

// place is where a span is. A gap is where it ends, in front of all that ended later.
func (s *Span) place() Place {
	if s.Gap {
		return Place{s.TxID, math.MaxUint32}
	}
	return Place{s.TxID, s.N}
}

// Query says what is looked for. A span is found if it is of the file, or of the path, or of
// the lease, or of the name, or if Holder says so.
type Query struct {
	Inode  namespace.InodeID
	Path   string
	Lease  namespace.LeaseID
	Name   string
	Holder func(*namespace.Holder) bool
	Since  int64 // Unix milliseconds: nothing that ended before
	Before Place // only what is before; zero: all
	Limit  int   // of spans found; at least 1
}

func (q *Query) match(s *Span) bool {
	switch {
	case s.Gap:
		return true
	case q.Holder != nil:
		return q.Holder(s.Holder)
	case s.Lease != 0:
		return s.Lease == q.Lease || q.Name != "" && s.Name == q.Name
	}
	return q.Inode != 0 && s.Inode == q.Inode || q.Path != "" && s.Path == q.Path
}

// Page is a part of what was found.
type Page struct {
	Spans []Span // the last end first; gaps are always among them
	Next  Place  // Before of the next page; zero: this was the last one
	From  int64  // Unix milliseconds: what ended before is not kept
}

// Find looks for spans: at a bounded part of the files, so a page may have none though there
// is a next one.
func (l *Log) Find(q Query) (p Page, err error) {
	if l == nil {
		return p, errOff()
	}
	l.mu.Lock()
	p.From = l.last.ms
	l.mu.Unlock()
	oldest := p.From - l.cfg.Keep.Milliseconds()
	l.files.mu.Lock()
	all := slices.Clone(l.files.all)
	l.files.mu.Unlock()
	if len(all) > 0 {
		p.From = max(all[0].from.ms, oldest)
	}
	q.Since = max(q.Since, p.From)
	if q.Before == (Place{}) {
		q.Before = Place{math.MaxUint64, 0}
	}
	looked, size := int64(0), 0
	for i := len(all) - 1; i >= 0; i-- {
		one := all[i]
		if !(Place{one.from.txid + 1, 0}).before(q.Before) {
			continue
		}
		if looked > 0 && looked+one.size > maxLook {
			return p, nil
		}
		looked += one.size
		end := point{}
		if i+1 < len(all) {
			end = all[i+1].from
		}
		found, over, err := l.files.find(&q, one, end)
		if errors.Is(err, fs.ErrNotExist) { // removed meanwhile, as all before it
			p.Next = Place{}
			return p, nil
		}
		if err != nil {
			return p, err
		}
		room := 0
		for ; room < len(found) && len(p.Spans)+room < q.Limit && size < calls.PageBytes; room++ {
			size += len(found[room].Path)
		}
		p.Spans = append(p.Spans, found[:room]...)
		switch {
		case room < len(found):
			p.Next = p.Spans[len(p.Spans)-1].place()
			return p, nil
		case over || i == 0:
			p.Next = Place{}
			return p, nil
		}
		p.Next = Place{one.from.txid + 1, 0}
		if len(p.Spans) == q.Limit {
			return p, nil
		}
	}
	p.Next = Place{}
	return p, nil
}

// find returns what a file has, the last end first: one more than the limit at most. The
// next file begins at end, if there is one. over: what is in the files before ended too early.
func (f *files) find(q *Query, one file, end point) (found []Span, over bool, err error) {
	b, err := vfs.ReadFile(f.cfg.FS, f.name(one.from.txid))
	if err != nil {
		return nil, false, err
	}
	add := func(s Span) {
		if s.To < q.Since || !s.place().before(q.Before) || !q.match(&s) {
			return
		}
		if len(found) > 4*q.Limit {
			found = append(found[:0], found[len(found)-q.Limit-1:]...)
		}
		found = append(found, s)
	}
	at := one.from
	gap := func(to point) {
		if to.txid > at.txid {
			add(Span{Gap: true, Epoch: at.txid, TxID: to.txid, From: at.ms, To: to.ms})
		}
	}
	f.each(b[:min(int64(len(b)), one.size)], func(fr *frame) {
		gap(fr.from)
		for i := range fr.spans {
			add(fr.spans[i])
		}
		at = fr.to
	})
	gap(end)
	slices.Reverse(found)
	return found[:min(len(found), q.Limit+1)], one.from.ms < q.Since, nil
}
