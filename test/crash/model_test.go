package crash

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

const (
	file    = pb.FileType_FILE_TYPE_FILE
	folder  = pb.FileType_FILE_TYPE_DIRECTORY
	symlink = pb.FileType_FILE_TYPE_SYMLINK
)

// node is what the model knows of one path. What is zero among mtime, inode and
// a writer's epoch is not known and not compared.
type node struct {
	id        string // the script's own name of a file, which it keeps over renames
	typ       pb.FileType
	mode      uint32
	data      string
	target    string
	mtime     int64
	inode     uint64
	xattr     string // name=value of each
	quota     string // its limits, of a folder; empty: none
	cut       int64  // bytes in blocks, while open
	snapshots bool   // may have some; what they have is below .snapshot in the model, too
	lease     uint64 // granted, that it is attached to; not compared
	open      *writer
}

// writer is who has a file open. It is never changed.
type writer struct {
	session string       // its name, as stat shows it
	id      *pb.WriterId // nil: not known
}

// model is a state of the namespace.
type model struct {
	nodes map[string]*node
	bin   map[string]*node // the trash, by the paths that its entries and what is below them had
	safe  bool
	stale []*pb.WriterId // fenced
}

func newModel() *model {
	return &model{nodes: map[string]*node{"/": {typ: folder, mode: 0o755}}, bin: map[string]*node{}}
}

func (m *model) clone() *model {
	c := &model{nodes: make(map[string]*node, len(m.nodes)), bin: maps.Clone(m.bin), safe: m.safe, stale: slices.Clone(m.stale)}
	for p, n := range m.nodes {
		cp := *n
		c.nodes[p] = &cp
	}
	return c
}

func (m *model) isOpen() bool {
	for _, n := range m.nodes {
		if n.open != nil {
			return true
		}
	}
	return false
}

func (m *model) byID(id string) *node {
	for _, n := range m.nodes {
		if n.id == id {
			return n
		}
	}
	return nil
}

func parentOf(path string) string {
	if i := strings.LastIndexByte(path, '/'); i > 0 {
		return path[:i]
	}
	return "/"
}

func (m *model) mkdirAll(path string) {
	if m.nodes[path] != nil {
		return
	}
	m.mkdirAll(parentOf(path))
	m.nodes[path] = &node{typ: folder, mode: 0o755}
}

// fence notes that the file's writer, if it has one, is none any more.
func (m *model) fence(n *node) {
	if n != nil && n.open != nil {
		if n.open.id != nil {
			m.stale = append(m.stale, n.open.id)
		}
		n.open = nil
	}
}

func (m *model) below(path string) []string {
	var out []string
	for p := range m.nodes {
		if strings.HasPrefix(p, path+"/") {
			out = append(out, p)
		}
	}
	return out
}

func (m *model) remove(path string) {
	for _, p := range append(m.below(path), path) {
		m.fence(m.nodes[p])
		delete(m.nodes, p)
	}
}

func (m *model) rename(from, to string) {
	if m.nodes[to] != nil {
		m.remove(to)
	}
	for _, p := range append(m.below(from), from) {
		m.nodes[to+strings.TrimPrefix(p, from)] = m.nodes[p]
		delete(m.nodes, p)
	}
}

// differs says in one line how got, which was read, is not what want says.
func differs(want, got *model) string {
	var out []string
	for _, p := range slices.Sorted(maps.Keys(want.nodes)) {
		g := got.nodes[p]
		if g == nil {
			out = append(out, p+" is missing")
			continue
		}
		if d := want.nodes[p].differs(g); d != "" {
			out = append(out, p+": "+d)
		}
	}
	for _, p := range slices.Sorted(maps.Keys(got.nodes)) {
		if want.nodes[p] == nil {
			out = append(out, p+" should not be there")
		}
	}
	out = append(out, binDiffers(want, got)...)
	if want.safe != got.safe {
		out = append(out, fmt.Sprintf("safe mode is %v", got.safe))
	}
	return strings.Join(out, "; ")
}

func (n *node) differs(g *node) string {
	switch {
	case n.typ != g.typ:
		return fmt.Sprintf("is a %v, not a %v", g.typ, n.typ)
	case n.typ != symlink && n.mode != g.mode:
		return fmt.Sprintf("mode is %o, not %o", g.mode, n.mode)
	case n.data != g.data:
		return fmt.Sprintf("has %s, not %s", show(g.data), show(n.data))
	case n.snapshots != g.snapshots:
		return fmt.Sprintf("may have snapshots is %v, not %v", g.snapshots, n.snapshots)
	case n.quota != g.quota:
		return fmt.Sprintf("has the quota %q, not %q", g.quota, n.quota)
	case n.xattr != g.xattr:
		return fmt.Sprintf("has the extended attributes %s, not %s", show(g.xattr), show(n.xattr))
	case n.target != g.target:
		return fmt.Sprintf("points to %s, not %s", g.target, n.target)
	case n.mtime != 0 && n.mtime != g.mtime:
		return fmt.Sprintf("mtime is %d, not %d", g.mtime, n.mtime)
	case n.inode != 0 && n.inode != g.inode:
		return fmt.Sprintf("is inode %d, not %d", g.inode, n.inode)
	case (n.open == nil) != (g.open == nil):
		return fmt.Sprintf("open is %v, not %v", g.open != nil, n.open != nil)
	case n.open == nil:
		return ""
	case n.open.session != g.open.session:
		return fmt.Sprintf("held by %x, not by %x", g.open.session, n.open.session)
	case n.open.id != nil && n.open.id.GetEpoch() != g.open.id.GetEpoch():
		return fmt.Sprintf("epoch is %d, not %d", g.open.id.GetEpoch(), n.open.id.GetEpoch())
	}
	return ""
}

func show(data string) string {
	if len(data) <= 40 {
		return fmt.Sprintf("%q", data)
	}
	return fmt.Sprintf("%d bytes (%q … %q)", len(data), data[:16], data[len(data)-16:])
}
