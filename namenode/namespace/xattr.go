package namespace

import (
	"github.com/leasefs/leasefs/namenode/namespace/calls"
	"github.com/leasefs/leasefs/namenode/namespace/tables"
)

// MaxXattrMemory is how many bytes of memory all extended attributes may take
// together.
const MaxXattrMemory = 256 << 20

// countXattrs counts memory that extended attributes of an inode take, or give back, for all and
// for the inode's owner.
func (t *inodes) countXattrs(n *inode, more int64) {
	t.counts.XattrBytes += more
	t.Uses.Of(n.User).Xattrs += more
}

// readXattr puts one that an image has; false: its inode is not there.
func (t *inodes) readXattr(x tables.Xattr) bool {
	n := t.get(x.Inode)
	if n != nil {
		t.countXattrs(n, t.xattrs.Put(x))
	}
	return n != nil
}

// Xattrs returns the extended attributes of an inode in the order of names. It
// takes permission to read it. Errors as for Stat.
func (t *Tree) Xattrs(c *Call, r Ref) (xattrs []calls.Xattr, err error) {
	v, at, err := see(view{t, c, "getxattr"}, r)
	if err != nil {
		return nil, err
	}
	n := at.node
	v.lookAttr(n.ID)
	if n.Type != TypeSymlink { // anybody may read a link
		if err := v.require(n, mayRead, at.path); err != nil {
			return nil, err
		}
	}
	v.xattrs.Of(n.ID, func(x tables.Xattr) { xattrs = append(xattrs, calls.Xattr{Name: x.Name, Value: []byte(x.Value)}) })
	return xattrs, nil
}
