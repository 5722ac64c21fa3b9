package namespace

import (
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fspath"
)

// maxDeepLook is how many inodes below a directory a rename looks at for paths
// that get too long. One that hides them behind more may make longer ones: they
// cannot be named then, but renamed and deleted from above.
const maxDeepLook = 2000

// fits reports whether a path of that extent can be named.
func fits(depth, size int) bool { return depth <= fspath.MaxDepth && size <= fspath.MaxPath }

func tooLong(op, path, what string) error {
	return fserror.New(fserror.NameTooLong, op, path, "%s would be over the limits of %d components and %d bytes", what, fspath.MaxDepth, fspath.MaxPath)
}

// deepens reports whether a directory's move makes paths below it too long.
func (v view) deepens(dir *inode, to place) bool {
	depth, size := v.extent(to.dir)
	depth, size = depth+1, size+1+len(to.name)
	if d, s := v.extent(dir); depth <= d && size <= s {
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
		if !fits(depth+len(stack), path) {
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
