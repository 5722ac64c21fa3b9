package snapshots

import (
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
	runs  int // in pages
	dirs  map[tables.InodeID][]bool
	steps int // snapshots, and blocks of theirs, that were looked at
}

// run are snapshots, by their places, that share a page.
type run struct {
	first, end int
	page       node.View
}

// What a finder keeps at most.
const (
	mostRuns = 1 << 16
	mostDirs = 1 << 10
)

// newFinder returns one for the snapshots that there are. It is changed by what it is asked.
func newFinder(t *Table) *finder {
	f := &finder{snaps: make([]*Snapshot, 0, t.Len()), pages: make(map[uint64][]run), dirs: make(map[tables.InodeID][]bool)}
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
	if f.runs += len(runs); f.runs > mostRuns {
		clear(f.pages)
		f.runs = len(runs)
	}
	f.pages[page] = runs
	return runs
}

// in says for each snapshot whether it has a directory; nil: none has.
func (f *finder) in(dir tables.InodeID) []bool {
	if has, known := f.dirs[dir]; known {
		return has
	}
	var has []bool
	for _, r := range f.of(dir) {
		n, _ := r.page.Get(dir)
		if n == nil {
			continue
		}
		var above []bool
		if n.Parent != 0 {
			above = f.in(n.Parent)
		}
		for i, s := range f.snaps[r.first:r.end] {
			if i += r.first; (dir == s.Dir || above != nil && above[i]) && !s.Hides(dir) {
				if has == nil {
					has = make([]bool, len(f.snaps))
				}
				has[i] = true
			}
		}
		f.steps += r.end - r.first
	}
	if len(f.dirs) >= mostDirs {
		clear(f.dirs)
	}
	f.dirs[dir] = has
	return has
}

// lists calls fn with the newest snapshots that have a file, one for each list of its blocks that
// is no beginning of the one before, until it returns false.
func (f *finder) lists(file tables.InodeID, fn func(s *Snapshot, blocks []content.Block) bool) {
	var last []content.Block
	for _, r := range f.of(file) {
		n, x := r.page.Get(file)
		if x == nil || len(x.Blocks) == 0 || len(last) >= len(x.Blocks) && &last[0] == &x.Blocks[0] {
			continue
		}
		above := f.in(n.Parent)
		if above == nil {
			continue
		}
		for i := r.first; i < r.end; i++ {
			f.steps++
			if s := f.snaps[i]; above[i] && !s.Hides(file) {
				last = x.Blocks
				f.steps += len(last)
				if !fn(s, last) {
					return
				}
				break
			}
		}
	}
}

// holders calls fn for blocks of a file, each with the newest snapshot that has it, nil if none
// has.
func (f *finder) holders(file tables.InodeID, blocks []content.Block, fn func(content.Block, *Snapshot)) {
	var by map[blockstore.Key]*Snapshot
	left := len(blocks)
	f.lists(file, func(s *Snapshot, list []content.Block) bool {
		if by == nil {
			by = make(map[blockstore.Key]*Snapshot, left)
			for _, b := range blocks {
				by[b.Key] = nil
			}
		}
		for _, b := range list {
			if has, asked := by[b.Key]; asked && has == nil {
				by[b.Key] = s
				left--
			}
		}
		return left > 0
	})
	for _, b := range blocks {
		fn(b, by[b.Key])
	}
}
