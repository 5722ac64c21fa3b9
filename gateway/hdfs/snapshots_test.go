package hdfs_test

import (
	"bytes"
	"context"
	"fmt"
	"path"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/client/snapshots"
	"github.com/leasefs/leasefs/gateway/hadoop"
	"github.com/leasefs/leasefs/gateway/hdfs"
	pb "github.com/leasefs/leasefs/gateway/hdfs/hadoop"
	"github.com/leasefs/leasefs/test/env"
)

// TestSnapshots: the calls about snapshots answer as HDFS does, what is in one is read as what there is,
// blocks included, and what is wrong has the names that Hadoop's client knows.
func TestSnapshots(t *testing.T) {
	n, s := start(t)
	r, fs, c := dial(t, s, "root", ""), n.Client(t), connect(t, s, "root")
	ctx := t.Context()
	old := random(3<<20, 1)
	write := func(path string, data []byte) {
		t.Helper()
		_, err := fs.WriteFrom(ctx, path, bytes.NewReader(data), client.WithOverwrite())
		check(t, err)
	}
	check(t, fs.MkdirAll(ctx, "/d/sub/deep", 0o755))
	for _, path := range []string{"/d/f", "/d/gone", "/d/moved", "/d/sub/deep/g"} {
		write(path, old)
	}
	on := func(method string, dir, name string) error {
		return r.call(clientProtocol, method, &pb.SnapshotRequestProto{SnapshotRoot: &dir, SnapshotName: &name}, new(pb.EmptyProto))
	}
	made := func(dir string, name *string) (string, error) {
		resp := new(pb.CreateSnapshotResponseProto)
		err := r.call(clientProtocol, "createSnapshot", &pb.SnapshotRequestProto{SnapshotRoot: &dir, SnapshotName: name}, resp)
		return resp.GetSnapshotPath(), err
	}
	if list := ask(r, "getSnapshottableDirListing", new(pb.EmptyProto), new(pb.GetSnapshottableDirListingResponseProto)).GetSnapshottableDirList(); list != nil {
		t.Errorf("%v", list)
	}
	_, err := made("/d", proto.String("s"))
	wantClass(t, "not allowed", err, hadoop.SnapshotWrong)
	if !strings.Contains(err.Error(), "Directory is not a snapshottable directory: /d") {
		t.Error(err)
	}
	check(t, on("allowSnapshot", "/d", ""))
	if path, err := made("/d", proto.String("s")); path != "/d/.snapshot/s" {
		t.Error(path, err)
	}
	if path, err := made("/d", nil); !strings.HasPrefix(path, "/d/.snapshot/s2") {
		t.Error(path, err)
	} else {
		check(t, on("deleteSnapshot", "/d", path[len("/d/.snapshot/"):]))
	}

	write("/d/f", random(9, 2))
	check(t, fs.Remove(ctx, "/d/gone"), fs.Rename(ctx, "/d/moved", "/d/sub/there", false), fs.RemoveAll(ctx, "/d/sub/deep"), fs.MkdirAll(ctx, "/d/new/er", 0o755))
	for _, path := range []string{"f", "gone", "moved", "sub/deep/g"} {
		holds(t, c, fs, "/d/.snapshot/s/"+path, old)
	}
	holds(t, c, fs, "/d/f", random(9, 2))
	st := ask(r, "getFileInfo", of("/d/.snapshot/s/f"), new(pb.StatusResponseProto)).GetFs()
	if st.GetLength() != uint64(len(old)) || st.GetFileId() < 1<<44 {
		t.Errorf("%v", st)
	}
	if st := ask(r, "getFileInfo", of(fmt.Sprint("/.reserved/.inodes/", st.GetFileId())), new(pb.StatusResponseProto)).GetFs(); st.GetLength() != uint64(len(old)) {
		t.Errorf("by its number: %v", st)
	}
	if st := ask(r, "getFileInfo", of("/d/.snapshot"), new(pb.StatusResponseProto)).GetFs(); st.GetFileType() != pb.HdfsFileStatusProto_IS_DIR {
		t.Errorf("%v", st)
	}
	listed := func(path string) (names string) {
		for _, e := range ask(r, "getListing", &pb.GetListingRequestProto{Src: &path, StartAfter: []byte{}, NeedLocation: proto.Bool(true)}, new(pb.GetListingResponseProto)).GetDirList().GetPartialListing() {
			names += string(e.GetPath()) + " "
		}
		return names
	}
	if got := listed("/d") + listed("/d/.snapshot") + listed("/d/.snapshot/s"); got != "f new sub s f gone moved sub " {
		t.Error(got)
	}

	dirs := ask(r, "getSnapshottableDirListing", new(pb.EmptyProto), new(pb.GetSnapshottableDirListingResponseProto)).GetSnapshottableDirList().GetSnapshottableDirListing()
	if len(dirs) != 1 || string(dirs[0].GetParentFullpath()) != "/" || string(dirs[0].GetDirStatus().GetPath()) != "d" || dirs[0].GetSnapshotNumber() != 1 || dirs[0].GetSnapshotQuota() != hadoop.SnapshotLimit {
		t.Errorf("%v", dirs)
	}
	list := ask(r, "getSnapshotListing", &pb.SnapshotRequestProto{SnapshotRoot: proto.String("/d")}, new(pb.GetSnapshotListingResponseProto)).GetSnapshotList().GetSnapshotListing()
	if len(list) != 1 || string(list[0].GetParentFullpath()) != "/d" || string(list[0].GetDirStatus().GetPath()) != "s" || list[0].GetSnapshotID() == 0 || list[0].GetIsDeleted() || list[0].GetDirStatus().GetModificationTime() == 0 {
		t.Errorf("%v", list)
	}
	report := func(from, to string) (lines string) {
		d := ask(r, "getSnapshotDiffReport", &pb.SnapshotDiffRequestProto{SnapshotRoot: proto.String("/d"), FromSnapshot: &from, ToSnapshot: &to}, new(pb.GetSnapshotDiffReportResponseProto)).GetDiffReport()
		if d.GetSnapshotRoot() != "/d" || d.GetFromSnapshot() != from || d.GetToSnapshot() != to {
			t.Errorf("%v", d)
		}
		for _, e := range d.GetDiffReportEntries() {
			lines += e.GetModificationLabel() + string(e.GetFullpath())
			if e.TargetPath != nil {
				lines += ">" + string(e.GetTargetPath())
			}
			lines += " "
		}
		return lines
	}
	if got, want := report("s", ""), "M +f +new -f -gone Rmoved>sub/there Msub -sub/deep "; got != want {
		t.Errorf("%s, not %s", got, want)
	}
	if got, want := report("", "s"), "M +f +gone -f -new Msub +sub/deep Rsub/there>moved "; got != want {
		t.Errorf("%s, not %s", got, want)
	}
	page := ask(r, "getSnapshotDiffReportListing", &pb.SnapshotDiffRequestProto{
		SnapshotRoot: proto.String("/d"), FromSnapshot: proto.String("s"), ToSnapshot: proto.String(""), Cursor: &pb.SnapshotDiffReportCursorProto{StartPath: []byte{}, Index: proto.Int32(-1)},
	}, new(pb.GetSnapshotDiffReportListingResponseProto)).GetDiffReport()
	root := page.GetModifiedEntries()[0]
	if len(root.GetFullpath()) != 0 || !root.GetIsReference() || !page.GetIsFromEarlier() || len(page.GetCursor().GetStartPath()) != 0 || page.GetCursor().GetIndex() != -1 {
		t.Errorf("%v", page)
	}
	for _, e := range page.GetDeletedEntries() {
		if string(e.GetFullpath()) == "moved" && (e.GetDirId() != root.GetDirId() || !e.GetIsReference() || string(e.GetTargetPath()) != "sub/there") {
			t.Errorf("%v", e)
		}
	}

	check(t, r.call(clientProtocol, "renameSnapshot", &pb.RenameSnapshotRequestProto{SnapshotRoot: proto.String("/d"), SnapshotOldName: proto.String("s"), SnapshotNewName: proto.String("t")}, new(pb.EmptyProto)))
	_, err = made("/d", proto.String("t"))
	wantClass(t, "again", err, hadoop.SnapshotWrong)
	wantClass(t, "none such", on("deleteSnapshot", "/d", "s"), hadoop.SnapshotWrong)
	wantClass(t, "has some", on("disallowSnapshot", "/d", ""), hadoop.SnapshotWrong)
	wantClass(t, "no directory", on("allowSnapshot", "/x", ""), hadoop.FileNotFound)
	wantClass(t, "a file", on("allowSnapshot", "/d/f", ""), hadoop.NotDirectory)
	wantClass(t, "it has snapshots", r.call(clientProtocol, "delete", &pb.DeleteRequestProto{Src: proto.String("/d"), Recursive: proto.Bool(true)}, new(pb.BoolResponseProto)), hadoop.SnapshotWrong)
	wantClass(t, "nothing changes", r.call(clientProtocol, "mkdirs", &pb.MkdirsRequestProto{Src: proto.String("/d/.snapshot/t/new"), Masked: &pb.FsPermissionProto{Perm: proto.Uint32(0o755)}, CreateParent: proto.Bool(true)}, new(pb.BoolResponseProto)), hadoop.SnapshotReadOnly)
	wantClass(t, "nothing is deleted", r.call(clientProtocol, "delete", &pb.DeleteRequestProto{Src: proto.String("/d/.snapshot/t/f"), Recursive: proto.Bool(true)}, new(pb.BoolResponseProto)), hadoop.SnapshotReadOnly)
	_, err = c.Append("/d/.snapshot/t/f")
	wantClass(t, "nothing is appended", err, hadoop.SnapshotReadOnly)
	ann := dial(t, s, "ann", "")
	wantClass(t, "ann", ann.call(clientProtocol, "createSnapshot", &pb.SnapshotRequestProto{SnapshotRoot: proto.String("/d")}, new(pb.CreateSnapshotResponseProto)), hadoop.AccessControl)
	check(t, on("deleteSnapshot", "/d", "t"), on("disallowSnapshot", "/d", ""))
	if _, err := fs.Stat(ctx, "/d/"+snapshots.Dir); client.KindOf(err) != client.ErrNotFound {
		t.Error(err)
	}
	check(t, c.AllowSnapshots("/d")) // as the client for Go does it
	if path, err := c.CreateSnapshot("/d", "go"); path != "/d/.snapshot/go" {
		t.Error(path, err)
	}
	check(t, c.DeleteSnapshot("/d", "go"), c.DisallowSnapshots("/d"))
}

// TestSnapshottableStatus: the status of a directory tells whether it may have snapshots, also that in a
// listing, and what is in a snapshot may have none.
func TestSnapshottableStatus(t *testing.T) {
	n, s := start(t)
	r, fs := dial(t, s, "root", ""), n.Client(t)
	check(t, fs.MkdirAll(t.Context(), "/d/sub", 0o755))
	flags := func(path string) uint32 {
		t.Helper()
		return ask(r, "getFileInfo", of(path), new(pb.StatusResponseProto)).GetFs().GetFlags()
	}
	listed := func() map[string]uint32 {
		t.Helper()
		all := map[string]uint32{}
		list := ask(r, "getListing", &pb.GetListingRequestProto{Src: proto.String("/"), StartAfter: []byte{}, NeedLocation: proto.Bool(false)}, new(pb.GetListingResponseProto))
		for _, st := range list.GetDirList().GetPartialListing() {
			all[string(st.GetPath())] = st.GetFlags()
		}
		return all
	}
	const enabled = 8
	if got, in := flags("/d"), listed()["d"]; got != 0 || in != 0 {
		t.Errorf("at first: %d, in a listing %d", got, in)
	}
	ask(r, "allowSnapshot", &pb.SnapshotRequestProto{SnapshotRoot: proto.String("/d")}, new(pb.EmptyProto))
	if got, in := flags("/d"), listed()["d"]; got != enabled || in != enabled {
		t.Errorf("allowed: %d, in a listing %d, want %d", got, in, enabled)
	}
	ask(r, "createSnapshot", &pb.SnapshotRequestProto{SnapshotRoot: proto.String("/d"), SnapshotName: proto.String("s")}, new(pb.CreateSnapshotResponseProto))
	for _, path := range []string{"/d/sub", "/d/.snapshot/s", "/d/.snapshot/s/sub"} {
		if got := flags(path); got != 0 {
			t.Errorf("%s: %d", path, got)
		}
	}
	ask(r, "deleteSnapshot", &pb.SnapshotRequestProto{SnapshotRoot: proto.String("/d"), SnapshotName: proto.String("s")}, new(pb.EmptyProto))
	ask(r, "disallowSnapshot", &pb.SnapshotRequestProto{SnapshotRoot: proto.String("/d")}, new(pb.EmptyProto))
	if got, in := flags("/d"), listed()["d"]; got != 0 || in != 0 {
		t.Errorf("no longer allowed: %d, in a listing %d", got, in)
	}
}

// TestReportHasAPlace: a report that is made whole has a place among those that a gateway makes at once,
// until its client has it.
func TestReportHasAPlace(t *testing.T) {
	var at atomic.Pointer[hdfs.Server]
	var under atomic.Int64
	n, s := start(t, func(c *hdfs.Config) {
		c.Client.DialOptions = []grpc.DialOption{grpc.WithChainUnaryInterceptor(
			func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, next grpc.UnaryInvoker, opts ...grpc.CallOption) error {
				if path.Base(method) == "DiffSnapshots" {
					under.Store(at.Load().Reports())
				}
				return next(ctx, method, req, reply, cc, opts...)
			})}
	})
	at.Store(s)
	fs, ctx := n.Client(t), t.Context()
	check(t, fs.MkdirAll(ctx, "/d", 0o755), snapshots.Allow(ctx, fs, "/d"))
	_, err := snapshots.Make(ctx, fs, "/d", "s")
	check(t, err)
	ask(dial(t, s, "root", ""), "getSnapshotDiffReport", &pb.SnapshotDiffRequestProto{SnapshotRoot: proto.String("/d"), FromSnapshot: proto.String("s"), ToSnapshot: proto.String("")}, new(pb.GetSnapshotDiffReportResponseProto))
	if n := under.Load(); n != 1 {
		t.Errorf("%d have a place while it is made, want the one", n)
	}
	env.Eventually(t, "the place is given back", func() bool { return s.Reports() == 0 })
}
