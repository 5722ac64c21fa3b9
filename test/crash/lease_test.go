package crash

import (
	"fmt"

	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// leased attaches the file that a create makes to a granted lease.
func leased(id uint64) func(*pbCreate) { return func(q *pbCreate) { q.Lease = id } }

// revoke ends a granted lease: everything attached to it is deleted, or nothing.
func (c *client) revoke(id uint64) *call {
	q := &pb.RevokeLeaseRequest{Call: c.id(), Caller: c.who(), Id: id}
	return &call{name: fmt.Sprintf("revoke %x", id), answers: true, send: api(pb.NamenodeClient.RevokeLease, q), effect: func(m *model, _ any) {
		for p, n := range m.nodes {
			if n.lease == id {
				m.remove(p)
			}
		}
	}}
}

// ends: granted leases end, and names of what was attached are reused while most of it is
// still to be removed.
func ends(r *run) {
	a, b, op := r.by("a"), r.by("b"), r.by("operator")
	r.do(a.grant(1))
	r.do(a.grant(2))
	for i := range 6 {
		r.do(a.create(fmt.Sprint("f", i), fmt.Sprint("/d/f", i), "attached", true, leased(1)))
	}
	r.do(a.create("o", "/d/open", "", false, leased(1)))
	r.do(a.flush("o", "written"))
	r.do(b.create("s", "/d/stays", "stays", true), a.create("g", "/e/g", "other", true, leased(2)))
	r.do(op.checkpoint())
	r.do(a.revoke(1))
	r.do(b.create("n", "/d/f3", "new", true))
	r.do(b.mkdir("/d/f4/below"))
	r.do(op.checkpoint()) // amid the removal
	r.do(b.create("h", "/h", "renamed", true))
	r.do(b.rename("/h", "/d/f5"))
	r.restart()
	r.do(a.revoke(2), b.create("m", "/e/m", "beside", true))
	r.do(a.grant(1)) // its id is free
	r.do(a.create("again", "/d/f0", "again", true, leased(1)))
	r.do(b.delete("/d"))
	r.do(a.revoke(1))
	r.do(b.create("last", "/d/f0", "last", false))
}
