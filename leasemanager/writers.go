package leasemanager

import (
	"time"

	"github.com/google/btree"
)

// writers are the leases over files that are open for write: of the sessions, and of
// single files.
type writers struct {
	*timing
	*index
	*holders
	ages *ages

	order    order               // leases that have files and are not ending
	ending   *btree.BTreeG[item] // leases that are ending
	portions []*lease            // ending leases of which the next files are to be handed out
	nextID   uint64
	pass     uint64
	expired  uint64
}

// clear forgets all leases.
func (w *writers) clear() {
	w.order, w.ending = newOrder(), btree.NewG(32, byStamp)
	w.portions = nil
}

// Open notes that h has the inode open for write under the epoch: the record is
// applied. Whoever had it before loses it and is told in its next renewal. It
// counts as a renewal of h's session. The same grant again changes nothing
// else; an epoch older than the one that is known changes nothing.
func (w *writers) Open(h Holder, inode, epoch uint64) {
	now := w.now()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open(h, Ref{inode, epoch}, now, now, false)
}

func (w *writers) open(h Holder, ref Ref, now, stamp time.Duration, rebuild bool) {
	f := w.inodes[ref.Inode]
	if f != nil && ref.Epoch < f.epoch {
		return
	}
	var seq uint64
	if !rebuild {
		w.nextSeq++
		seq = w.nextSeq
	}
	s := w.add(h, seq)
	s.met = s.met || !rebuild
	defer w.settle(s)
	if f != nil && f.l.s == s && f.epoch == ref.Epoch {
		if f.l.has(flagEnding) {
			return
		}
		w.stampMain(s, stamp)
		if f.l != s.main {
			w.move(f, s.main)
		}
		return
	}
	if f != nil {
		if old := f.l.s; old != s {
			old.lose(f.ref(), ReasonTakenOver, &h, 0)
			defer w.settle(old)
		}
		w.detach(f)
	} else {
		f = &file{inode: ref.Inode}
		w.inodes[ref.Inode] = f
	}
	f.epoch, f.granted, f.seen = ref.Epoch, now, 0
	w.attach(f, w.stampMain(s, stamp))
	enqueue(f, now)
}

// stampMain renews the lease that the session's files are added to.
func (w *writers) stampMain(s *session, now time.Duration) *lease {
	l := w.live(s)
	l.renew(now, 0)
	return l
}

// Close notes that the grant of the inode under the epoch is over: the record
// that ended it is applied. Unless the holder itself closed it (reason "closed",
// by nil or the holder), its session is told in its renewals that it lost the
// file, why, and by whom. An inode that is not known, or under another epoch,
// changes nothing.
func (w *writers) Close(inode, epoch uint64, reason string, by *Holder) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f := w.inodes[inode]
	if f == nil || f.epoch != epoch {
		return
	}
	s := f.l.s
	if reason != ReasonClosed || by != nil && by.Session != s.holder.Session {
		s.lose(f.ref(), reason, by, 0)
	}
	delete(w.inodes, inode)
	w.ages.forget(AgeKey{Inode: inode})
	w.detach(f)
	w.settle(s)
}

// Touch renews the session because a record of its writer of the inode is about to
// be applied. A file that had become a lease of its own comes back to the session.
// It returns false, and renews nothing, if the session has no files or the lease in
// question is ending. Whether the session still has this inode, under which epoch,
// is on the inode: Touch does not look.
func (w *writers) Touch(id SessionID, inode uint64) bool {
	now := w.now()
	l := w.dir.get(id)
	if l == nil {
		return false
	}
	if l.renew(now, flagEnding|flagOthers|flagIdle) {
		return true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if l = w.dir.get(id); l == nil {
		return false
	}
	s := l.s
	if f := w.inodes[inode]; f != nil && f.l.s == s && f.l != s.main {
		if f.l.has(flagEnding) {
			return false
		}
		w.move(f, w.stampMain(s, now))
		w.settle(s)
		return true
	}
	return l.renew(now, flagEnding|flagIdle)
}

// attach adds f to l, which enters the order if it had no files.
func (w *writers) attach(f *file, l *lease) {
	f.l, f.pos = l, len(l.files)
	l.files = append(l.files, f)
	l.s.files++
	w.cfg.Opened(l.s.holder.User, 1)
	w.ages.inherit(l, f)
	if len(l.files) == 1 {
		w.nextID++
		l.id = w.nextID
		l.born = f.granted
		l.key = w.stamp(l)
		w.order.ReplaceOrInsert(item{l.key, l.id, l})
		w.ids.ReplaceOrInsert(item{l.key, l.id, l})
		if l != l.s.main {
			l.s.others++
		}
		w.ages.watch(l)
	}
}

// detach takes f out of its lease, which leaves the order if it has no files
// then. The session may be without files after it: see settle.
func (w *writers) detach(f *file) {
	l := f.l
	dequeue(f)
	end := len(l.files) - 1
	l.files[f.pos] = l.files[end]
	l.files[f.pos].pos = f.pos
	l.files[end] = nil
	l.files = l.files[:end]
	if c := cap(l.files); c > 1024 && end < c/4 {
		l.files = append(make([]*file, 0, c/2), l.files...)
	}
	l.s.files--
	w.cfg.Opened(l.s.holder.User, -1)
	f.l = nil
	if end > 0 {
		return
	}
	l.files = nil
	if l.has(flagEnding) {
		if !l.out {
			w.finish(l)
		}
		return
	}
	w.order.Delete(item{stamp: l.key, id: l.id})
	w.ids.Delete(item{id: l.id})
	l.id = 0
	if l != l.s.main {
		l.s.others--
	}
}

// finish forgets a lease that was ending and has no files.
func (w *writers) finish(l *lease) {
	s := l.s
	w.ending.Delete(item{stamp: l.key, id: l.id})
	w.ids.Delete(item{id: l.id})
	l.id, l.out = 0, false
	w.expired++
	s.endings--
	if l == s.main {
		w.setMain(s)
	} else {
		s.others--
	}
}

// live returns the lease that files of the session are to be added to: a new
// one if its lease is ending.
func (w *writers) live(s *session) *lease {
	if old := s.main; old.has(flagEnding) {
		old.kind = KindLapsing // if it is put back, renewals do not reach it
		s.others++
		w.setMain(s)
	}
	return s.main
}

// move takes f from its lease to another of the same session.
func (w *writers) move(f *file, to *lease) {
	w.detach(f)
	w.attach(f, to)
}
