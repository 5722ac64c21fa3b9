package fuse_test

import (
	"os"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/leasefs/leasefs/client/snapshots"
	"github.com/leasefs/leasefs/fuse"
)

// TestSnapshotsOfAnEmptyDirectory: what a mount knows of a directory that is empty, that it has no
// names, does not hide its snapshots.
func TestSnapshotsOfAnEmptyDirectory(t *testing.T) {
	r := newRig(t)
	m := r.mount(fuse.Options{})
	ctx, c := t.Context(), m.FS()
	must(t, unix.Mkdir(m.path("d"), 0o755))
	m.write("d/f", "one")
	must(t, snapshots.Allow(ctx, c, "/d"))
	_, err := snapshots.Make(ctx, c, "/d", "s")
	must(t, err)
	must(t, unix.Unlink(m.path("d/f")))
	for range 2 {
		must(t, unix.Access(m.path("d"), unix.R_OK))
		is(t, unix.Access(m.path("d/f"), unix.F_OK), syscall.ENOENT)
		is(t, unix.Access(m.path("d/g"), unix.F_OK), syscall.ENOENT)
	}
	for range 2 {
		m.reads("d/.snapshot/s/f", "one")
		is(t, unix.Mkdir(m.path("d/.snapshot"), 0o755), syscall.EEXIST)
		fd, err := unix.Open(m.path("d/.snapshot"), unix.O_WRONLY|unix.O_CREAT, 0o644)
		if err == nil {
			_ = unix.Close(fd)
			t.Error("a file .snapshot was made")
		}
	}
	if _, err := os.Stat(m.path("d/.snapshot/s")); err != nil {
		t.Error(err)
	}
}
