package crash

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/leasefs/leasefs/internal/fserror/wire"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// past reports whether a path is in a snapshot.
func past(path string) bool { return strings.Contains(path, "/.snapshot/") }

// allow lets a directory have snapshots.
func (c *client) allow(path string) *call {
	q := &pb.AllowSnapshotsRequest{Call: c.id(), Caller: c.who(), At: pb.At(path), Allow: true}
	return &call{name: "allow snapshots of " + path, answers: true, send: api(pb.NamenodeClient.AllowSnapshots, q), effect: func(m *model, _ any) { m.nodes[path].snapshots = true }}
}

// snapshot makes one. The model has it below .snapshot, where it is read, and changes it no more.
func (c *client) snapshot(dir, name string) *call {
	q := &pb.MakeSnapshotRequest{Call: c.id(), Caller: c.who(), At: pb.At(dir), Name: name}
	return &call{name: "snapshot " + dir + " " + name, answers: true, send: api(pb.NamenodeClient.MakeSnapshot, q), effect: func(m *model, _ any) {
		for _, p := range append(m.below(dir), dir) {
			if n := m.nodes[p]; !past(p) {
				m.nodes[dir+"/.snapshot/"+name+strings.TrimPrefix(p, dir)] = &node{typ: n.typ, mode: n.mode, data: n.data, target: n.target, mtime: n.mtime, inode: n.inode, xattr: n.xattr}
			}
		}
	}}
}

func (c *client) renameSnapshot(dir, from, to string) *call {
	q := &pb.RenameSnapshotRequest{Call: c.id(), Caller: c.who(), At: pb.At(dir), Name: from, NewName: to}
	return &call{name: "rename snapshot " + from + " " + to, answers: true, send: api(pb.NamenodeClient.RenameSnapshot, q), effect: func(m *model, _ any) {
		m.rename(dir+"/.snapshot/"+from, dir+"/.snapshot/"+to)
	}}
}

func (c *client) deleteSnapshot(dir, name string) *call {
	q := &pb.DeleteSnapshotRequest{Call: c.id(), Caller: c.who(), At: pb.At(dir), Name: name}
	return &call{name: "delete snapshot " + name, answers: true, send: api(pb.NamenodeClient.DeleteSnapshot, q), effect: func(m *model, _ any) { m.remove(dir + "/.snapshot/" + name) }}
}

// compare wants these differences between two snapshots, in any order: kind, path and new path of each.
func (c *client) compare(dir, from, to string, want ...string) *call {
	return &call{name: "compare " + from + " " + to, send: func(m *machine) (any, error) {
		ctx, cancel := background()
		defer cancel()
		var got []string
		for q := (&pb.DiffSnapshotsRequest{Caller: c.who(), At: pb.At(dir), From: from, To: to}); ; {
			page, err := m.api.DiffSnapshots(ctx, q)
			if err != nil {
				return nil, wire.FromStatus(err)
			}
			for _, d := range page.GetChanges() {
				kind := strings.TrimPrefix(d.GetType().String(), "SNAPSHOT_CHANGE_TYPE_")
				got = append(got, strings.TrimSpace(fmt.Sprintln(strings.ToLower(kind), d.GetPath(), d.GetNewPath())))
			}
			if q.Cursor = page.GetNextCursor(); q.Cursor == "" {
				break
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			return nil, fmt.Errorf("from %s to %s there is %q, not %q", from, to, got, want)
		}
		return nil, nil
	}, effect: nothing}
}

// everything calls fn for all at and below a path, and all that snapshots of directories there have.
func (m *machine) everything(ctx context.Context, at string, fn func(path string, a *pb.Attr) error) error {
	stream, err := m.api.Find(ctx, &pb.FindRequest{Caller: root, At: pb.Follow(at)})
	if err != nil {
		return err
	}
	var dirs []string
	for {
		page, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		for _, e := range page.GetEntries() {
			if e.GetAttr().GetSnapshots() {
				dirs = append(dirs, e.GetPath())
			}
			if err := fn(e.GetPath(), e.GetAttr()); err != nil {
				return err
			}
		}
	}
	for _, dir := range dirs {
		list, err := m.api.ListSnapshots(ctx, &pb.ListSnapshotsRequest{Caller: root, At: pb.At(dir)})
		if err != nil {
			return err
		}
		for _, s := range list.GetSnapshots() {
			if err := m.everything(ctx, dir+"/.snapshot/"+s.GetName(), fn); err != nil {
				return err
			}
		}
	}
	return nil
}

// snapshots: what is below a directory changes, goes and moves, and two snapshots of it stay until
// they are deleted.
func snapshots(r *run) {
	a, b, op := r.by("a"), r.by("b"), r.by("operator")
	r.do(a.create("f", "/d/f", "", false))
	a.put("f", text("both have it", 400))
	r.do(b.create("g", "/d/sub/g", "", false))
	b.put("g", text("the first has it", 300))
	r.do(b.close("g", "tail"))
	r.do(b.setattr("/d/sub/g", 0o640, 99_000))
	r.do(op.allow("/d"))
	r.do(a.snapshot("/d", "one"), op.checkpoint()) // with an open file
	r.do(a.flush("f", "a tail, "))
	a.put("f", text("the second has it", 300))
	r.do(b.delete("/d/sub/g"))
	r.do(b.xattr("/d/sub", "user.a", "new"))
	r.do(a.rename("/d/f", "/d/sub/ff"))
	r.do(a.snapshot("/d", "two"), b.create("other", "/other", "", true))
	r.do(op.collect())
	r.do(a.compare("/d", "one", "two", "deleted sub/g", "modified", "modified sub", "renamed f sub/ff"))
	r.do(a.close("f", "end"), b.xattr("/d/sub", "user.a", "")) // as in the first again
	r.do(b.truncate("/d/sub/ff", 3))
	r.restart()
	reader := b.hold("/d/.snapshot/one/sub/g")
	r.do(a.renameSnapshot("/d", "one", "first"), b.find("/d/.snapshot/two/sub/ff"))
	r.do(op.checkpoint())
	r.do(b.rename("/d", "/e")) // with its snapshots
	r.do(a.deleteSnapshot("/e", "first"))
	r.do(op.collectNow())
	r.do(reader)
	r.do(op.collect())
	r.do(b.deleteSnapshot("/e", "two"), a.delete("/other"))
}
