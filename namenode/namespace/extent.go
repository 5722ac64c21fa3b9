package namespace

import (
	"github.com/leasefs/leasefs/internal/fspath"
	"github.com/leasefs/leasefs/namenode/namespace/node"
)

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
	stack := []*node.Level{{ID: dir.ID, Path: size}}
	for left := maxDeepLook; left > 0 && len(stack) > 0; left-- {
		l := stack[len(stack)-1]
		n := v.slots.Next(l)
		if n == nil {
			stack = stack[:len(stack)-1]
		}
		if n == nil || v.isDead(n) {
			continue
		}
		path := l.Path + 1 + int(n.NameLen)
		if !fspath.Fits(depth+len(stack), path) {
			for ; n.ID != dir.ID; n = v.get(n.Parent) {
				v.lookAttr(n.ID)
			}
			return true
		}
		if n.Type == TypeDir && n.Entries() > 0 {
			stack = append(stack, &node.Level{ID: n.ID, Path: path})
		}
	}
	return false
}
