package quota

import (
	"github.com/leasefs/leasefs/namenode/namespace/calls"
	"github.com/leasefs/leasefs/namenode/namespace/codec"
	"github.com/leasefs/leasefs/namenode/namespace/slots"
	"github.com/leasefs/leasefs/namenode/namespace/tables"
)

// In the place of a limit: there is none, or what there is stays.
const (
	None = -1
	Keep = -2
)

// Limits are how much may be in a directory and below: 0 or more, or None.
type Limits struct {
	Names int64 // of files, directories and symbolic links, the directory itself included (HDFS)
	Bytes int64 // of the contents of files
}

// Free reports whether they limit nothing.
func (l Limits) Free() bool { return l.Names == None && l.Bytes == None }

// Over returns l, but where it says Keep what there was.
func (l Limits) Over(old Limits) Limits {
	if l.Names == Keep {
		l.Names = old.Names
	}
	if l.Bytes == Keep {
		l.Bytes = old.Bytes
	}
	return l
}

// Good reports whether each is a limit or None.
func (l Limits) Good() bool { return l.Names >= None && l.Bytes >= None }

// Use is how much is in a directory and below, counted as Limits are.
type Use struct{ Names, Bytes int64 }

// Plus returns the sum of u and sign times v.
func (u Use) Plus(v Use, sign int64) Use { return Use{u.Names + sign*v.Names, u.Bytes + sign*v.Bytes} }

// Entry is the quota of a directory.
type Entry struct {
	Dir tables.InodeID
	Limits
	Use
}

// Code is the layout of limits.
func (l *Limits) Code(c *codec.Coder) {
	c.I64(&l.Names)
	c.I64(&l.Bytes)
}

// Table has the quotas of a tree whose inodes are in a slots.Table.
type Table[X any] struct {
	set    tables.Set[Entry]
	length func(*slots.Node, *X) int64
}

// NewTable returns an empty table. length is how many bytes an inode counts.
func NewTable[X any](length func(*slots.Node, *X) int64) Table[X] {
	return Table[X]{tables.NewSet(func(a, b Entry) bool { return a.Dir < b.Dir }), length}
}

// Clone returns a snapshot.
func (t *Table[X]) Clone() Table[X] { return Table[X]{t.set.Clone(), t.length} }

// Len is how many quotas there are.
func (t *Table[X]) Len() int { return t.set.Len() }

// Get returns the quota of a directory; false, and no limits, if it has none.
func (t *Table[X]) Get(dir tables.InodeID) (Entry, bool) {
	if t.set.Len() > 0 {
		if e, ok := t.set.Get(Entry{Dir: dir}); ok {
			return e, true
		}
	}
	return Entry{Dir: dir, Limits: Limits{None, None}}, false
}

// From calls fn for the quotas of directories whose numbers are at least first, in the
// order of numbers, until it returns false.
func (t *Table[X]) From(first tables.InodeID, fn func(Entry) bool) {
	t.set.From(Entry{Dir: first}, fn)
}

// Ratio is the part of a limit that is in use, of the one of which that is more.
func (e *Entry) Ratio() (most float64) {
	for _, of := range [2][2]int64{{e.Limits.Names, e.Use.Names}, {e.Limits.Bytes, e.Use.Bytes}} {
		if limit, use := of[0], of[1]; limit != None && (limit > 0 || use > 0) { // an unused one of 0 lacks nothing
			most = max(most, float64(use+1)/float64(limit+1)) // one of 0 is used up
		}
	}
	return most
}

// Tally is how many quotas there are, and calls full for those of them that have a limit of which
// nine tenths are used, or more, among those of directories that counts says count. It takes the time of a
// look at all.
func (t *Table[X]) Tally(counts func(dir tables.InodeID) bool, full func(Entry)) (all int) {
	near := func(limit, use int64) bool { return limit != None && use > 0 && use >= limit-limit/10 }
	t.From(0, func(e Entry) bool {
		if !counts(e.Dir) {
			return true
		}
		all++
		if near(e.Limits.Names, e.Use.Names) || near(e.Limits.Bytes, e.Use.Bytes) {
			full(e)
		}
		return true
	})
	return all
}

// Set gives a directory a quota, or takes it if the limits are free. It takes
// the time of a walk of what is below the directory if that had none.
func (t *Table[X]) Set(s *slots.Table[X], dir tables.InodeID, l Limits) {
	if l.Free() {
		t.Drop(dir)
		return
	}
	e, had := t.Get(dir)
	if !had {
		e = Entry{Dir: dir, Use: t.UseOf(s, dir)}
	}
	e.Limits = l
	t.set.ReplaceOrInsert(e)
}

// Drop forgets the quota of a directory, if it has one.
func (t *Table[X]) Drop(dir tables.InodeID) {
	if t.set.Len() > 0 {
		t.set.Delete(Entry{Dir: dir})
	}
}

// Above appends to list the quota of a directory and those of the directories above it, the
// nearest first.
func (t *Table[X]) Above(list []Entry, s *slots.Table[X], dir tables.InodeID) []Entry {
	if t.set.Len() == 0 {
		return list
	}
	for left := s.Len(); dir != 0 && left > 0; left-- { // an unsound tree may have circles
		if e, ok := t.set.Get(Entry{Dir: dir}); ok {
			list = append(list, e)
		}
		n, _ := s.Get(dir)
		if n == nil {
			break
		}
		dir = n.Parent
	}
	return list
}

// Moves calls fn for the quotas that an inode enters with all that is below it (sign 1), or
// leaves (-1), when it moves from one directory to another; 0 is none. Those that are above
// both are not concerned. fn may change the table.
func (t *Table[X]) Moves(s *slots.Table[X], id, from, to tables.InodeID, fn func(e Entry, u Use, sign int64)) {
	t.moves(s, from, to, func([]Entry) Use { return t.UseOf(s, id) }, fn)
}

// moves is Moves with a use of the inode that use counts; use is told which quotas it enters.
func (t *Table[X]) moves(s *slots.Table[X], from, to tables.InodeID, use func(entered []Entry) Use, fn func(e Entry, u Use, sign int64)) {
	if t.set.Len() == 0 {
		return
	}
	var a, b [8]Entry
	left, entered := t.Above(a[:0], s, from), t.Above(b[:0], s, to)
	for len(left) > 0 && len(entered) > 0 && left[len(left)-1].Dir == entered[len(entered)-1].Dir {
		left, entered = left[:len(left)-1], entered[:len(entered)-1]
	}
	if len(left)+len(entered) == 0 {
		return
	}
	u := use(entered)
	for _, e := range left {
		fn(e, u, -1)
	}
	for _, e := range entered {
		fn(e, u, 1)
	}
}

// Enters reports whether something enters a quota when it moves from one directory to another.
func (t *Table[X]) Enters(s *slots.Table[X], from, to tables.InodeID) bool {
	var a, b [8]Entry
	left, entered := t.Above(a[:0], s, from), t.Above(b[:0], s, to)
	return len(entered) > 0 && (len(left) < len(entered) || left[len(left)-len(entered)].Dir != entered[0].Dir)
}

// Moved counts an inode with all that is below it where it is now, no longer where it was.
func (t *Table[X]) Moved(s *slots.Table[X], id, from, to tables.InodeID) {
	if t.set.Len() > 0 {
		t.Moves(s, id, from, to, t.add)
	}
}

// Grew counts bytes by which a file in dir became longer; below 0: shorter.
func (t *Table[X]) Grew(s *slots.Table[X], dir tables.InodeID, bytes int64) {
	var few [8]Entry
	if bytes != 0 {
		for _, e := range t.Above(few[:0], s, dir) {
			t.add(e, Use{Bytes: bytes}, 1)
		}
	}
}

func (t *Table[X]) add(e Entry, u Use, sign int64) {
	e.Use = e.Plus(u, sign)
	t.set.ReplaceOrInsert(e)
}

// UseOf counts an inode with all that is below it. It takes the time of a walk that ends at
// directories with a quota.
func (t *Table[X]) UseOf(s *slots.Table[X], id tables.InodeID) Use {
	u, _ := t.useWithin(s, id, unbounded)
	return u
}

// useWithin is UseOf, or something of it that is more than room, and false.
func (t *Table[X]) useWithin(s *slots.Table[X], id tables.InodeID, room Use) (u Use, whole bool) {
	dirs := t.take(s, id, &u, nil)
	for whole = true; whole && len(dirs) > 0; {
		dir := dirs[len(dirs)-1]
		dirs = dirs[:len(dirs)-1]
		s.Ascend(dir, "", func(id tables.InodeID) bool {
			if n, _ := s.Get(id); n.Parent != dir {
				return false
			}
			dirs = t.take(s, id, &u, dirs)
			whole = u.Names <= room.Names && u.Bytes <= room.Bytes
			return whole
		})
	}
	return u, whole
}

// take counts an inode and appends it to dirs if it is a directory to be looked into.
func (t *Table[X]) take(s *slots.Table[X], id tables.InodeID, u *Use, dirs []tables.InodeID) []tables.InodeID {
	n, x := s.Get(id)
	switch {
	case n == nil:
	case calls.Type(n.Type) != calls.TypeDir:
		u.Names++
		u.Bytes += t.length(n, x)
	default:
		if e, ok := t.Get(id); ok { // it counts itself
			*u = u.Plus(e.Use, 1)
			return dirs
		}
		u.Names++
		dirs = append(dirs, id)
	}
	return dirs
}

// Code is the layout in an image. It comes before the inodes, so what was read is to be
// linked.
func (t *Table[X]) Code(c *codec.Coder) {
	t.set.Code(c, func(e *Entry) {
		c.U64((*uint64)(&e.Dir))
		e.Limits.Code(c)
	}, func(_, e Entry) bool {
		t.set.ReplaceOrInsert(e)
		return e.Good() && !e.Free()
	})
}

// Link counts what the quotas that were read have. If one is of what is no directory, it
// returns the number of that, and true.
func (t *Table[X]) Link(s *slots.Table[X], isDir func(tables.InodeID) bool) (id tables.InodeID, is bool) {
	uses := t.uses(s)
	for _, e := range t.all() {
		if !isDir(e.Dir) {
			return e.Dir, true
		}
		e.Use = uses[e.Dir]
		t.set.ReplaceOrInsert(e)
	}
	return 0, false
}

func (t *Table[X]) all() (list []Entry) {
	t.From(0, func(e Entry) bool {
		list = append(list, e)
		return true
	})
	return list
}

// uses counts what all quotas have, in one walk of the inodes.
func (t *Table[X]) uses(s *slots.Table[X]) map[tables.InodeID]Use {
	if t.set.Len() == 0 {
		return nil
	}
	own := make(map[tables.InodeID]Use) // of each but what the next quotas below it have
	nearest := make(map[tables.InodeID]tables.InodeID)
	var way []tables.InodeID
	s.Each(0, func(id tables.InodeID, n *slots.Node, x *X) bool {
		u := Use{1, t.length(n, x)}
		way = way[:0]
		for left := s.Len(); left > 0; left-- { // an unsound tree may have circles
			if q, known := nearest[id]; known {
				id = q
				break
			}
			if _, has := t.Get(id); has {
				break
			}
			if calls.Type(n.Type) == calls.TypeDir {
				way = append(way, id)
			}
			if id = n.Parent; id == 0 {
				break
			}
			if n, _ = s.Get(id); n == nil {
				id = 0
				break
			}
		}
		for _, dir := range way {
			nearest[dir] = id
		}
		own[id] = own[id].Plus(u, 1)
		return true
	})
	uses := make(map[tables.InodeID]Use, t.set.Len())
	for id, u := range own {
		for _, e := range t.Above(nil, s, id) {
			uses[e.Dir] = uses[e.Dir].Plus(u, 1)
		}
	}
	return uses
}

// Check counts all again, and tells of quotas that say otherwise or of what is no directory.
func (t *Table[X]) Check(problem tables.Problem, s *slots.Table[X], isDir func(tables.InodeID) bool) {
	uses := t.uses(s)
	for _, e := range t.all() {
		if u := uses[e.Dir]; !isDir(e.Dir) || !e.Good() || e.Free() || u != e.Use {
			problem("inode %d has the quota %+v with %+v in use, but should have %+v", e.Dir, e.Limits, e.Use, u)
		}
	}
}
