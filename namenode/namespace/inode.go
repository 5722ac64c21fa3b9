package namespace

import (
	"github.com/leasefs/leasefs/namenode/namespace/content"
	"github.com/leasefs/leasefs/namenode/namespace/slots"
)

// inlineName is how many bytes of a name are in the inode itself. Of a longer
// name these are the first; the whole is in ext.
const inlineName = slots.Inline

// modeBits are the permission, sticky and set-id bits that a mode may have.
const modeBits = 0o7777

// inode is one file, directory or symbolic link: a copy of what the table has, which
// keeps it as a slots.Node and an ext. It is exactly 64 bytes, one size class of the
// allocator and one cache line.
type inode struct {
	id     InodeID
	parent InodeID // 0: the root, or the top of a detached subtree
	mtime  int64   // Unix milliseconds
	ext    *ext    // nil if nothing of it is needed
	mode   uint16
	user   uint16 // index in Tree.users
	group  uint16 // index in Tree.groups
	typ    Type
	// nameLen is the length of the name in bytes; the rest of the array is zero,
	// so that arrays compare as names do (a name has no NUL).
	nameLen uint8
	name    [inlineName]byte
}

// ext is what only some inodes need. Like inodes it is replaced, never changed.
type ext struct {
	name *string // the whole name, if it is longer than inlineName; else nil
	// n is, of a directory, how many entries it has; of a file, the sum of
	// Used over its blocks, in bytes, which is where the tail begins.
	n int64
	// blocks and tail (of a symbolic link: its target) share their backing
	// arrays with older versions of the same inode: each sees its own prefix.
	// Only the newest version appends, and nothing is ever overwritten.
	blocks []Block
	tail   []byte
	open   *openState // nil: closed
	// cut is the record that shortened the file last, 0 if none did. While it
	// stays, each byte that the file once had stays where it was.
	cut uint64
}

// openState is that of a file open for write. It is replaced, never changed.
type openState struct {
	grant *grant
	last  content.Append // the last AppendTail
}

// grant is who has a file open, and the same for all versions of its inode
// until another has it.
type grant struct {
	holder *Holder
	epoch  uint64
	token  Token
	since  int64 // Unix milliseconds
}

// setName gives an inode that is not yet in a tree its name.
func (n *inode) setName(name string) {
	n.name = [inlineName]byte{}
	copy(n.name[:], name)
	n.nameLen = uint8(len(name)) //nolint:gosec // fspath.CheckName: at most 255
	switch {
	case len(name) > inlineName:
		whole := name // so that a short one does not escape
		n.ownExt().name = &whole
	case n.ext != nil && n.ext.name != nil:
		e := n.ownExt()
		e.name = nil
		n.dropEmptyExt()
	}
}

// nameString is the name.
func (n *inode) nameString() string {
	if n.nameLen > inlineName {
		return *n.ext.name
	}
	return string(n.name[:n.nameLen])
}

// appendName appends the name to b.
func (n *inode) appendName(b []byte) []byte {
	if n.nameLen > inlineName {
		return append(b, *n.ext.name...)
	}
	return append(b, n.name[:n.nameLen]...)
}

// nameRest is what of a long name is not inline.
func (x *ext) nameRest() string { return (*x.name)[inlineName:] }

// edit returns a copy to change and put in the place of n.
func (n *inode) edit() *inode {
	c := *n
	return &c
}

// ownExt gives n, which is not yet in a tree, an ext of its own to change.
func (n *inode) ownExt() *ext {
	e := new(ext)
	if n.ext != nil {
		*e = *n.ext
	}
	n.ext = e
	return e
}

// dropEmptyExt lets go of an ext that says nothing.
func (n *inode) dropEmptyExt() {
	e := n.ext
	if e != nil && e.name == nil && e.n == 0 && len(e.blocks) == 0 && len(e.tail) == 0 && e.open == nil && e.cut == 0 {
		n.ext = nil
	}
}

// entries is how many entries a directory has.
func (n *inode) entries() int64 {
	if n.ext == nil {
		return 0
	}
	return n.ext.n
}

// blocksLength is where a file's tail begins, in bytes.
func (n *inode) blocksLength() int64 {
	if n.ext == nil || n.typ != TypeFile {
		return 0
	}
	return n.ext.n
}

// length is that of a file, or of a link's target, in bytes; 0 for a directory.
func (n *inode) length() int64 {
	if n.ext == nil || n.typ == TypeDir {
		return 0
	}
	if n.typ == TypeSymlink {
		return int64(len(n.ext.tail))
	}
	return n.ext.n + int64(len(n.ext.tail))
}

// cut is the record that shortened a file last, 0 if none did.
func (n *inode) cut() uint64 {
	if n.ext == nil {
		return 0
	}
	return n.ext.cut
}

// blocks is a file's block list, shared.
func (n *inode) blocks() []Block {
	if n.ext == nil {
		return nil
	}
	return n.ext.blocks
}

// tail is a file's tail, shared.
func (n *inode) tail() []byte {
	if n.ext == nil || n.typ != TypeFile {
		return nil
	}
	return n.ext.tail
}

// content is the content of a file, whose memory is shared.
func (n *inode) content() content.File {
	return content.File{Blocks: n.blocks(), End: n.blocksLength(), Tail: n.tail()}
}

// setContent gives an ext that is not yet in a tree the content of a file.
func (x *ext) setContent(f content.File) { x.blocks, x.n, x.tail = f.Blocks, f.End, f.Tail }

// tailMemory is how many bytes of memory the tail takes.
func (n *inode) tailMemory() int64 {
	if n == nil || n.ext == nil || n.typ != TypeFile {
		return 0
	}
	return int64(cap(n.ext.tail))
}

// open is the state of a file open for write, nil if it is closed.
func (n *inode) open() *openState {
	if n.ext == nil {
		return nil
	}
	return n.ext.open
}

// target is where a symbolic link points to.
func (n *inode) target() string { return string(n.ext.tail) }

// openFile is the public form of the open state; n must be open.
func (n *inode) openFile() OpenFile {
	g := n.ext.open.grant
	return OpenFile{Inode: n.id, Epoch: g.epoch, Token: g.token, Holder: *g.holder, Since: g.since}
}

// slot is what the table has of an inode besides its number and its ext.
func (n *inode) slot() slots.Node {
	return slots.Node{
		Parent: n.parent, MTime: n.mtime, Mode: n.mode, User: n.user, Group: n.group,
		Type: uint8(n.typ), NameLen: n.nameLen, Name: n.name,
	}
}

// of makes n the inode that the table has under a number.
func (n *inode) of(id InodeID, s *slots.Node, x *ext) {
	n.id, n.parent, n.mtime, n.ext = id, s.Parent, s.MTime, x
	n.mode, n.user, n.group = s.Mode, s.User, s.Group
	n.typ, n.nameLen, n.name = Type(s.Type), s.NameLen, s.Name
}
