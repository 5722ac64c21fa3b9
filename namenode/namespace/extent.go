package namespace

// maxDeepLook is how many inodes below a directory a rename looks at for paths
// that get too long. One that hides them behind more may make longer ones: they
// cannot be named then, but renamed and deleted from above.
const maxDeepLook = 2000

// deepens reports whether a directory's move makes paths below it too long.
func (v view) deepens(dir *inode, to place) bool {
	depth, size := v.slots.Extent(to.dir.ID)
	depth, size = depth+1, size+1+len(to.name)
	if d, s := v.slots.Extent(dir.ID); depth <= d && size <= s {
		return false
	}
	n := v.slots.TooDeep(dir.ID, depth, size, maxDeepLook, v.isDead)
	for at := n; at != nil && at.ID != dir.ID; at = v.get(at.Parent) {
		v.lookAttr(at.ID)
	}
	return n != nil
}
