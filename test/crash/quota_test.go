package crash

import (
	"context"
	"fmt"
	"strings"

	"github.com/leasefs/leasefs/internal/fserror/wire"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// quota sets a folder's quota; -1 and -1 take it away.
func (c *client) quota(path string, names, bytes int64) *call {
	q := &pb.SetQuotaRequest{Call: c.id(), Caller: c.who(), At: pb.At(path), Names: &names, Bytes: &bytes}
	return &call{name: fmt.Sprintf("quota %s %d %d", path, names, bytes), answers: true, send: api(pb.NamenodeClient.SetQuota, q), effect: func(m *model, _ any) {
		if m.nodes[path].quota = fmt.Sprint(names, bytes); names < 0 && bytes < 0 {
			m.nodes[path].quota = ""
		}
	}}
}

// quotas adds the quotas to what was read, and holds what they say is used to that.
func (m *machine) quotas(ctx context.Context, got *model) error {
	list, err := m.api.ListQuotas(ctx, &pb.ListQuotasRequest{Caller: root})
	if err != nil {
		return err
	}
	for _, q := range list.GetQuotas() {
		names, bytes := int64(0), 0
		for p, n := range got.nodes {
			if p == q.GetPath() || strings.HasPrefix(p, strings.TrimSuffix(q.GetPath(), "/")+"/") && !past(p) {
				names, bytes = names+1, bytes+len(n.data)
			}
		}
		if got.nodes[q.GetPath()].quota = fmt.Sprint(q.GetNames(), q.GetBytes()); names != q.GetUsedNames() || int64(bytes) != q.GetUsedBytes() {
			return fmt.Errorf("there are %d names and %d bytes in %s, its quota has %d and %d", names, bytes, q.GetPath(), q.GetUsedNames(), q.GetUsedBytes())
		}
	}
	return nil
}

// quotas: what counts in them is made, written, moved, joined, shortened and deleted.
func quotas(r *run) {
	a, b, op := r.by("a"), r.by("b"), r.by("operator")
	r.do(a.create("f", "/d/e/f", text("counts", 900), true), b.create("i", "/d/e/i", text("joined", 40), true))
	r.do(op.quota("/d", 100, 1<<20))
	r.do(op.quota("/d/e", 5, -1))
	r.do(op.quota("/", -1, 1<<30))
	r.do(a.create("g", "/d/g", "", false))
	r.do(a.flush("g", text("tail", 300)))
	a.put("g", text("block", 700))
	r.do(a.close("g", "."))
	r.do(op.checkpoint())
	r.do(b.rename("/d/e", "/out"), a.create("h", "/d/h", "h", true)) // with its quota
	r.do(b.concat("/d/g", "/d/h", "/out/i"))                         // one counts here, one elsewhere
	r.do(b.truncate("/d/g", 1007))                                   // in the middle of what was joined
	r.restart()
	r.do(b.rename("/out", "/d/back"))
	r.do(a.xattr("/d", "user.leasefs.trash", "1d"))
	r.do(a.trash("/d/back"))
	r.do(op.checkpoint())
	r.do(b.restore("/d/back", "/again"))
	r.do(op.quota("/d", 0, 0)) // below what there is
	r.do(a.rename("/again/f", "/f"))
	r.do(op.quota("/", -1, -1), b.truncate("/f", 3))
}

// aside wants a quota's directory to have so many bytes, at least, of blocks that only snapshots have; of 0, none.
func (c *client) aside(path string, least int64) *call {
	return &call{name: fmt.Sprint("aside ", path, " ", least), send: func(m *machine) (any, error) {
		ctx, cancel := background()
		defer cancel()
		got, err := m.api.GetQuota(ctx, &pb.GetQuotaRequest{Caller: c.who(), At: pb.At(path)})
		if err != nil {
			return nil, wire.FromStatus(err)
		}
		if q := got.GetQuotas(); len(q) != 1 || q[0].GetSnapshotBytes() < least || least == 0 && q[0].GetSnapshotBytes() > 0 {
			return nil, fmt.Errorf("%d bytes are wanted that only snapshots have, there is %v", least, q)
		}
		return nil, nil
	}, effect: nothing}
}

// asides: what snapshots have counts in no quota, and what only they have is told beside it until
// they are deleted.
func asides(r *run) {
	a, b, op := r.by("a"), r.by("b"), r.by("operator")
	r.do(a.create("f", "/d/f", "", false))
	a.put("f", text("both have it", 400))
	r.do(a.close("f", "tail"))
	r.do(op.quota("/d", 4, 2000))
	r.do(op.allow("/d"))
	r.do(a.snapshot("/d", "one"), b.create("other", "/other", text("joined", 300), true), op.checkpoint())
	r.do(op.aside("/d", 0))
	r.do(a.delete("/d/f"))
	r.do(op.collect())
	r.do(op.aside("/d", 400))
	r.do(b.create("g", "/d/g", "", false)) // there is room as if f had never been
	b.put("g", text("new", 1400))
	r.do(b.close("g", "."))
	r.restart()
	r.do(b.concat("/d/g", "/other"))
	r.do(a.snapshot("/d", "two"), b.create("last", "/last", "x", true))
	r.do(b.truncate("/d/g", 5)) // the quota has less, the snapshot as much as before
	r.do(op.checkpoint())
	r.do(b.rename("/d", "/e")) // with both
	r.do(a.deleteSnapshot("/e", "one"))
	r.do(op.collect())
	r.restart()
	r.do(b.delete("/e/g"))
	r.do(op.aside("/e", 1400))
	r.do(a.deleteSnapshot("/e", "two"))
	r.do(op.aside("/e", 0))
	r.do(op.collect())
}
