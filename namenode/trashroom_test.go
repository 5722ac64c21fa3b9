package namenode_test

import (
	"io/fs"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/vfs"
	"github.com/leasefs/leasefs/namenode"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
	"github.com/leasefs/leasefs/test/env"
)

// tightDisk has room as long as there are few block files, once it is tight.
type tightDisk struct {
	vfs.FS
	tight atomic.Bool
	files func() int
}

func (d *tightDisk) Usage(string) (int64, int64, error) {
	if d.tight.Load() && d.files() > 1 {
		return 1, 1 << 40, nil
	}
	return 1 << 39, 1 << 40, nil
}

// TestTrashMakesRoom: when the block store gets short of room, the oldest go of who has deleted
// most bytes, though they were to be kept for longer than what another has deleted. What is in
// the trash is counted until then, once, wherever it is.
func TestTrashMakesRoom(t *testing.T) {
	t.Parallel()
	disk := &tightDisk{FS: vfs.OS()}
	n := env.Start(t, func(c *namenode.Config) {
		data := c.Data
		disk.files = func() (files int) { // some may go meanwhile
			_ = filepath.WalkDir(data, func(path string, _ fs.DirEntry, _ error) error {
				if strings.HasSuffix(path, ".blk") {
					files++
				}
				return nil
			})
			return files
		}
		c.FS, c.CollectEvery = disk, time.Hour
	})
	root := n.Raw(t, "root")
	trash := func(user, keeps, path string, lengths ...int) {
		r, dir := n.Raw(t, user), "/"+user
		r.Who.User = user
		for _, sub := range []string{"", "/d"} {
			if _, err := root.NN.Mkdir(t.Context(), &pb.MkdirRequest{Call: root.Call(), Caller: root.Who, At: pb.At(dir + sub), HasMode: true, Mode: 0o777}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := root.NN.SetXattr(t.Context(), &pb.SetXattrRequest{Call: root.Call(), Caller: root.Who, At: pb.At(dir), Name: "user.leasefs.trash", Value: []byte(keeps)}); err != nil {
			t.Fatal(err)
		}
		for i, length := range lengths {
			withBlock(t, r, dir+"/d/"+string(rune('a'+i)), strings.Repeat("x", length))
		}
		if _, err := r.NN.Delete(t.Context(), &pb.DeleteRequest{Call: r.Call(), Caller: r.Who, At: pb.At(dir + path), Recursive: true}); err != nil {
			t.Fatal(err)
		}
	}
	trash("ann", "365d", "/d", 3000, 2000)
	trash("bob", "1d", "/d/a", 1000)
	status := func() *pb.StatusResponse {
		s, err := root.Admin.Status(t.Context(), &pb.StatusRequest{Caller: root.Who})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	env.Eventually(t, "the trash is counted", func() bool { s := status(); return s.GetTrashFiles() == 3 && s.GetTrashBytes() == 6000 })
	list, err := root.NN.ListTrash(t.Context(), &pb.ListTrashRequest{Caller: root.Who, All: true, Below: "/ann"})
	if err != nil || len(list.GetEntries()) != 1 || list.GetEntries()[0].GetAttr().GetLength() != 5000 {
		t.Errorf("ann's directory has 5000 bytes: %v, %v", list.GetEntries(), err)
	}
	for _, line := range []string{"leasefs_trash_bytes 6000", "leasefs_trash_files 3", "leasefs_trash_entries 2"} {
		if !strings.Contains(n.Metrics(t), line+"\n") {
			t.Errorf("no metric %s", line)
		}
	}
	bob := n.Raw(t, "b")
	bob.Who.User = "bob"
	var perm fserror.Kind
	for _, e := range list.GetEntries() {
		_, err := bob.NN.RestoreTrash(t.Context(), &pb.RestoreTrashRequest{Call: bob.Call(), Caller: bob.Who, Inode: e.GetInode(), To: pb.At("/bob/x")})
		perm = fserror.KindOf(err)
		_, _ = bob.NN.EmptyTrash(t.Context(), &pb.EmptyTrashRequest{Call: bob.Call(), Caller: bob.Who, Inodes: []uint64{e.GetInode()}})
	}
	if s := status(); perm != fserror.Permission || s.GetTrashBytes() != 6000 {
		t.Errorf("after refusals (%v) the trash has %d bytes", perm, s.GetTrashBytes())
	}
	n.Stop(t)
	disk.tight.Store(true) // and nothing is counted yet
	n.Start(t)
	env.Eventually(t, "what ann has deleted goes", func() bool { return disk.files() == 1 })
	env.Eventually(t, "what is left is counted", func() bool { s := status(); return s.GetTrashFiles() == 1 && s.GetTrashBytes() == 1000 })
	bob = n.Raw(t, "b")
	bob.Who.User = "bob"
	mine, err := bob.NN.ListTrash(t.Context(), &pb.ListTrashRequest{Caller: bob.Who})
	if err != nil || len(mine.GetEntries()) != 1 || mine.GetEntries()[0].GetPath() != "/bob/d/a" {
		t.Fatalf("bob's trash has %v, %v", mine.GetEntries(), err)
	}
	// It takes no room, whether or not the namenode has noticed that there is some again.
	if _, err := bob.NN.RestoreTrash(t.Context(), &pb.RestoreTrashRequest{Call: bob.Call(), Caller: bob.Who, Inode: mine.GetEntries()[0].GetInode(), To: pb.At("/bob/d/a")}); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, "nothing is left", func() bool { s := status(); return s.GetTrashFiles() == 0 && s.GetTrashBytes() == 0 })
}
