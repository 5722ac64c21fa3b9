package node

import (
	"github.com/leasefs/leasefs/namenode/namespace/acl"
	"github.com/leasefs/leasefs/namenode/namespace/calls"
	"github.com/leasefs/leasefs/namenode/namespace/content"
	"github.com/leasefs/leasefs/namenode/namespace/slots"
	"github.com/leasefs/leasefs/namenode/namespace/tables"
)

// Inline is how many bytes of a name are in the inode itself. Of a longer
// name these are the first; the whole is in its Ext.
const Inline = slots.Inline

// ModeBits are the permission, sticky and set-id bits that a mode may have.
const ModeBits = 0o7777

// Inode is one file, directory or symbolic link: a copy of what the table has, which
// keeps it as a slots.Node and an Ext. It is exactly 64 bytes, one size class of the
// allocator and one cache line.
type Inode struct {
	ID     tables.InodeID
	Parent tables.InodeID // 0: the root, or the top of a detached subtree
	MTime  int64          // Unix milliseconds
	Ext    *Ext           // nil if nothing of it is needed
	Mode   uint16
	User   uint16 // index among the names of users
	Group  uint16 // index among the names of groups
	Type   calls.Type
	// NameLen is the length of the name in bytes; the rest of the array is zero,
	// so that arrays compare as names do (a name has no NUL).
	NameLen uint8
	name    [Inline]byte
}

// Ext is what only some inodes need. Like inodes it is replaced, never changed.
type Ext struct {
	name *string // the whole name, if it is longer than Inline; else nil
	// N is, of a directory, how many entries it has; of a file, the sum of
	// Used over its blocks, in bytes, which is where the tail begins.
	N int64
	// Blocks and Tail (of a symbolic link: its target) share their backing
	// arrays with older versions of the same inode: each sees its own prefix.
	// Only the newest version appends, and nothing is ever overwritten.
	Blocks []content.Block
	Tail   []byte
	Open   *Open // nil: closed
	// Cut is the record that shortened the file last, 0 if none did. While it
	// stays, each byte that the file once had stays where it was.
	Cut uint64
}

// Open is the state of a file open for write. It is replaced, never changed.
type Open struct {
	Grant *Grant
	Last  content.Append // the last AppendTail
}

// Grant is who has a file open, and the same for all versions of its inode
// until another has it.
type Grant struct {
	Holder *tables.Holder
	Epoch  uint64
	Token  tables.Token
	Since  int64 // Unix milliseconds
}

// SetName gives an inode that is not yet in a tree its name.
func (n *Inode) SetName(name string) {
	n.name = [Inline]byte{}
	copy(n.name[:], name)
	n.NameLen = uint8(len(name)) //nolint:gosec // fspath.CheckName: at most 255
	switch {
	case len(name) > Inline:
		whole := name // so that a short one does not escape
		n.OwnExt().name = &whole
	case n.Ext != nil && n.Ext.name != nil:
		e := n.OwnExt()
		e.name = nil
		n.DropEmptyExt()
	}
}

// Name is the name.
func (n *Inode) Name() string {
	if n.NameLen > Inline {
		return *n.Ext.name
	}
	return string(n.name[:n.NameLen])
}

// AppendName appends the name to b.
func (n *Inode) AppendName(b []byte) []byte {
	if n.NameLen > Inline {
		return append(b, *n.Ext.name...)
	}
	return append(b, n.name[:n.NameLen]...)
}

// nameRest is what of a long name is not inline.
func (x *Ext) nameRest() string { return (*x.name)[Inline:] }

// Edit returns a copy to change and put in the place of n.
func (n *Inode) Edit() *Inode {
	c := *n
	return &c
}

// OwnExt gives n, which is not yet in a tree, an Ext of its own to change.
func (n *Inode) OwnExt() *Ext {
	e := new(Ext)
	if n.Ext != nil {
		*e = *n.Ext
	}
	n.Ext = e
	return e
}

// DropEmptyExt lets go of an Ext that says nothing.
func (n *Inode) DropEmptyExt() {
	e := n.Ext
	if e != nil && e.name == nil && e.N == 0 && len(e.Blocks) == 0 && len(e.Tail) == 0 && e.Open == nil && e.Cut == 0 {
		n.Ext = nil
	}
}

// Entries is how many entries a directory has.
func (n *Inode) Entries() int64 {
	if n.Ext == nil {
		return 0
	}
	return n.Ext.N
}

// BlocksLength is where a file's tail begins, in bytes.
func (n *Inode) BlocksLength() int64 {
	if n.Ext == nil || n.Type != calls.TypeFile {
		return 0
	}
	return n.Ext.N
}

// FileLength is the length of what may be a file; 0 if it is none.
func FileLength(s *slots.Node, x *Ext) int64 {
	if x == nil || calls.Type(s.Type) != calls.TypeFile {
		return 0
	}
	return x.N + int64(len(x.Tail))
}

// Length is that of a file, or of a link's target, in bytes; 0 for a directory.
func (n *Inode) Length() int64 {
	if n.Ext == nil || n.Type == calls.TypeDir {
		return 0
	}
	if n.Type == calls.TypeSymlink {
		return int64(len(n.Ext.Tail))
	}
	return n.Ext.N + int64(len(n.Ext.Tail))
}

// Cut is the record that shortened a file last, 0 if none did.
func (n *Inode) Cut() uint64 {
	if n.Ext == nil {
		return 0
	}
	return n.Ext.Cut
}

// Blocks is a file's block list, shared.
func (n *Inode) Blocks() []content.Block {
	if n.Ext == nil {
		return nil
	}
	return n.Ext.Blocks
}

// Tail is a file's tail, shared.
func (n *Inode) Tail() []byte {
	if n.Ext == nil || n.Type != calls.TypeFile {
		return nil
	}
	return n.Ext.Tail
}

// Content is the content of a file, whose memory is shared.
func (n *Inode) Content() content.File {
	return content.File{Blocks: n.Blocks(), End: n.BlocksLength(), Tail: n.Tail()}
}

// SetContent gives an Ext that is not yet in a tree the content of a file.
func (x *Ext) SetContent(f content.File) { x.Blocks, x.N, x.Tail = f.Blocks, f.End, f.Tail }

// TailMemory is how many bytes of memory the tail takes.
func (n *Inode) TailMemory() int64 {
	if n == nil || n.Ext == nil || n.Type != calls.TypeFile {
		return 0
	}
	return int64(cap(n.Ext.Tail))
}

// Open is the state of a file open for write, nil if it is closed.
func (n *Inode) Open() *Open {
	if n.Ext == nil {
		return nil
	}
	return n.Ext.Open
}

// Target is where a symbolic link points to.
func (n *Inode) Target() string { return string(n.Ext.Tail) }

// OpenFile is the public form of the open state; n must be open.
func (n *Inode) OpenFile() calls.OpenFile {
	g := n.Ext.Open.Grant
	return calls.OpenFile{Inode: n.ID, Epoch: g.Epoch, Token: g.Token, Holder: *g.Holder, Since: g.Since}
}

// slot is what the table has of an inode besides its number and its ext.
func (n *Inode) slot() slots.Node {
	return slots.Node{
		Parent: n.Parent, MTime: n.MTime, Mode: n.Mode, User: n.User, Group: n.Group,
		Type: uint8(n.Type), NameLen: n.NameLen, Name: n.name,
	}
}

// of makes n the inode that the table has under a number.
func (n *Inode) of(id tables.InodeID, s *slots.Node, x *Ext) {
	n.ID, n.Parent, n.MTime, n.Ext = id, s.Parent, s.MTime, x
	n.Mode, n.User, n.Group = s.Mode, s.User, s.Group
	n.Type, n.NameLen, n.name = calls.Type(s.Type), s.NameLen, s.Name
}

// ACLBit is a bit of an inode's mode, in memory alone: it has ACLs, which are in the
// table of these.
const ACLBit uint16 = 0o10000

// Perm is the mode of an inode as others see it.
func (n *Inode) Perm() uint16 { return n.Mode & ModeBits }

// Mark notes whether an inode that is not yet in a tree has ACLs.
func (n *Inode) Mark(has bool) {
	if n.Mode = n.Perm(); has {
		n.Mode |= ACLBit
	}
}

// Inherit gives an inode that is not yet in a tree the mode that it has in a directory with
// a default ACL, nil if it has none, and returns the ACLs that it is to get.
func (n *Inode) Inherit(byDefault *acl.ACL) (acls acl.Of) {
	if byDefault == nil || n.Type == calls.TypeSymlink {
		return acls
	}
	if n.Mode, acls.Access = byDefault.Inherit(n.Mode); n.Type == calls.TypeDir {
		acls.Default = byDefault
	}
	return acls
}
