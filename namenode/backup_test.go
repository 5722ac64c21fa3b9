package namenode_test

import (
	"errors"
	"testing"
	"time"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fserror/wire"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
	"github.com/leasefs/leasefs/test/env"
)

// A backup tells what the namespace has: not what was deleted and is still to be freed.
func TestBackupCountsWhatHasAPath(t *testing.T) {
	t.Parallel()
	n := env.Start(t)
	r := n.Raw(t, "r")
	if _, err := r.NN.Mkdir(t.Context(), &pb.MkdirRequest{Call: r.Call(), Caller: r.Who, At: pb.At("/gone/deep"), Parents: true}); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/gone/a", "/gone/deep/b", "/kept"} {
		if err := r.Close(r.Create(path), 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := n.DeleteAndEnterSafeMode("/gone"); err != nil {
		t.Fatal(err)
	}
	st, err := r.Admin.Backup(t.Context(), &pb.BackupRequest{Caller: r.Who})
	if err != nil {
		t.Fatal(err)
	}
	m, err := st.Recv()
	if err != nil {
		t.Fatal(err)
	}
	if n.Detached() == 0 {
		t.Fatal("the directory was freed in safe mode")
	}
	if f, d, l := m.GetTotalFiles(), m.GetTotalDirectories(), m.GetTotalSymlinks(); f != 1 || d != 1 || l != 0 {
		t.Errorf("%d files, %d directories, %d links; want 1, 1, 0", f, d, l)
	}
}

// A backup whose client keeps its stream open, and its blocks, gets them no longer than its URLs are good.
func TestABackupWithoutAnEnd(t *testing.T) {
	n := env.Start(t)
	n.SetBackupLife(50 * time.Millisecond)
	r := n.Raw(t, "a")
	st, err := r.Admin.Backup(t.Context(), &pb.BackupRequest{Caller: r.Who})
	for err == nil {
		_, err = st.Recv()
	}
	if err := wire.FromStatus(err); !errors.Is(err, fserror.Deadline) {
		t.Errorf("the stream ended with %v", err)
	}
}
