package namespace

import (
	"github.com/leasefs/leasefs/internal/fspath"
)

// maxDeepLook is how many inodes below a directory a rename looks at for paths
// that get too long. One that hides them behind more may make longer ones: they
// cannot be named then, but renamed and deleted from above.
const maxDeepLook = 2000

// deepens reports whether a directory's move makes paths below it too long.
func (v view) deepens(dir *inode, to place) bool {
	depth, size := v.slots.Extent(to.dir.id)
	depth, size = depth+1, size+1+len(to.name)
	if d, s := v.slots.Extent(dir.id); depth <= d && size <= s {
		return false
	}
	stack := []*level{{id: dir.id, path: size}}
	for left := maxDeepLook; left > 0 && len(stack) > 0; left-- {
		l := stack[len(stack)-1]
		n := v.next(l)
		if n == nil {
			stack = stack[:len(stack)-1]
		}
		if n == nil || v.isDead(n) {
			continue
		}
		path := l.path + 1 + int(n.nameLen)
		if !fspath.Fits(depth+len(stack), path) {
			for ; n.id != dir.id; n = v.get(n.parent) {
				v.lookAttr(n.id)
			}
			return true
		}
		if n.typ == TypeDir && n.entries() > 0 {
			stack = append(stack, &level{id: n.id, path: path})
		}
	}
	return false
}
