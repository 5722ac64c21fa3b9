package namespace

import (
	"cmp"
	"strings"
	"unicode/utf8"

	"github.com/leasefs/leasefs/internal/fserror"
)

// Limits of extended attributes.
const (
	// XattrPrefix begins the name of each.
	XattrPrefix = "user."
	// MaxXattrName is how many bytes a name may have, the prefix included, as in
	// Linux.
	MaxXattrName = 255
	// MaxXattrValue is how many bytes a value may have.
	MaxXattrValue = 12 << 10
	// MaxXattrs is how many bytes the names and values of one inode may have.
	MaxXattrs = 16 << 10
	// MaxXattrMemory is how many bytes of memory all may take together.
	MaxXattrMemory = 256 << 20

	xattrOverhead = 128 // bytes of memory that one takes besides name and value
)

// Xattr is one extended attribute. Its value is shared with the tree: it is
// valid for ever, and not to be changed.
type Xattr struct {
	Name  string
	Value []byte
}

// xattrItem is one extended attribute of an inode. It is replaced, never
// changed.
type xattrItem struct {
	inode InodeID
	name  string
	value string
}

func lessXattr(a, b xattrItem) bool {
	return cmp.Or(cmp.Compare(a.inode, b.inode), cmp.Compare(a.name, b.name)) < 0
}

// size is how much of MaxXattrs it takes.
func (x xattrItem) size() int { return len(x.name) + len(x.value) }

// memory is how much of MaxXattrMemory it takes.
func (x xattrItem) memory() int64 { return int64(x.size() + xattrOverhead) }

// putXattr makes or replaces one, of an inode that is in the table.
func (t *Tree) putXattr(x xattrItem) {
	t.countXattr(x, 1)
	if old, had := t.xattrs.ReplaceOrInsert(x); had {
		t.countXattr(old, -1)
	}
}

func (t *Tree) deleteXattr(x xattrItem) {
	if old, had := t.xattrs.Delete(x); had {
		t.countXattr(old, -1)
	}
}

// countXattr counts one, sign times, for all and for the inode's owner.
func (t *Tree) countXattr(x xattrItem, sign int64) {
	t.counts.XattrBytes += sign * x.memory()
	t.uses.of(t.get(x.inode).user).xattrs += sign * x.memory()
}

// xattrMemory is how much those of an inode take.
func (t *Tree) xattrMemory(id InodeID) (sum int64) {
	t.xattrsOf(id, func(x xattrItem) { sum += x.memory() })
	return sum
}

// xattrsOf calls fn for the extended attributes of an inode in the order of
// names.
func (t *Tree) xattrsOf(id InodeID, fn func(xattrItem)) {
	if t.xattrs.Len() == 0 {
		return
	}
	t.xattrs.AscendGreaterOrEqual(xattrItem{inode: id}, func(x xattrItem) bool {
		if x.inode != id {
			return false
		}
		fn(x)
		return true
	})
}

// dropXattrs forgets the extended attributes of an inode that goes.
func (t *Tree) dropXattrs(id InodeID) {
	var gone []xattrItem
	t.xattrsOf(id, func(x xattrItem) { gone = append(gone, x) })
	for _, x := range gone {
		t.deleteXattr(x)
	}
}

// CheckXattrName returns an error unless an extended attribute may have this
// name: Unsupported outside of the user namespace, TooLarge, InvalidArgument.
func CheckXattrName(name string) error {
	switch {
	case !strings.HasPrefix(name, XattrPrefix):
		return fserror.New(fserror.Unsupported, "", "", "%q is not a name for an extended attribute here; choose one that begins with %q, such as %scolor", name, XattrPrefix, XattrPrefix)
	case len(name) == len(XattrPrefix):
		return fserror.New(fserror.InvalidArgument, "", "", "the name of the extended attribute has nothing after %q", XattrPrefix)
	case len(name) > MaxXattrName:
		return fserror.New(fserror.TooLarge, "", "", "the name of the extended attribute has %d bytes; the limit is %d", len(name), MaxXattrName)
	case !utf8.ValidString(name) || strings.IndexByte(name, 0) >= 0:
		return fserror.New(fserror.InvalidArgument, "", "", "the name of the extended attribute, %q, is not UTF-8 or has a NUL", name)
	}
	return nil
}

// xattrBytes is how many bytes the extended attributes of an inode have.
func (t *Tree) xattrBytes(id InodeID) (sum int) {
	t.xattrsOf(id, func(x xattrItem) { sum += x.size() })
	return sum
}

// Xattrs returns the extended attributes of an inode in the order of names. It
// takes permission to read it. Errors as for Stat.
func (t *Tree) Xattrs(c *Call, at Target, follow bool) (xattrs []Xattr, err error) {
	const op = "getxattr"
	n, path, err := t.aim(c, op, at, follow)
	if err != nil {
		return nil, err
	}
	t.lookAttr(c, n.id)
	if n.typ != TypeSymlink { // anybody may read a link
		if err := t.require(c, n, mayRead, op, path); err != nil {
			return nil, err
		}
	}
	t.xattrsOf(n.id, func(x xattrItem) { xattrs = append(xattrs, Xattr{x.name, []byte(x.value)}) })
	return xattrs, nil
}
