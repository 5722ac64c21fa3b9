package history

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/vfs"
	"github.com/leasefs/leasefs/namenode/namespace"
	"github.com/leasefs/leasefs/namenode/namespace/tables"
)

// Defaults and bounds of a Config.
const (
	DefaultKeep  = 7 * 24 * time.Hour
	DefaultBytes = 256 << 20

	LeastBytes = 1 << 20 // of Config.Bytes
)

// Config says what is kept, and where.
type Config struct {
	FS  vfs.FS
	Dir string // of its files; made when missing
	ID  [16]byte
	Log *slog.Logger
	// Keep is for how long an end is kept, Bytes how large all files are together: the
	// oldest go first.
	Keep  time.Duration
	Bytes int64
	// Reserve is how many bytes of the disk are left free: with less, nothing is written.
	Reserve int64
}

const (
	// maxWaiting is how many bytes of memory, about, what is yet to be written takes.
	maxWaiting = 32 << 20
	// gather is for how long spans are gathered before they are written.
	gather = 50 * time.Millisecond
	// markEvery is how often the files say up to which record they tell everything, if
	// nothing ended, and are made durable and closed. A start may take for a gap what
	// comes after.
	markEvery = 10 * time.Second
	// again is after how long a write that failed is tried again.
	again = time.Second
)

// Log is the history of one namenode. A nil Log keeps nothing. Its methods are safe for
// concurrent use, but for Open, Begin and Loaded, which are not to run together with others.
type Log struct {
	cfg   Config
	files files
	wake  chan struct{}

	skip   uint64 // records up to here are in the files already
	inline bool   // something was written since Begin, by Applied

	mu      sync.Mutex
	last    point // the last record applied
	reign   uint64
	before  point // of it, the reign before that of last, which the record reign began
	image   uint64
	waiting []Span
	spare   []Span // for waiting, when that is taken
	bytes   int64  // that waiting takes
	writing bool   // something was taken, and is not written yet
	running bool
	changed chan struct{} // closed when something was written, or could not be
	problem string
	lost    uint64 // spans
}

// Open opens the files in a folder.
func Open(cfg Config) (*Log, error) {
	l := &Log{cfg: cfg, wake: make(chan struct{}, 1), changed: make(chan struct{})}
	l.files = files{cfg: &l.cfg}
	if err := l.files.open(); err != nil {
		return nil, err
	}
	return l, nil
}

// Begin is told that a tree was read, to which records will be applied.
func (l *Log) Begin(t *namespace.Tree) {
	if l == nil {
		return
	}
	if l.inline { // by a tree that was not the right one
		l.discard("the records that it was made from were read twice")
	}
	l.inline = false
	l.waiting, l.bytes = nil, 0
	l.last, l.reign, l.image = here(t), 0, 0
	l.skip = l.files.end.txid
	if l.skip == 0 {
		l.files.startAt(l.last)
	} else if l.last.txid > l.skip {
		l.gap(l.skip, l.last)
	}
}

func here(t *namespace.Tree) (p point) {
	p.txid, p.ms = t.Last()
	if all := t.Reigns(); len(all) > 0 {
		p.term, p.nonce = all[len(all)-1].Term, all[len(all)-1].Nonce
	}
	return p
}

// Loaded is told that the tree is up to date: it is that of which Begin was told last.
// What another history of the namespace has left in the folder is removed.
func (l *Log) Loaded(t *namespace.Tree) {
	if l == nil {
		return
	}
	end := l.files.end
	ours := end.txid <= l.last.txid
	if end.term > 0 {
		all := t.Reigns()
		i := slices.IndexFunc(all, func(r tables.Reign) bool { return r.Term == end.term })
		forgotten := len(all) == tables.MaxReigns && end.term < all[0].Term // as after a crash loop: it may be ours
		ours = ours && (i >= 0 && all[i].Nonce == end.nonce || forgotten)
	}
	if !ours && end.txid > 0 {
		l.discard("it is of another history of the namespace, as there is after a restore")
		l.waiting, l.bytes = nil, 0
		l.files.startAt(l.last)
	}
}

// discard removes all files.
func (l *Log) discard(why string) {
	l.cfg.Log.Warn("the history of leases is begun again: "+why, "folder", l.cfg.Dir)
	if err := l.files.removeAll(); err != nil {
		l.cfg.Log.Error("files of the history of leases could not be removed", "folder", l.cfg.Dir, "cause", err)
	}
}

// Applied notes what a record ended. Before Run it writes that, if much has gathered: while
// a journal is replayed, all is durable. The namespace is locked.
func (l *Log) Applied(e *namespace.Entry, r *namespace.Result) {
	if l == nil || !l.note(e, r) {
		return
	}
	l.inline = true
	if err := l.write(l.take(e.TxID)); err != nil {
		l.trouble(err)
	}
}

// note is Applied, and reports whether it is time to write.
func (l *Log) note(e *namespace.Entry, r *namespace.Result) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, image := e.Op.(*namespace.OpImage); image { // from which a start may replay
		l.image = e.TxID
		signal(l.wake)
	}
	if op := namespace.Activation(e.Op); op != nil {
		l.reign, l.before = e.TxID, l.last
		l.last.term, l.last.nonce = op.Term, op.Nonce
	}
	l.last.txid, l.last.ms = e.TxID, e.Time
	if len(r.Closed) == 0 && r.Ended == nil || e.TxID <= l.skip {
		return false
	}
	before := len(l.waiting)
	l.waiting = spansOf(l.waiting, e, r)
	added := int64(0)
	for i := before; i < len(l.waiting); i++ {
		added += l.waiting[i].size()
	}
	if l.bytes+added > maxWaiting {
		l.lost += uint64(len(l.waiting) - before) //nolint:gosec // a count
		clear(l.waiting[before:])
		l.waiting = l.waiting[:before]
		l.gap(e.TxID-1, l.last)
	} else {
		l.bytes += added
	}
	if before == 0 {
		signal(l.wake)
	}
	return !l.running && l.bytes > maxWaiting/2
}

// gap notes that of what ended behind a record, up to another, nothing will be known.
func (l *Log) gap(after uint64, to point) {
	if n := len(l.waiting); n > 0 && l.waiting[n-1].Gap {
		l.waiting[n-1].TxID, l.waiting[n-1].To = to.txid, to.ms
		return
	}
	l.waiting = append(l.waiting, Span{Gap: true, TxID: to.txid, Epoch: after, To: to.ms})
	signal(l.wake)
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// taken is what is to be written: what ended up to a record.
type taken struct {
	spans []Span
	to    point
	sync  bool
}

// take takes what is durable of what waits.
func (l *Log) take(durable uint64) (t taken) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n, all := len(l.waiting), l.last.txid <= durable
	if !all {
		n, _ = slices.BinarySearchFunc(l.waiting, durable+1, func(s Span, txid uint64) int { return cmp.Compare(s.TxID, txid) })
	}
	t.to = l.last
	if !all && n == 0 {
		return taken{}
	} else if !all {
		if t.to.txid = l.waiting[n-1].TxID; t.to.txid < l.reign {
			t.to.term, t.to.nonce = l.before.term, l.before.nonce
		}
		t.to.ms = l.waiting[n-1].To
	}
	if t.sync = l.image > 0 && l.image <= t.to.txid; t.sync {
		l.image = 0
	}
	if n == 0 {
		return t
	}
	t.spans = l.waiting[:n:n]
	l.waiting, l.spare, l.writing, l.bytes = append(l.spare[:0], l.waiting[n:]...), nil, true, 0
	for i := range l.waiting {
		l.bytes += l.waiting[i].size()
	}
	return t
}

// write writes what was taken. After an error it can be called again with the same.
func (l *Log) write(t taken) error {
	err := l.files.write(t)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.problem = ""
	if err != nil {
		l.problem = err.Error()
	} else {
		l.writing = false
		if clear(t.spans); cap(t.spans) <= 4*frameSpans {
			l.spare = t.spans[:0]
		}
	}
	close(l.changed)
	l.changed = make(chan struct{})
	return err
}

func (l *Log) trouble(err error) {
	l.cfg.Log.Error("the history of leases cannot be written; it will have a gap if that lasts", "folder", l.cfg.Dir, "cause", err)
}

// Run writes what ended as it becomes durable, until the context ends. durable is the last
// record that is.
func (l *Log) Run(ctx context.Context, durable func() uint64) error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	l.running = true
	l.mu.Unlock()
	mark := time.NewTicker(markEvery)
	defer mark.Stop()
	timer := time.NewTimer(gather)
	defer timer.Stop()
	var left taken // of a write that failed
	failing := false
	for {
		marks, ends := false, false
		select {
		case <-l.wake:
			timer.Reset(gather)
			continue
		case <-timer.C:
		case <-mark.C:
			marks = true
		case <-ctx.Done():
			marks, ends = true, true
		}
		if left.spans == nil && !left.sync {
			left = l.take(durable())
		}
		var err error
		if len(left.spans) > 0 || left.sync || marks {
			err = l.write(left)
		}
		if marks {
			l.files.close()
		}
		if failed := err != nil; failed != failing {
			if failing = failed; failed {
				l.trouble(err)
			} else {
				l.cfg.Log.Info("the history of leases can be written again", "folder", l.cfg.Dir)
			}
		}
		if err == nil {
			left = taken{}
		}
		switch {
		case ends:
			return nil
		case err != nil:
			timer.Reset(again)
		case l.waits():
			timer.Reset(gather) // for what is not durable yet
		}
	}
}

func (l *Log) waits() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.waiting) > 0 || l.image > 0
}

// Await waits until what ended up to a record, which is durable, can be found. It does not
// wait for a disk that cannot be written: then it says why. An error is the context's.
func (l *Log) Await(ctx context.Context, txid uint64) (problem string, err error) {
	if l == nil {
		return "", errOff()
	}
	for {
		l.mu.Lock()
		problem, changed := l.problem, l.changed
		done := !l.writing && (len(l.waiting) == 0 || l.waiting[0].TxID > txid)
		l.mu.Unlock()
		if problem != "" || done {
			return problem, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}
}

// Stats are figures of a Log.
type Stats struct {
	Bytes int64  // that its files take
	Lost  uint64 // ends that could not be kept
	// Failing says that nothing can be written.
	Failing bool
}

// Stats returns the figures of this moment.
func (l *Log) Stats() (s Stats) {
	if l == nil {
		return s
	}
	s.Bytes = l.files.size()
	l.mu.Lock()
	defer l.mu.Unlock()
	s.Lost, s.Failing = l.lost, l.problem != ""
	return s
}

// errOff is the answer of a namenode that keeps no history.
func errOff() error {
	return fserror.New(fserror.Unsupported, "lease history", "", "this namenode keeps no history of leases").Because(fserror.ReasonNoHistory)
}
