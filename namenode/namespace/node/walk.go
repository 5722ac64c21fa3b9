package node

import (
	"errors"
	"io/fs"
	"slices"
	"strings"

	"github.com/leasefs/leasefs/internal/fspath"
	"github.com/leasefs/leasefs/namenode/namespace/calls"
	"github.com/leasefs/leasefs/namenode/namespace/content"
	"github.com/leasefs/leasefs/namenode/namespace/tables"
)

// Size is what an inode has with all that is below it, as far as it was counted: by Measure.
type Size struct {
	Inodes, Files uint64
	Length        int64 // bytes of files
	stack         []sizeLevel
}

type sizeLevel struct {
	id    tables.InodeID
	after string
}

// Measure counts on what an inode has, itself included, about budget inodes, and reports whether
// all are counted; nothing below it changes meanwhile.
func (t *Table) Measure(id tables.InodeID, size *Size, budget int) (done bool) {
	count := func(n *Inode) {
		size.Inodes++
		if n.Type == calls.TypeFile {
			size.Files++
			size.Length += n.Length()
		}
		if n.Type == calls.TypeDir && n.Entries() > 0 {
			size.stack = append(size.stack, sizeLevel{id: n.ID})
		}
	}
	if size.Inodes == 0 {
		count(t.Inode(id))
	}
	for len(size.stack) > 0 && budget > 0 {
		top := len(size.stack) - 1
		l := size.stack[top]
		ended := true
		t.Children(l.id, l.after, func(n *Inode) bool {
			size.stack[top].after = n.Name()
			count(n)
			budget--
			ended = len(size.stack)-1 == top && budget > 0
			return ended
		})
		if ended {
			size.stack = size.stack[:top]
		}
	}
	return len(size.stack) == 0
}

// TooDeep returns an inode below a directory whose path does not fit if the directory has a path
// of size bytes and depth names; nil: there is none among some budget inodes, or it is hidden.
func (t *Table) TooDeep(dir tables.InodeID, depth, size, budget int, hidden func(*Inode) bool) *Inode {
	stack := []*Level{{ID: dir, Path: size}}
	for ; budget > 0 && len(stack) > 0; budget-- {
		l := stack[len(stack)-1]
		n := t.Next(l)
		if n == nil {
			stack = stack[:len(stack)-1]
		}
		if n == nil || hidden(n) {
			continue
		}
		path := l.Path + 1 + int(n.NameLen)
		if !fspath.Fits(depth+len(stack), path) {
			return n
		}
		if n.Type == calls.TypeDir && n.Entries() > 0 {
			stack = append(stack, &Level{ID: n.ID, Path: path})
		}
	}
	return nil
}

// Walk calls fn for an inode, whose path is top, and for all that is below it and not hidden: a
// directory before its entries, entries by name. A path is good until fn returns. If that returns
// fs.SkipDir for a directory its entries are left out; any other error ends the walk and is
// returned. The table does not change meanwhile.
func (t *Table) Walk(n *Inode, top string, hidden func(*Inode) bool, fn func(path []byte, n *Inode) error) error {
	path := []byte(top)
	var stack []*Level
	visit := func(n *Inode) error {
		if err := fn(path, n); err != nil {
			return Ended(err)
		}
		if n.Type == calls.TypeDir && n.Entries() > 0 {
			stack = append(stack, &Level{ID: n.ID, Path: len(path)})
		}
		return nil
	}
	if err := visit(n); err != nil {
		return err
	}
	for len(stack) > 0 {
		l := stack[len(stack)-1]
		n := t.Next(l)
		if n == nil {
			stack = stack[:len(stack)-1]
		}
		if n == nil || hidden(n) {
			continue
		}
		if path = path[:l.Path]; l.Path > 1 { // not the root
			path = append(path, '/')
		}
		path = n.AppendName(path)
		if err := visit(n); err != nil {
			return err
		}
	}
	return nil
}

// Ended is the error with which a walk ends that got err of fn: fs.SkipDir is none.
func Ended(err error) error {
	if errors.Is(err, fs.SkipDir) {
		return nil
	}
	return err
}

// Path is the path of an inode below the topmost inode above it, such as /a/b, whether that is the
// root or not. A topmost inode itself has the path / if it is the root, else none.
func (t *Table) Path(n *Inode) string {
	if n.ID == calls.RootID {
		return "/"
	}
	var names []string
	for n := n.Edit(); n.Parent != 0; t.Read(n.Parent, n) {
		names = append(names, n.Name())
	}
	names = append(names, "") // the root's
	slices.Reverse(names)
	return strings.Join(names, "/")
}

// Hangs reports whether going up from a directory ends. It knows of some that it does, and learns
// of others.
func (t *Table) Hangs(dir *Inode, known map[tables.InodeID]bool) bool {
	var way []tables.InodeID
	seen := map[tables.InodeID]bool{}
	for !known[dir.ID] && dir.Parent != 0 {
		if seen[dir.ID] {
			return false
		}
		seen[dir.ID] = true
		way = append(way, dir.ID)
		if dir = t.Inode(dir.Parent); dir == nil {
			return false
		}
	}
	for _, id := range way {
		known[id] = true
	}
	return true
}

// Tails calls fn for every file that has a tail, by number, until it returns false, with the last
// block before that; nil if there is none.
func (t *Table) Tails(fn func(n *Inode, last *content.Block) bool) {
	t.EachInode(0, func(n *Inode) bool {
		if len(n.Tail()) == 0 {
			return true
		}
		var last *content.Block
		if blocks := n.Blocks(); len(blocks) > 0 {
			b := blocks[len(blocks)-1]
			last = &b
		}
		return fn(n, last)
	})
}
