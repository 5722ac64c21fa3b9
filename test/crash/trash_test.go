package crash

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// trash deletes what a directory keeps.
func (c *client) trash(path string) *call {
	k := c.delete(path)
	k.effect = func(m *model, _ any) {
		for _, p := range append(m.below(path), path) {
			m.fence(m.nodes[p])
			n := *m.nodes[p]
			m.bin[p] = &n
			delete(m.nodes, p)
		}
	}
	return k
}

// entry is the number of what had a path in the trash.
func (c *client) entry(path string) (inode uint64) {
	q := &pb.ListTrashRequest{Caller: c.who(), Below: path}
	c.r.do(&call{name: "list trash", send: api(pb.NamenodeClient.ListTrash, q), effect: func(_ *model, out any) {
		if l, ok := out.(*pb.ListTrashResponse); ok && len(l.GetEntries()) > 0 {
			inode = l.GetEntries()[0].GetInode()
		}
	}})
	return inode
}

// restore brings back what had a path, elsewhere.
func (c *client) restore(path, to string) *call {
	q := &pb.RestoreTrashRequest{Call: c.id(), Caller: c.who(), Inode: c.entry(path), To: pb.At(to)}
	return &call{name: "restore " + path, answers: true, send: api(pb.NamenodeClient.RestoreTrash, q), effect: func(m *model, _ any) {
		for p, n := range maps.Clone(m.bin) {
			if p == path || strings.HasPrefix(p, path+"/") {
				m.nodes[to+strings.TrimPrefix(p, path)] = n
				delete(m.bin, p)
			}
		}
	}}
}

// empty deletes for good what had a path.
func (c *client) empty(path string) *call {
	q := &pb.EmptyTrashRequest{Call: c.id(), Caller: c.who(), Inodes: []uint64{c.entry(path)}}
	return &call{name: "empty " + path, answers: true, send: api(pb.NamenodeClient.EmptyTrash, q), effect: func(m *model, _ any) {
		maps.DeleteFunc(m.bin, func(p string, _ *node) bool { return p == path || strings.HasPrefix(p, path+"/") })
	}}
}

// binDiffers says what of the trash got has that want says otherwise. Of what is below an entry
// nothing is seen until it is restored.
func binDiffers(want, got *model) (out []string) {
	for _, p := range slices.Sorted(maps.Keys(want.bin)) {
		if want.bin[parentOf(p)] != nil {
			continue
		}
		w, g := want.bin[p], got.bin[p]
		if g == nil || g.typ != w.typ || g.mode != w.mode || g.typ != folder && g.cut != int64(len(w.data)) { // what is in a directory is counted later
			out = append(out, fmt.Sprintf("%s is not in the trash as it was, but %+v", p, g))
		}
	}
	for _, p := range slices.Sorted(maps.Keys(got.bin)) {
		if want.bin[p] == nil {
			out = append(out, p+" should not be in the trash")
		}
	}
	return out
}

// bin: what is deleted is kept, comes back or goes.
func bin(r *run) {
	a, b, op := r.by("a"), r.by("b"), r.by("operator")
	r.do(a.create("f", "/d/e/f", text("kept", 900), true))
	r.do(a.create("g", "/d/g", "", false))
	a.put("g", text("block", 700))
	r.do(a.xattr("/d", "user.leasefs.trash", "1d"))
	r.do(a.trash("/d/e"))
	r.do(b.trash("/d/g")) // open: what was flushed
	r.do(op.checkpoint())
	r.do(a.create("h", "/d/h", "old", true))
	r.do(b.restore("/d/e", "/back"))
	r.restart()
	r.do(b.trash("/d/h"), a.create("i", "/other", "o", true))
	r.do(b.restore("/d/g", "/d/g"))
	r.do(a.empty("/d/h"))
	r.do(a.delete("/back"))
}
