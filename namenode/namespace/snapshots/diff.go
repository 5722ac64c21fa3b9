package snapshots

import (
	"math"
	"slices"

	"github.com/leasefs/leasefs/namenode/namespace/acl"
	"github.com/leasefs/leasefs/namenode/namespace/calls"
	"github.com/leasefs/leasefs/namenode/namespace/node"
	"github.com/leasefs/leasefs/namenode/namespace/tables"
)

// What happened to something between two snapshots.
const (
	Created  DiffKind = iota + 1 // it came, with all below it
	Deleted                      // it went, with all below it that is not listed otherwise
	Renamed                      // it has another directory or name
	Modified                     // it has other content, entries or attributes
)

// DiffKind is what happened to something.
type DiffKind uint8

// Diff is what happened to one inode. Its directory may have been renamed as well: that is told
// of the directory.
type Diff struct {
	Kind  DiffKind
	Inode tables.InodeID // in the tree
	Type  calls.Type
	// From is its path in the one, To in the other snapshot, relative to the directory, and ""
	// for the directory itself; empty of what was created, or deleted.
	From, To string
	Modified bool // also of Renamed
}

// What a call of Differ looks at, at most: pages of 64 numbers, and inodes that are new.
const (
	diffPages = 4096
	diffNew   = 64 * diffPages
	diffDead  = 4096 // inodes that a lease's end took from one of the two
)

// Differ lists what changed from one snapshot to another one of the same directory, in either
// order, in the order of inodes, from a number on: up to limit inodes, or fewer, since it looks at
// a bounded number. next is where to continue; 0: that was all. One of them can be the tree, as a snapshot that was not made by a Table.
func Differ(from, to *Snapshot, start tables.InodeID, limit int) (list []Diff, next tables.InodeID) {
	if !from.isNewer(to) {
		return from.listTo(to, start, limit)
	}
	list, next = to.listTo(from, start, limit) // an older one may have what is hidden in it
	for i := range list {
		d := &list[i]
		switch d.From, d.To = d.To, d.From; d.Kind {
		case Created:
			d.Kind = Deleted
		case Deleted:
			d.Kind = Created
		}
	}
	return list, next
}

// listTo is Differ for a newer one.
func (s *Snapshot) listTo(newer *Snapshot, from tables.InodeID, limit int) (list []Diff, next tables.InodeID) {
	if from < s.Next {
		dead, end := s.died(newer, from)
		stop := tables.InodeID(0) // where the limit is reached
		look := func(id tables.InodeID, was, is *node.Inode) bool {
			if list = s.differ(list, newer, id, was, is); len(list) == limit {
				stop = id + 1
			}
			return stop == 0
		}
		before := func(id tables.InodeID) {
			for ; stop == 0 && len(dead) > 0 && dead[0] <= id; dead = dead[1:] {
				if d := dead[0]; d < id {
					look(d, s.In.Inodes.Inode(d), newer.In.Inodes.Inode(d))
				}
			}
		}
		next = node.Differ(&s.In.Inodes, &newer.In.Inodes, from, diffPages, func(id tables.InodeID, was, is *node.Inode) bool {
			before(min(id, end))
			return stop == 0 && id < end && look(id, was, is)
		})
		if next == 0 || next > end {
			next = end
		}
		if before(next); stop != 0 {
			return list, stop
		}
		if next < s.Next {
			return list, next
		}
		from, next = s.Next, 0
	}
	left := diffNew
	newer.In.Inodes.EachInode(from, func(n *node.Inode) bool {
		if n.ID >= newer.Next {
			return false
		}
		if left == 0 || len(list) == limit {
			next = n.ID
			return false
		}
		left--
		list = s.differ(list, newer, n.ID, nil, n)
		return true
	})
	return list, next
}

// died are the inodes from a number on, below end, in order, that a lease's end took from one
// snapshot and not from the other: that changes no page of theirs. They are the first diffDead.
func (s *Snapshot) died(newer *Snapshot, from tables.InodeID) (list []tables.InodeID, end tables.InodeID) {
	end = s.Next
	first := func() {
		if slices.Sort(list); len(list) > diffDead {
			end, list = list[diffDead], list[:diffDead]
		}
	}
	for _, two := range [2][2]*tables.Leases{{&s.In.Leases, &newer.In.Leases}, {&newer.In.Leases, &s.In.Leases}} {
		two[0].EachDead(func(id tables.InodeID) {
			if id < from || id >= end || two[1].IsDead(id) {
				return
			}
			if list = append(list, id); len(list) == 2*diffDead {
				first()
			}
		})
	}
	first()
	return list, end
}

// differ adds to list what happened to an inode that a snapshot or a newer one may have.
func (s *Snapshot) differ(list []Diff, newer *Snapshot, id tables.InodeID, was, is *node.Inode) []Diff {
	attrs := s.In.Xattrs.DifferOf(&newer.In.Xattrs, id) || s.In.ACLs.DifferOf(&newer.In.ACLs, id)
	if was != nil && is != nil && !attrs && node.Same(was, is) && !s.In.Leases.IsDead(id) && !newer.In.Leases.IsDead(id) {
		return list // what is above it may be elsewhere, and is listed then
	}
	if was != nil && !s.Has(id) {
		was = nil
	}
	if is != nil && !newer.Has(id) {
		is = nil
	}
	switch {
	case was == nil && is == nil:
	case was == nil:
		if s.Has(is.Parent) { // else what is above it came with it
			list = append(list, Diff{Kind: Created, Inode: id, Type: is.Type, To: newer.Path(id)})
		}
	case is == nil:
		if newer.Has(was.Parent) { // else what is above it went with it
			list = append(list, Diff{Kind: Deleted, Inode: id, Type: was.Type, From: s.Path(id)})
		}
	default:
		d := Diff{Kind: Modified, Inode: id, Type: is.Type}
		moved := id != s.Dir && (was.Parent != is.Parent || was.Name() != is.Name())
		d.Modified = attrs || !node.Equal(was, is)
		if moved {
			d.Kind = Renamed
		}
		if moved || d.Modified {
			d.From, d.To = s.Path(id), newer.Path(id)
			list = append(list, d)
		}
	}
	return list
}

// Memory is about how many bytes of memory a snapshot takes that a newer one, or the tree, does
// not share: inodes with their names, block lists, tails, extended attributes and ACLs. It takes
// time for what differs.
func (s *Snapshot) Memory(newer *In) int64 {
	bytes, acls := node.Memory(&s.In.Inodes, &newer.Inodes), map[*acl.ACL]bool{nil: true}
	node.Differ(&s.In.Inodes, &newer.Inodes, 0, math.MaxInt, func(id tables.InodeID, was, _ *node.Inode) bool {
		if was != nil && s.In.Xattrs.DifferOf(&newer.Xattrs, id) {
			bytes += s.In.Xattrs.Memory(id)
		}
		if was != nil && s.In.ACLs.DifferOf(&newer.ACLs, id) {
			access, byDefault := s.In.ACLs.Get(id)
			for _, a := range []*acl.ACL{access, byDefault} {
				if !acls[a] { // inodes share it
					acls[a] = true
					bytes += a.Memory()
				}
			}
		}
		return true
	})
	return bytes
}

// Memory is about how many bytes all take besides the tree. It is meant for clones of the tree.
func (t *Table) Memory(live In) (bytes int64) {
	newer := &live
	t.Newest(func(s *Snapshot) bool {
		bytes += s.Memory(newer)
		newer = &s.In
		return true
	})
	return bytes
}
