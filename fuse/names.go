package fuse

import (
	"sync"

	gofs "github.com/hanwen/go-fuse/v2/fs"

	"github.com/leasefs/leasefs/client"
)

// maxNames is how many names verified directories may depend on; beyond it all
// are verified again.
const maxNames = 100_000

// names counts generations of the names of directories: what was verified in
// one is good until the next begins.
type names struct {
	mu  sync.Mutex
	gen uint64
	of  map[client.RevokedName]struct{} // that verified directories depend on
	top []client.RevokedName            // those on the way to the mount's root
}

func newNames(top []client.RevokedName) *names {
	return &names{gen: 1, of: make(map[client.RevokedName]struct{}), top: top}
}

func (n *names) current() uint64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.gen
}

// dependsOn notes the names on the way to a directory.
func (n *names) dependsOn(dir *gofs.Inode) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.of) > maxNames {
		n.next()
	}
	for _, name := range n.top {
		n.of[name] = struct{}{}
	}
	for !dir.IsRoot() {
		name, parent := dir.Parent()
		if parent == nil {
			return
		}
		n.of[client.RevokedName{Dir: parent.StableAttr().Ino, Name: name}] = struct{}{}
		dir = parent
	}
}

// next begins a generation. The caller holds mu.
func (n *names) next() {
	n.gen++
	clear(n.of)
}

// revoked begins a generation if a name that one depends on is revoked.
func (n *names) revoked(r client.Revocation) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if r.All {
		n.next()
		return
	}
	for _, name := range r.Names {
		if _, ok := n.of[name]; ok {
			n.next()
			return
		}
	}
}
