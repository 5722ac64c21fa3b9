package namespace

import (
	"github.com/leasefs/leasefs/namenode/namespace/calls"
	"github.com/leasefs/leasefs/namenode/namespace/tables"
)

// MaxXattrMemory is how many bytes of memory all extended attributes may take
// together.
const MaxXattrMemory = 256 << 20

// putXattr makes or replaces one, of an inode that is in the table.
func (t *inodes) putXattr(x tables.Xattr) {
	t.countXattr(x, 1)
	if old, had := t.xattrs.Put(x); had {
		t.countXattr(old, -1)
	}
}

// addXattr is putXattr for an inode that may not be there.
func (t *inodes) addXattr(x tables.Xattr) bool {
	there := t.get(x.Inode) != nil
	if there {
		t.putXattr(x)
	}
	return there
}

func (t *inodes) deleteXattr(x tables.Xattr) {
	if old, had := t.xattrs.Delete(x); had {
		t.countXattr(old, -1)
	}
}

// countXattr counts one, sign times, for all and for the inode's owner.
func (t *inodes) countXattr(x tables.Xattr, sign int64) {
	t.counts.XattrBytes += sign * x.Memory()
	t.Uses.Of(t.get(x.Inode).User).Xattrs += sign * x.Memory()
}

// xattrMemory is how much those of an inode take.
func (t *inodes) xattrMemory(id InodeID) (sum int64) {
	t.xattrs.Of(id, func(x tables.Xattr) { sum += x.Memory() })
	return sum
}

// dropXattrs forgets the extended attributes of an inode that goes.
func (t *inodes) dropXattrs(id InodeID) {
	var gone []tables.Xattr
	t.xattrs.Of(id, func(x tables.Xattr) { gone = append(gone, x) })
	for _, x := range gone {
		t.deleteXattr(x)
	}
}

// Xattrs returns the extended attributes of an inode in the order of names. It
// takes permission to read it. Errors as for Stat.
func (t *Tree) Xattrs(c *Call, r Ref) (xattrs []calls.Xattr, err error) {
	v := view{t, c, "getxattr"}
	at, err := v.find(r)
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
	t.xattrs.Of(n.ID, func(x tables.Xattr) { xattrs = append(xattrs, calls.Xattr{Name: x.Name, Value: []byte(x.Value)}) })
	return xattrs, nil
}
