package crash

import (
	"context"
	"fmt"
	"strings"

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
	r.do(a.create("f", "/d/e/f", text("counts", 900), true))
	r.do(op.quota("/d", 100, 1<<20))
	r.do(op.quota("/d/e", 5, -1))
	r.do(op.quota("/", -1, 1<<30))
	r.do(a.create("g", "/d/g", "", false))
	r.do(a.flush("g", text("tail", 300)))
	a.put("g", text("block", 700))
	r.do(a.close("g", "."))
	r.do(op.checkpoint())
	r.do(b.rename("/d/e", "/out"), a.create("h", "/d/h", "h", true)) // with its quota
	r.do(b.truncate("/d/g", 7))
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
