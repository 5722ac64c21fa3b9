package snapshots

import (
	"cmp"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fspath"
	"github.com/leasefs/leasefs/namenode/namespace/content"
	"github.com/leasefs/leasefs/namenode/namespace/node"
	"github.com/leasefs/leasefs/namenode/namespace/tables"
)

// Limits of snapshots. For each file whose blocks are freed all snapshots may be looked at, but of
// their versions of the file only what differs.
const (
	// MaxOfDir is how many snapshots a directory may have.
	MaxOfDir = 1024
	// Max is how many a namespace may have.
	Max = 4096
	// MaxAllowed is how many directories may be allowed to have snapshots.
	MaxAllowed = 65536
)

// Table has the snapshots of a namespace.
type Table struct {
	byID    tables.Set[*Snapshot]
	byName  tables.Set[*Snapshot]
	byAge   tables.Set[*Snapshot]
	allowed tables.Set[tables.InodeID]
	held    holdings
	last    ID      // the number of the last one that was made
	find    *finder // for the snapshots that there are; nil: not made yet
}

// NewTable returns an empty table.
func NewTable() Table {
	return Table{
		byID: tables.NewSet(func(a, b *Snapshot) bool { return a.ID < b.ID }),
		byName: tables.NewSet(func(a, b *Snapshot) bool {
			return cmp.Or(cmp.Compare(a.Dir, b.Dir), cmp.Compare(a.Name, b.Name)) < 0
		}),
		byAge:   tables.NewSet(func(a, b *Snapshot) bool { return a.age < b.age }),
		allowed: tables.NewSet(cmp.Less[tables.InodeID]),
		held:    newHoldings(),
	}
}

// Clone returns a snapshot of the table, in constant time.
func (t *Table) Clone() Table {
	return Table{t.byID.Clone(), t.byName.Clone(), t.byAge.Clone(), t.allowed.Clone(), t.held.clone(), t.last, nil}
}

// Len is how many snapshots there are.
func (t *Table) Len() int { return t.byID.Len() }

// Allowed is how many directories may have snapshots.
func (t *Table) Allowed() int { return t.allowed.Len() }

// Held is how many blocks only snapshots have, those of deleted ones that are still to be freed
// included, and how many bytes they take in the block store.
func (t *Table) Held() (blocks int, bytes int64) {
	return t.held.byHolder.Len(), t.held.sum(0).bytes
}

// HeldBy is how many bytes blocks take in the block store that only snapshots have, and of these one
// of a number as the newest.
func (t *Table) HeldBy(id ID) int64 { return t.held.sum(id).bytes }

// HeldOf is the sum of HeldBy over the snapshots of a directory.
func (t *Table) HeldOf(dir tables.InodeID) (bytes int64) {
	t.Of(dir, "", func(s *Snapshot) bool { bytes += t.HeldBy(s.ID); return true })
	return bytes
}

// HeldBelow is, for each of some directories, the sum of HeldOf of it and of all below it. parent
// returns the directory that one is in, 0 of the root. Its time grows with the number of snapshots
// and the depth of their directories; if no directories are asked for, it takes none.
func (t *Table) HeldBelow(dirs []tables.InodeID, parent func(tables.InodeID) tables.InodeID) map[tables.InodeID]int64 {
	if len(dirs) == 0 || t.held.byHolder.Len() == 0 {
		return nil
	}
	below := make(map[tables.InodeID]int64, len(dirs))
	for _, dir := range dirs {
		below[dir] = 0
	}
	t.Dirs(func(dir tables.InodeID) bool {
		if bytes := t.HeldOf(dir); bytes > 0 {
			for ; dir != 0; dir = parent(dir) {
				if sum, asked := below[dir]; asked {
					below[dir] = sum + bytes
				}
			}
		}
		return true
	})
	return below
}

// Get returns the snapshot of a number, nil if there is none.
func (t *Table) Get(id ID) *Snapshot {
	if id == 0 { // of each inode that is in none
		return nil
	}
	s, _ := t.byID.Get(&Snapshot{ID: id})
	return s
}

// Named returns a snapshot of a directory by its name, nil if there is none.
func (t *Table) Named(dir tables.InodeID, name string) *Snapshot {
	s, _ := t.byName.Get(&Snapshot{Dir: dir, Name: name})
	return s
}

// Of calls fn for the snapshots of a directory whose names are greater than after, in the order
// of the bytes of their names, until it returns false.
func (t *Table) Of(dir tables.InodeID, after string, fn func(*Snapshot) bool) {
	t.byName.From(&Snapshot{Dir: dir, Name: after}, func(s *Snapshot) bool {
		return s.Dir == dir && (after != "" && s.Name == after || fn(s))
	})
}

// List returns those of Of, up to limit. Unless that were all, next is the last one's name.
func (t *Table) List(dir tables.InodeID, after string, limit int) (list []*Snapshot, next string) {
	t.Of(dir, after, func(s *Snapshot) bool {
		if len(list) == limit {
			next = list[limit-1].Name
			return false
		}
		list = append(list, s)
		return true
	})
	return list, next
}

// Count is how many snapshots a directory has. It takes time for each.
func (t *Table) Count(dir tables.InodeID) (n int) {
	t.Of(dir, "", func(*Snapshot) bool { n++; return true })
	return n
}

// Newest calls fn for all snapshots, those made last first, until it returns false.
func (t *Table) Newest(fn func(*Snapshot) bool) { t.byAge.Descend(fn) }

// IsAllowed reports whether a directory may have snapshots.
func (t *Table) IsAllowed(dir tables.InodeID) bool {
	return t.allowed.Len() > 0 && t.allowed.Has(dir)
}

// EachAllowed calls fn for the directories that may have snapshots, from a number on, in the
// order of numbers, until it returns false.
func (t *Table) EachAllowed(from tables.InodeID, fn func(tables.InodeID) bool) {
	t.allowed.From(from, fn)
}

// Dirs calls fn for the directories that have snapshots, by number, until it returns false.
func (t *Table) Dirs(fn func(tables.InodeID) bool) {
	for dir, more := tables.InodeID(0), true; more; dir++ {
		more = false
		t.byName.From(&Snapshot{Dir: dir}, func(s *Snapshot) bool {
			dir, more = s.Dir, fn(s.Dir)
			return false
		})
	}
}

// Below returns a directory that has snapshots and is another one, or below it, in a tree's table.
// If there is nothing in that one, no other directories are looked at.
func (t *Table) Below(in *node.Table, top *node.Inode) (dir tables.InodeID, has bool) {
	if top.Entries() == 0 {
		t.Of(top.ID, "", func(*Snapshot) bool { has = true; return false })
		return top.ID, has
	}
	t.Dirs(func(d tables.InodeID) bool {
		dir, has = d, in.IsBelow(d, top.ID)
		return !has
	})
	return dir, has
}

// Allow lets a directory have snapshots, or no longer.
func (t *Table) Allow(dir tables.InodeID, allow bool) {
	if allow {
		t.allowed.ReplaceOrInsert(dir)
	} else if t.allowed.Len() > 0 {
		t.allowed.Delete(dir)
	}
}

// Room returns an error if a directory that is allowed to have snapshots can have no more, or
// none of a name. Errors: InvalidPath, NameTooLong, Exists, NoSpace, which names the limit.
func (t *Table) Room(dir tables.InodeID, name string) error {
	if err := t.free(dir, name); err != nil {
		return err
	}
	switch {
	case t.Len() >= Max:
		return fserror.New(fserror.NoSpace, "", "", "the namespace has %d snapshots, and can have no more; delete some", Max)
	case t.next() == 0:
		return fserror.New(fserror.NoSpace, "", "", "%d snapshots were deleted whose blocks are still to be freed; try again later", uint64(MaxID)-Max)
	case t.Count(dir) >= MaxOfDir:
		return fserror.New(fserror.NoSpace, "", "", "the directory has %d snapshots, and can have no more; delete some", MaxOfDir)
	}
	return nil
}

// next is the number of a snapshot to make; 0: all are in use.
func (t *Table) next() ID {
	id := t.last
	for range MaxID {
		id = id%MaxID + 1
		if h, _ := t.held.first(id); h.By != id && t.Get(id) == nil {
			return id
		}
	}
	return 0
}

func (t *Table) free(dir tables.InodeID, name string) error {
	if err := fspath.CheckName(name); err != nil {
		return err
	}
	if t.Named(dir, name) != nil {
		return fserror.New(fserror.Exists, "", "", "the directory has a snapshot %q already; choose another name", name)
	}
	return nil
}

// Make makes a snapshot, for which there is Room, of a directory in in, of which it is the only
// owner. Its number is the next one that is
// free.
func (t *Table) Make(dir tables.InodeID, name string, time int64, next tables.InodeID, in In) *Snapshot {
	t.last = t.next()
	s := &Snapshot{ID: t.last, Dir: dir, Name: name, Time: time, Next: next, In: in, age: 1}
	if newest, is := t.byAge.Max(); is {
		s.age = newest.age + 1
	}
	t.put(s)
	return s
}

func (t *Table) put(s *Snapshot) {
	t.find = nil
	t.byID.ReplaceOrInsert(s)
	t.byName.ReplaceOrInsert(s)
	t.byAge.ReplaceOrInsert(s)
}

// Rename gives a snapshot another name, which it may have.
func (t *Table) Rename(s *Snapshot, name string) {
	t.byName.Delete(s)
	renamed := *s
	renamed.Name = name
	t.put(&renamed)
}

// Delete forgets a snapshot. What it holds is then to be reclaimed.
func (t *Table) Delete(s *Snapshot) {
	t.find = nil
	t.byID.Delete(s)
	t.byName.Delete(s)
	t.byAge.Delete(s)
}

// Sharing returns what tells, for one file of the tree after another, which snapshot has some of its
// blocks; nil: none has. It may be called by several at a time.
func (t *Table) Sharing() func(*node.Inode) *Snapshot {
	if t.Len() == 0 {
		return func(*node.Inode) *Snapshot { return nil }
	}
	find := newFinder(t)
	return func(n *node.Inode) *Snapshot {
		s, list := find.newest(n.ID)
		if begin(list, n.Blocks()) == 0 {
			return nil
		}
		return s
	}
}

// Hold keeps those of some blocks, which the tree gives up together, that a snapshot has, and calls
// free for the others. They are those of a file from a place in its list on. It reports whether some
// are kept.
func (t *Table) Hold(file tables.InodeID, from int, blocks []content.Block, free func(content.Block)) (kept bool) {
	var s *Snapshot
	var list []content.Block
	if t.Len() > 0 && len(blocks) > 0 {
		s, list = t.finder().newest(file)
	}
	for i, b := range blocks {
		if i += from; i < len(list) && list[i].Key == b.Key {
			t.held.add(Held{By: s.ID, Inode: file, Block: b})
			kept = true
		} else {
			free(b)
		}
	}
	return kept
}

// finder is one that is kept.
func (t *Table) finder() *finder {
	if t.find == nil {
		t.find = newFinder(t)
	}
	return t.find
}

// Work is how many files without a snapshot can be freed in the time that it takes, at most, to
// give up all blocks of a file: so many fewer are in a slice. Without a snapshot it is 0.
func (t *Table) Work(blocks []content.Block) int {
	if len(blocks) == 0 {
		return 0
	}
	return work(t.Len(), len(blocks))
}

// work is that of a look at all snapshots, and at so many blocks.
func work(snapshots, blocks int) int {
	if snapshots == 0 {
		return 0
	}
	return (snapshots + blocks) / perWork
}

// perWork is how many snapshots and blocks are looked at in the time for a file without.
const perWork = 64

// EachHeld calls fn for the blocks that only snapshots have, in the order of inodes and keys from
// that of a number in a snapshot on (any other: all), until it returns false. The order is the
// same, whatever snapshots are deleted.
func (t *Table) EachHeld(from tables.InodeID, fn func(Held) bool) {
	by, inode := Split(from)
	if by == 0 {
		inode = 0
	}
	t.held.byFile.From(Held{Inode: inode}, fn)
}

// Holder is the number of a file with a block that it, or a snapshot, had: in the snapshot that holds
// it now, the same number if none does.
func (t *Table) Holder(number tables.InodeID, block blockstore.Key) tables.InodeID {
	_, inode := Split(number)
	if h, is := t.held.byFile.Get(Held{Inode: inode, Block: content.Block{Key: block}}); is {
		return h.Number()
	}
	return number
}

// Dying reports whether deleted snapshots still hold blocks.
func (t *Table) Dying() bool { return len(t.dead(1)) > 0 }

// dead are blocks that are held by deleted snapshots, up to limit.
func (t *Table) dead(limit int) (list []Held) {
	from := Held{}
	for more := true; more && len(list) < limit; {
		more = false
		t.held.byHolder.From(from, func(h Held) bool {
			if more = t.Get(h.By) != nil; more { // pass over what it holds
				from = Held{By: h.By + 1}
				return false
			}
			list = append(list, h)
			return len(list) < limit
		})
	}
	return list
}

// Reclaim looks at up to limit blocks that deleted snapshots hold, or fewer if there are many
// snapshots, or blocks in them, to look at: those that another one has are its from then on, for the
// others it calls free. in is the tree's.
func (t *Table) Reclaim(limit int, in *node.Table, free func(content.Block)) {
	dead := t.dead(limit)
	for len(dead) > 0 && limit > 0 {
		first, n := dead[0], 1
		for n < len(dead) && dead[n].By == first.By && dead[n].Inode == first.Inode {
			n++
		}
		blocks := make([]content.Block, n)
		for i, h := range dead[:n] {
			t.held.remove(h)
			blocks[i] = h.Block
		}
		var by map[blockstore.Key]*Snapshot
		looked := 0
		if t.Len() > 0 {
			_, x := in.Get(first.Inode)
			by, looked = t.finder().holders(first.Inode, blocksOf(x), blocks)
		}
		for _, b := range blocks {
			if s := by[b.Key]; s != nil {
				t.held.add(Held{By: s.ID, Inode: first.Inode, Block: b})
			} else {
				free(b)
			}
		}
		dead = dead[n:]
		limit -= n + work(t.Len(), looked)
	}
}
