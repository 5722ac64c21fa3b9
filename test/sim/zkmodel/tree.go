package zkmodel

import (
	"fmt"
	"strings"

	"github.com/go-zookeeper/zk"
	"github.com/google/btree"
)

// ZooKeeper's error codes; package zk does not export them.
const (
	ok                      zk.ErrCode = 0
	runtimeInconsistency    zk.ErrCode = -2
	marshallingError        zk.ErrCode = -5
	unimplemented           zk.ErrCode = -6
	badArguments            zk.ErrCode = -8
	noNode                  zk.ErrCode = -101
	noAuth                  zk.ErrCode = -102
	badVersion              zk.ErrCode = -103
	noChildrenForEphemerals zk.ErrCode = -108
	nodeExists              zk.ErrCode = -110
	notEmpty                zk.ErrCode = -111
	sessionExpired          zk.ErrCode = -112
	invalidACL              zk.ErrCode = -114
	authFailed              zk.ErrCode = -115
	sessionMoved            zk.ErrCode = -118
)

// node is one znode. It is replaced, never changed, so that trees can share it.
type node struct {
	path string
	data []byte
	acl  []zk.ACL
	stat zk.Stat
}

// tree is the state after some zxid. A clone costs nothing.
type tree struct{ nodes *btree.BTreeG[*node] }

func newTree() tree {
	t := tree{btree.NewG(32, func(a, b *node) bool { return a.path < b.path })}
	t.nodes.ReplaceOrInsert(&node{path: "/", data: []byte{}, acl: zk.WorldACL(zk.PermAll)})
	return t
}

func (t tree) clone() tree { return tree{t.nodes.Clone()} }

func (t tree) get(path string) *node {
	n, _ := t.nodes.Get(&node{path: path})
	return n
}

// children are the names below a node. Their descendants are stepped over.
func (t tree) children(path string) (names []string) {
	prefix := path + "/"
	if path == "/" {
		prefix = "/"
	}
	for from := prefix; ; {
		next := ""
		t.nodes.AscendGreaterOrEqual(&node{path: from}, func(n *node) bool {
			if n.path == "/" {
				return true
			}
			next = n.path
			return false
		})
		if !strings.HasPrefix(next, prefix) {
			return names
		}
		name, _, _ := strings.Cut(next[len(prefix):], "/")
		if next == prefix+name {
			names = append(names, name)
			from = next + "\x00"
		} else {
			from = prefix + name + "0" // '0' follows '/'
		}
	}
}

func parent(path string) string {
	if i := strings.LastIndexByte(path, '/'); i > 0 {
		return path[:i]
	}
	return "/"
}

func validPath(path string) bool {
	if path == "/" {
		return true
	}
	if !strings.HasPrefix(path, "/") || strings.HasSuffix(path, "/") || strings.ContainsRune(path, 0) {
		return false
	}
	for _, name := range strings.Split(path[1:], "/") {
		if name == "" || name == "." || name == ".." {
			return false
		}
	}
	return true
}

// event is what watches of a path are told.
type event struct {
	kind zk.EventType
	path string
}

// change is a transaction while it is made: the tree that it makes, the events
// that follow, and who asks for it.
type change struct {
	tree    tree
	events  []event
	zxid    int64
	millis  int64 // time of day
	session int64
	who     []zk.ACL // the identities of the connection; Perms is not used
}

// may reports whether the access list of n grants one of perms.
func may(n *node, who []zk.ACL, perms int32) bool {
	for _, a := range n.acl {
		if a.Perms&perms == 0 {
			continue
		}
		if a.Scheme == "world" && a.ID == "anyone" {
			return true
		}
		for _, w := range who {
			if w.Scheme == a.Scheme && w.ID == a.ID {
				return true
			}
		}
	}
	return false
}

// resolve replaces the scheme auth by the identities of the asker.
func (c *change) resolve(acl []zk.ACL) ([]zk.ACL, zk.ErrCode) {
	var all []zk.ACL
	for _, a := range acl {
		switch a.Scheme {
		case "world", "digest":
			all = append(all, a)
		case "auth":
			for _, w := range c.who {
				all = append(all, zk.ACL{Perms: a.Perms, Scheme: w.Scheme, ID: w.ID})
			}
		default:
			return nil, invalidACL
		}
	}
	if len(all) == 0 {
		return nil, invalidACL
	}
	return all, ok
}

func (c *change) put(n *node) { c.tree.nodes.ReplaceOrInsert(n) }

func (c *change) tell(kind zk.EventType, path string) {
	c.events = append(c.events, event{kind, path})
}

// family changes the parent's stat for a child that came (by is 1) or went (-1).
func (c *change) family(path string, by int32) {
	p := *c.tree.get(path)
	p.stat.Cversion++
	p.stat.NumChildren += by
	p.stat.Pzxid = c.zxid
	c.put(&p)
}

func (c *change) create(path string, data []byte, acl []zk.ACL, flags int32) (string, zk.ErrCode) {
	if flags&^(zk.FlagEphemeral|zk.FlagSequence) != 0 {
		return "", unimplemented
	}
	sequence := flags&zk.FlagSequence != 0
	if !validPath(path) && (!sequence || !validPath(path+"0")) {
		return "", badArguments
	}
	above := c.tree.get(parent(path))
	if above == nil {
		return "", noNode
	}
	acl, code := c.resolve(acl)
	switch {
	case code != ok:
		return "", code
	case !may(above, c.who, zk.PermCreate):
		return "", noAuth
	case above.stat.EphemeralOwner != 0:
		return "", noChildrenForEphemerals
	}
	if sequence {
		path = fmt.Sprintf("%s%010d", path, above.stat.Cversion)
	}
	if c.tree.get(path) != nil {
		return "", nodeExists
	}
	n := &node{path: path, data: data, acl: acl, stat: zk.Stat{
		Czxid: c.zxid, Mzxid: c.zxid, Pzxid: c.zxid, Ctime: c.millis, Mtime: c.millis, DataLength: int32(len(data)), //nolint:gosec // below maxFrame
	}}
	if flags&zk.FlagEphemeral != 0 {
		n.stat.EphemeralOwner = c.session
	}
	c.put(n)
	c.family(above.path, 1)
	c.tell(zk.EventNodeCreated, path)
	c.tell(zk.EventNodeChildrenChanged, above.path)
	return path, ok
}

func (c *change) delete(path string, version int32) zk.ErrCode {
	n := c.tree.get(path)
	switch {
	case !validPath(path) || path == "/":
		return badArguments
	case n == nil:
		return noNode
	case !may(c.tree.get(parent(path)), c.who, zk.PermDelete):
		return noAuth
	case version != -1 && version != n.stat.Version:
		return badVersion
	case n.stat.NumChildren > 0:
		return notEmpty
	}
	c.remove(path)
	return ok
}

func (c *change) remove(path string) {
	c.tree.nodes.Delete(&node{path: path})
	c.family(parent(path), -1)
	c.tell(zk.EventNodeDeleted, path)
	c.tell(zk.EventNodeChildrenChanged, parent(path))
}

func (c *change) set(path string, data []byte, version int32) (zk.Stat, zk.ErrCode) {
	n, code := c.changeable(path, zk.PermWrite)
	if code == ok && version != -1 && version != n.stat.Version {
		code = badVersion
	}
	if code != ok {
		return zk.Stat{}, code
	}
	next := *n
	next.data = data
	next.stat.Version++
	next.stat.Mzxid, next.stat.Mtime, next.stat.DataLength = c.zxid, c.millis, int32(len(data)) //nolint:gosec // below maxFrame
	c.put(&next)
	c.tell(zk.EventNodeDataChanged, path)
	return next.stat, ok
}

func (c *change) setACL(path string, acl []zk.ACL, version int32) (zk.Stat, zk.ErrCode) {
	n, code := c.changeable(path, zk.PermAdmin)
	if code == ok {
		acl, code = c.resolve(acl)
	}
	if code == ok && version != -1 && version != n.stat.Aversion {
		code = badVersion
	}
	if code != ok {
		return zk.Stat{}, code
	}
	next := *n
	next.acl = acl
	next.stat.Aversion++
	c.put(&next)
	return next.stat, ok
}

func (c *change) changeable(path string, perm int32) (*node, zk.ErrCode) {
	n := c.tree.get(path)
	switch {
	case !validPath(path):
		return nil, badArguments
	case n == nil:
		return nil, noNode
	case !may(n, c.who, perm):
		return nil, noAuth
	}
	return n, ok
}

func (c *change) check(path string, version int32) zk.ErrCode {
	n, code := c.changeable(path, zk.PermRead)
	if code == ok && version != -1 && version != n.stat.Version {
		code = badVersion
	}
	return code
}

// closeSession removes the ephemeral nodes of a session.
func (c *change) closeSession(id int64) {
	var gone []string
	c.tree.nodes.Ascend(func(n *node) bool {
		if n.stat.EphemeralOwner == id {
			gone = append(gone, n.path)
		}
		return true
	})
	for _, path := range gone {
		c.remove(path)
	}
}
