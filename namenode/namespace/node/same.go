package node

import (
	"bytes"
	"slices"
	"unsafe"

	"github.com/leasefs/leasefs/namenode/namespace/content"
	"github.com/leasefs/leasefs/namenode/namespace/slots"
	"github.com/leasefs/leasefs/namenode/namespace/tables"
)

// Same reports whether two inodes of a number are equal in all but who has them open.
func Same(a, b *Inode) bool {
	return a.Parent == b.Parent && a.NameLen == b.NameLen && a.name == b.name && longName(a) == longName(b) && Equal(a, b)
}

// Equal reports whether two inodes of a number are equal in all but where they are and who has
// them open.
func Equal(a, b *Inode) bool {
	if a.Type != b.Type || a.Mode != b.Mode || a.User != b.User || a.Group != b.Group || a.MTime != b.MTime {
		return false
	}
	x, y := a.Ext, b.Ext
	if x == y {
		return true
	}
	var none Ext
	if x == nil {
		x = &none
	}
	if y == nil {
		y = &none
	}
	return x.N == y.N && x.Cut == y.Cut && slices.Equal(x.Blocks, y.Blocks) && bytes.Equal(x.Tail, y.Tail)
}

// longName is a name that is not inline.
func longName(n *Inode) string {
	if n.NameLen > Inline {
		return *n.Ext.name
	}
	return ""
}

// Differ is slots.Differ: fn gets what each table has, nil if nothing, good until it returns.
func Differ(a, b *Table, from tables.InodeID, budget int, fn func(id tables.InodeID, was, is *Inode) bool) (next tables.InodeID) {
	var both [2]Inode
	return slots.Differ(&a.Table, &b.Table, from, budget, func(id tables.InodeID, two slots.Pair[Ext]) bool {
		was, is := (*Inode)(nil), (*Inode)(nil)
		if two.Old != nil {
			was = &both[0]
			was.of(id, two.Old, two.OldX)
		}
		if two.New != nil {
			is = &both[1]
			is.of(id, two.New, two.NewX)
		}
		return fn(id, was, is)
	})
}

// Memory is about how many bytes a has that b does not share.
func Memory(a, b *Table) int64 {
	return slots.Memory(&a.Table, &b.Table, func(x *Ext) int64 {
		return extSize + int64(cap(x.Tail)) + int64(cap(x.Blocks))*blockSize
	})
}

// What an Ext takes, and a block of a list, in bytes.
const (
	extSize   = int64(unsafe.Sizeof(Ext{}))
	blockSize = int64(unsafe.Sizeof(content.Block{}))
)
