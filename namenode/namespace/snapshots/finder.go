package snapshots

import (
	"bytes"
	"sort"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/namenode/namespace/content"
	"github.com/leasefs/leasefs/namenode/namespace/node"
	"github.com/leasefs/leasefs/namenode/namespace/tables"
)

// finder finds the snapshots that have a file. Snapshots never change, so what it has found stays
// true until there are others: runs of them that share a page of inodes, which are looked at as
// one, and which have a directory. It keeps that for some pages and directories.
type finder struct {
	snaps []*Snapshot // the newest first
	pages map[uint64][]run
	runs  int // in pages, and one more for each page
	dirs  map[tables.InodeID][]presence
	steps int // snapshots, and blocks of theirs, that were looked at: tests count them
}

// run are snapshots, by their places, that share a page.
type run struct {
	first, end int
	page       node.View
}

// presence says whether a snapshot has a directory.
type presence = byte

const (
	unknown presence = iota
	absent
	present
)

// What a finder keeps at most.
const (
	mostRuns = 1 << 16
	mostDirs = 1 << 10
)

// newFinder returns one for the snapshots that there are. It is changed by what it is asked.
func newFinder(t *Table) *finder {
	f := &finder{snaps: make([]*Snapshot, 0, t.Len()), pages: make(map[uint64][]run), dirs: make(map[tables.InodeID][]presence)}
	t.Newest(func(s *Snapshot) bool {
		f.snaps = append(f.snaps, s)
		return true
	})
	return f
}

// of are the runs that share the page of an inode.
func (f *finder) of(id tables.InodeID) []run {
	page := node.PageOf(id)
	if known, ok := f.pages[page]; ok {
		return known
	}
	var runs []run
	for i, s := range f.snaps {
		f.steps++
		v := s.In.Inodes.View(id)
		if last := len(runs) - 1; last >= 0 && runs[last].page == v {
			runs[last].end++
		} else {
			runs = append(runs, run{i, i + 1, v})
		}
	}
	if f.runs += len(runs) + 1; f.runs > mostRuns {
		clear(f.pages)
		f.runs = len(runs) + 1
	}
	f.pages[page] = runs
	return runs
}

// known is what is known of the presence of a directory, to be added to.
func (f *finder) known(dir tables.InodeID) []presence {
	known, ok := f.dirs[dir]
	if !ok {
		if len(f.dirs) >= mostDirs {
			clear(f.dirs)
		}
		known = make([]presence, len(f.snaps))
		f.dirs[dir] = known
	}
	return known
}

// place is a directory on the way up in some snapshots, of which it is not known yet whether they
// have where the way began.
type place struct {
	dir        tables.InodeID
	first, end int
}

// in says of each snapshot from first to before end whether it has a directory. Of others it says
// nothing, nor does it look for parents in them: over several snapshots, two directories may each
// be the other's parent. It is a loop since a tree may have any depth.
func (f *finder) in(dir tables.InodeID, first, end int) []presence {
	known := f.known(dir)
	var passed []place // on the way up, but dir
	for todo := []place{{dir, first, end}}; len(todo) > 0; {
		p := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if p.dir != dir && len(passed) < mostDirs/2 {
			passed = append(passed, p)
		}
		runs := f.of(p.dir)
		at := sort.Search(len(runs), func(i int) bool { return runs[i].end > p.first })
		for _, r := range runs[at:] {
			if r.first >= p.end {
				break
			}
			r.first, r.end = max(r.first, p.first), min(r.end, p.end)
			todo = f.decide(known, p.dir, r, todo)
		}
	}
	for _, p := range passed {
		copy(f.known(p.dir)[p.first:p.end], known[p.first:p.end])
	}
	return known
}

// decide notes which of the snapshots of a run, of which that is unknown yet, have what is below a
// directory. It appends the places at which the others decide it.
func (f *finder) decide(known []presence, dir tables.InodeID, r run, todo []place) []place {
	if bytes.IndexByte(known[r.first:r.end], unknown) < 0 {
		return todo
	}
	n, _ := r.page.Get(dir)
	before := f.dirs[dir]
	above := -1 // the first of those that are not decided here
	for i := r.first; i <= r.end; i++ {
		if i < r.end && known[i] == unknown {
			switch s := f.snaps[i]; {
			case before != nil && before[i] != unknown:
				known[i] = before[i]
			case n == nil || s.Hides(dir) || dir != s.Dir && n.Parent == 0:
				known[i] = absent
			case dir == s.Dir:
				known[i] = present
			}
			if known[i] == unknown {
				if above < 0 {
					above = i
				}
				continue
			}
		}
		if above >= 0 {
			todo = append(todo, place{n.Parent, above, i})
			above = -1
		}
	}
	f.steps += r.end - r.first
	return todo
}

// A list of a file's blocks changes at its end alone, and a block that a file has given up while a
// snapshot had it never comes back. So two versions of a file have in common what both begin with,
// and a version between two has what these have in common.

// lists calls fn with the snapshots that have a file, the newest first, and with those of its blocks
// that the newer one does not have, until it returns false. The newest is compared with a list of
// the tree.
func (f *finder) lists(file tables.InodeID, newer []content.Block, fn func(s *Snapshot, more []content.Block) bool) {
	for _, r := range f.of(file) {
		n, x := r.page.Get(file)
		if n == nil {
			continue
		}
		above := f.in(n.Parent, r.first, r.end)
		for i := r.first; i < r.end; i++ {
			at := bytes.IndexByte(above[i:r.end], present)
			if f.steps++; at < 0 {
				break
			}
			i += at
			if s := f.snaps[i]; !s.Hides(file) {
				list := blocksOf(x)
				more := list[f.common(newer, list):]
				if newer = list; !fn(s, more) {
					return
				}
				break
			}
		}
	}
}

// common is how many blocks two versions of a file have in common.
func (f *finder) common(a, b []content.Block) int {
	most := min(len(a), len(b))
	if most == 0 || a[most-1].Key == b[most-1].Key {
		return most
	}
	return sort.Search(most, func(i int) bool {
		f.steps++
		return a[i].Key != b[i].Key
	})
}

// begin is how many blocks at the beginning of two lists are the same; it relies on nothing about them.
func begin(a, b []content.Block) (n int) {
	for n < min(len(a), len(b)) && a[n].Key == b[n].Key {
		n++
	}
	return n
}

func blocksOf(x *node.Ext) []content.Block {
	if x == nil {
		return nil
	}
	return x.Blocks
}

// newest is the newest snapshot that has a file, nil if none has, and its blocks. Blocks of
// the tree that are not among them are in no snapshot.
func (f *finder) newest(file tables.InodeID) (newest *Snapshot, blocks []content.Block) {
	f.lists(file, nil, func(s *Snapshot, list []content.Block) bool {
		newest, blocks = s, list
		return false
	})
	return newest, blocks
}

// holders are, by block, the newest snapshots that have some blocks of a file that the tree does not
// have; live are those that the tree has. looked is how many blocks were looked at; it does not depend
// on what memory the snapshots share.
func (f *finder) holders(file tables.InodeID, live, blocks []content.Block) (by map[blockstore.Key]*Snapshot, looked int) {
	by = make(map[blockstore.Key]*Snapshot, len(blocks))
	for _, b := range blocks {
		by[b.Key] = nil
	}
	left := len(blocks)
	f.lists(file, live, func(s *Snapshot, more []content.Block) bool {
		for _, b := range more {
			if has, asked := by[b.Key]; asked && has == nil {
				by[b.Key] = s
				left--
			}
		}
		looked += len(more)
		f.steps += len(more)
		return left > 0
	})
	return by, looked
}
