package crash

import (
	"math"

	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// cut cuts a file that the client has open, which continues under a new epoch.
func (c *client) cut(id string, length int) *call {
	w, n := c.writer(id)
	q := &pb.AppendRequest{Call: c.id(), Caller: c.who(), At: pb.Inode(n.inode), Writer: w, Cut: true, CutLength: int64(length)}
	return &call{name: "cut " + id, answers: true, send: api(pb.NamenodeClient.Append, q), effect: func(m *model, out any) {
		n := m.byID(id)
		m.fence(n)
		n.data, n.mtime, n.open = n.data[:length], 0, &writer{session: string(pb.SessionName(c.session))}
		n.cut = min(n.cut, int64(length))
		if a, ok := out.(*pb.OpenResponse); ok {
			n.open.id, n.cut = a.GetWriter(), a.GetBlocksLength()
		}
	}}
}

// xattr sets an extended attribute; with an empty value it removes it.
func (c *client) xattr(path, name, value string) *call {
	q := &pb.SetXattrRequest{Call: c.id(), Caller: c.who(), At: pb.At(path), Name: name, Value: []byte(value)}
	if value == "" {
		q.Action = pb.XattrAction_XATTR_ACTION_REMOVE
	}
	return &call{name: "xattr " + path, answers: true, send: api(pb.NamenodeClient.SetXattr, q), effect: func(m *model, _ any) {
		m.nodes[path].xattr = name + "=" + value + " "
		if value == "" {
			m.nodes[path].xattr = ""
		}
	}}
}

// scratch is the granted lease of what is hidden. It outlives the script.
const scratch = 7

func (c *client) grantScratch() *call { return c.grant(scratch) }

func (c *client) grant(id uint64) *call {
	q := &pb.GrantLeaseRequest{Call: c.id(), Caller: c.who(), Id: id, TtlMs: math.MaxInt32}
	return &call{name: "grant", answers: true, send: api(pb.NamenodeClient.GrantLease, q), effect: nothing}
}

// hide renames over a file, which gets a hidden name; without from it only does
// that.
func (c *client) hide(from, to, name string) *call {
	h := &pb.Hide{Inode: c.r.want.nodes[to].inode, Name: name, Lease: scratch}
	out := &call{name: "hide " + to, answers: true, effect: func(m *model, _ any) {
		m.rename(to, parentOf(to)+"/"+name)
		if from != "" {
			m.rename(from, to)
		}
	}}
	if from == "" {
		out.send = api(pb.NamenodeClient.Delete, &pb.DeleteRequest{Call: c.id(), Caller: c.who(), At: pb.At(to), Hide: h})
	} else {
		out.send = api(pb.NamenodeClient.Rename, &pb.RenameRequest{Call: c.id(), Caller: c.who(), From: pb.At(from), To: pb.At(to), Overwrite: true, Hide: h})
	}
	return out
}

// steps: what a mount does in one step.
func steps(r *run) {
	a, b, op := r.by("a"), r.by("b"), r.by("operator")
	r.do(a.grantScratch())
	r.do(a.create("f", "/d/f", "0123456789", false))
	r.do(a.cut("f", 4))
	r.do(a.flush("f", "abc"))
	a.put("f", text("block", 300))
	r.do(a.xattr("/d/f", "user.a", text("value", 700)))
	r.do(a.cut("f", 200))
	r.do(b.create("n", "/d/new", "new", true), r.by("c").xattr("/d", "user.d", "x"))
	r.do(a.hide("/d/new", "/d/f", ".hidden1"))
	r.do(a.flush("f", " goes on"))
	r.do(op.checkpoint())
	r.do(b.xattr("/d/f", "user.n", "n"))
	r.do(a.hide("", "/d/f", ".hidden2"))
	r.restart()
	r.do(a.flush("f", " and on"))
	r.do(a.cut("f", 0))
	r.do(b.xattr("/d", "user.d", ""), a.flush("f", "end"))
	r.do(a.close("f", "."))
	r.do(b.delete("/d/.hidden1"))
}
