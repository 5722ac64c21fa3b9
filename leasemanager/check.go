package leasemanager

import (
	"fmt"

	"github.com/google/btree"
)

// Check returns what is wrong with the table: nothing, if all is well. It holds
// the lock and looks at everything: for tests and fsck.
func (m *Manager) Check() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := checker{m: m, files: map[*session]int{}, others: map[*session]int{}, endings: map[*session]int{}}
	c.leases()
	c.granted()
	c.inodes()
	c.ages()
	c.sessions()
	return c.wrong
}

type checker struct {
	m                      *Manager
	wrong                  []string
	files, others, endings map[*session]int // counted
}

func (c *checker) bad(ok bool, format string, args ...any) {
	if !ok {
		c.wrong = append(c.wrong, fmt.Sprintf(format, args...))
	}
}

// leases checks that ids, order and ending have the same leases, once each.
func (c *checker) leases() {
	m := c.m
	granted := m.deadlines.Len() + m.over.Len()
	c.bad(m.ids.Len() == m.order.Len()+m.ending.Len()+granted,
		"%d leases by id, %d in the order, %d ending, %d granted", m.ids.Len(), m.order.Len(), m.ending.Len(), granted)
	m.ids.Ascend(func(it item) bool {
		c.bad(it.id == it.l.id && it.id <= m.nextID, "lease %d: is listed as %d", it.l.id, it.id)
		c.bad((it.id < FirstSessionLease) == (it.l.kind == KindGranted), "lease %d: its kind is %d", it.id, it.l.kind)
		return true
	})
	c.tree(m.order.BTreeG, false)
	c.tree(m.ending, true)
}

func (c *checker) tree(t *btree.BTreeG[item], ending bool) {
	m := c.m
	t.Ascend(func(it item) bool {
		l := it.l
		s := l.s
		c.bad(l.id == it.id && l.key == it.stamp, "lease %d, stamp %v: is in the tree as %d, %v", l.id, l.key, it.id, it.stamp)
		c.bad(it.stamp <= m.stamp(l), "lease %d: its key %v is later than its stamp %v", it.id, it.stamp, m.stamp(l))
		c.bad(m.ids.Has(item{id: it.id}), "lease %d: not found by id", it.id)
		c.bad(l.has(flagEnding) == ending, "lease %d: ending is %v in the order and %v in the lease", it.id, ending, l.has(flagEnding))
		c.bad(len(l.files) > 0 || l.out, "lease %d: has no files", it.id)
		c.bad(!s.forgotten, "lease %d: its session is forgotten", it.id)
		c.files[s] += len(l.files)
		if ending {
			c.endings[s]++
		} else {
			c.bad(!l.out, "lease %d: is handed out and not ending", it.id)
		}
		if l != s.main {
			c.others[s]++
		}
		c.bad((l == s.main) == (l.kind == KindSession), "lease %d: its kind is %d", it.id, l.kind)
		for i, f := range l.files {
			c.bad(f.l == l && f.pos == i && m.inodes[f.inode] == f, "inode %d: is in lease %d, not the other way", f.inode, it.id)
		}
		return true
	})
}

// granted checks that directory, deadlines and over have the same leases.
func (c *checker) granted() {
	m := c.m
	n := 0
	m.grants.all(func(l *lease) {
		n++
		in, out := m.deadlines.BTreeG, m.over
		if l.out {
			in, out = out, in
		}
		c.bad(in.Has(item{stamp: l.key, id: l.id}) && !out.Has(item{stamp: l.key, id: l.id}), "granted lease %d: is in the wrong tree", l.id)
		c.bad(l.key <= m.deadline(l), "granted lease %d: its key %v is later than its deadline %v", l.id, l.key, m.deadline(l))
		c.bad(l.has(flagEnding) == l.out, "granted lease %d: ending is %v, handed out is %v", l.id, l.has(flagEnding), l.out)
		c.bad(m.ids.Has(item{id: l.id}) && l.session == grantKey(l.id), "granted lease %d: not found by id", l.id)
	})
	c.bad(n == m.deadlines.Len()+m.over.Len(), "%d granted leases, %d in order and %d ending", n, m.deadlines.Len(), m.over.Len())
}

// ages checks that each lease is looked at, and each age that is journalled.
func (c *checker) ages() {
	m := c.m
	numbers := map[uint64]AgeKey{}
	m.looks.Ascend(func(k look) bool {
		c.bad(k.n <= m.lookedAt && numbers[k.n] == AgeKey{}, "%+v: is looked at twice", k.key)
		numbers[k.n] = k.key
		return true
	})
	for key, t := range m.told {
		c.bad(t.look != 0 && numbers[t.look] == key, "%+v: has a journalled age that is never looked at", key)
		l := m.named(key)
		c.bad(l == nil || l.look == 0 || l.look == t.look, "%+v: has two entries", key)
	}
	m.ids.Ascend(func(it item) bool {
		l := it.l
		if l.kind == KindLapsing && l.look == 0 || l.kind != KindGranted && len(l.files) == 0 {
			return true // put back with several files; or handed out
		}
		key := keyOf(l)
		c.bad(key == AgeKey{} || numbers[l.look] == key, "lease %d: its age is never looked at", it.id)
		return true
	})
}

func (c *checker) inodes() {
	for inode, f := range c.m.inodes {
		ok := f.inode == inode && f.l != nil && f.l.id != 0 && f.pos < len(f.l.files) && f.l.files[f.pos] == f
		c.bad(ok, "inode %d: is not in its lease", inode)
	}
}

func (c *checker) sessions() {
	m := c.m
	sessions, connected := 0, 0
	m.dir.all(func(l *lease) {
		sessions++
		if l.s.stream {
			connected++
		}
		c.session(l)
	})
	c.bad(sessions == m.sessions, "%d sessions counted as %d", sessions, m.sessions)
	c.bad(connected == m.connected, "%d connected sessions counted as %d", connected, m.connected)
}

func (c *checker) session(l *lease) {
	id, s := l.session, l.s
	c.bad(s.main == l && s.holder.Session == id && !s.forgotten && c.m.dir.get(id) == l, "session %x: is not the one of its lease", id)
	c.bad(s.files == c.files[s], "session %x: has %d files, counted as %d", id, c.files[s], s.files)
	c.bad(s.others == c.others[s], "session %x: has %d other leases, counted as %d", id, c.others[s], s.others)
	c.bad(s.endings == c.endings[s], "session %x: has %d ending leases, counted as %d", id, c.endings[s], s.endings)
	c.bad(s.stream || s.files > 0 || s.endings > 0, "session %x: has no stream and no file", id)
	if !l.has(flagEnding) {
		c.bad(l.has(flagIdle) == (len(l.files) == 0), "session %x: idle is %v with %d files", id, l.has(flagIdle), len(l.files))
		c.bad(l.has(flagOthers) == (s.others > 0), "session %x: flag of other leases is wrong", id)
		news := !s.confirmed || s.first != nil || s.lost != nil || s.endings > 0
		c.bad(l.has(flagNews) == news, "session %x: flag of news is wrong", id)
	}
	var prev *file
	for f := s.first; f != nil; prev, f = f, f.next {
		c.bad(f.queued && f.prev == prev && f.l != nil && f.l.s == s, "session %x: its queue is broken at inode %d", id, f.inode)
		c.bad(prev == nil || prev.entered <= f.entered, "session %x: its queue is not in order at inode %d", id, f.inode)
	}
	c.bad(s.last == prev, "session %x: the end of its queue is wrong", id)
	if s.lost != nil {
		c.bad(len(s.lost.list) > 0, "session %x: has an empty list of losses", id)
		c.bad(len(s.lost.list) == len(s.lost.index), "session %x: %d losses, %d found by ref", id, len(s.lost.list), len(s.lost.index))
	}
}
