package watch

import "strings"

// spot is a place in the index with the idle watchers of that place.
type spot struct {
	idle []*Watcher
}

func (s *spot) add(w *Watcher) {
	w.slot = len(s.idle)
	s.idle = append(s.idle, w)
}

func (s *spot) remove(w *Watcher) {
	last := len(s.idle) - 1
	s.idle[w.slot] = s.idle[last]
	s.idle[w.slot].slot = w.slot
	s.idle[last] = nil
	s.idle = s.idle[:last]
}

// wake puts all that wait here at the event, and into the queue of those to be
// woken, but for those whose watch begins later.
func (s *spot) wake(seq, txid uint64) {
	later := s.idle[:0]
	for _, w := range s.idle {
		if txid <= w.base {
			w.slot = len(later)
			later = append(later, w)
			continue
		}
		w.idle = false
		w.pos, w.upTo = seq, txid-1
		if !w.due {
			w.due = true
			w.hub.queue = append(w.hub.queue, w)
		}
	}
	clear(s.idle[len(later):])
	s.idle = later
}

// node is a path in the tree of watched paths. It stays as long as a watcher of
// it, or of something below, is open.
type node struct {
	parent   *node
	name     string
	children map[string]*node
	users    int // open watchers of this very path
	// flat has those that watch the path and what is directly in it, deep
	// those that watch all below.
	flat, deep spot
}

// component cuts the first component off path, which begins with a slash or is
// empty: then ok is false.
func component(path string) (name, rest string, ok bool) {
	if path == "" {
		return "", "", false
	}
	path = path[1:]
	if i := strings.IndexByte(path, '/'); i >= 0 {
		return path[:i], path[i:], true
	}
	return path, "", true
}

// enter returns the node of path, made if need be, for one more watcher.
func (n *node) enter(path string) *node {
	if path == "/" {
		path = ""
	}
	for {
		name, rest, ok := component(path)
		if !ok {
			n.users++
			return n
		}
		child := n.children[name]
		if child == nil {
			if n.children == nil {
				n.children = map[string]*node{}
			}
			// A copy, so that the path is not kept for longer than its watcher.
			name = strings.Clone(name)
			child = &node{parent: n, name: name}
			n.children[name] = child
		}
		n, path = child, rest
	}
}

// leave takes one watcher away, and the nodes that nobody needs any more.
func (n *node) leave() {
	n.users--
	for n.users == 0 && len(n.children) == 0 && n.parent != nil {
		delete(n.parent.children, n.name)
		if len(n.parent.children) == 0 {
			n.parent.children = nil
		}
		n = n.parent
	}
}

// wake wakes all whose filter matches the path of an event (see Filter.match);
// n is the root. moves: those of paths below, too.
func (n *node) wake(path string, moves bool, seq, txid uint64) {
	if path == "" || path[0] != '/' {
		return
	}
	if path == "/" {
		path = ""
	}
	for {
		name, rest, ok := component(path)
		if !ok {
			break
		}
		n.deep.wake(seq, txid)
		if rest == "" {
			n.flat.wake(seq, txid)
		}
		if n = n.children[name]; n == nil {
			return
		}
		path = rest
	}
	n.flat.wake(seq, txid)
	n.deep.wake(seq, txid)
	if moves {
		n.wakeBelow(seq, txid)
	}
}

func (n *node) wakeBelow(seq, txid uint64) {
	for _, child := range n.children {
		child.flat.wake(seq, txid)
		child.deep.wake(seq, txid)
		child.wakeBelow(seq, txid)
	}
}

// inodeSpot is an inode in the map of watched inodes.
type inodeSpot struct {
	spot
	users int // open watchers
}
