package namenode_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/vfs"
	"github.com/leasefs/leasefs/namenode"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
	"github.com/leasefs/leasefs/test/env"
)

// checkpoint writes an image and returns its file.
func checkpoint(t *testing.T, n *env.Namenode, r *env.Raw) string {
	t.Helper()
	out, err := r.Admin.Checkpoint(t.Context(), &pb.CheckpointRequest{Caller: r.Who})
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(n.Config().Data, "image", fmt.Sprintf("%020d.img", out.GetTxid()))
}

func damage(t *testing.T, name string) {
	t.Helper()
	raw, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	raw[len(raw)/2] ^= 1
	if err := os.WriteFile(name, raw, 0o600); err != nil {
		t.Fatal(err)
	}
}

// What is older is removed only behind two images that can be read: after a
// start that passed over a damaged one, the next may be damaged as well.
func TestDamagedImageIsNotOneOfTwo(t *testing.T) {
	for name, spoil := range map[string]func(*testing.T, string){
		"damaged": damage,
		"missing": func(t *testing.T, name string) {
			if err := os.Remove(name); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := env.Start(t)
			r := n.Raw(t, "a")
			r.Create("/1")
			first := checkpoint(t, n, r)
			r.Create("/2")
			spoil(t, checkpoint(t, n, r))
			n.Restart(t)
			r = n.Raw(t, "a")
			r.Create("/3")
			damage(t, checkpoint(t, n, r))
			n.Restart(t)
			r = n.Raw(t, "a")
			for i := range 3 {
				r.File(fmt.Sprintf("/%d", i+1))
			}
			// Two good ones, and the older may go.
			checkpoint(t, n, r)
			r.Create("/4")
			checkpoint(t, n, r)
			if _, err := os.Stat(first); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the first image is still there: %v", err)
			}
			n.Restart(t)
			n.Raw(t, "a").File("/4")
		})
	}
}

// An image that was damaged after it was written is found when it becomes the older
// of two, before what it takes the place of is removed: so a start is possible though
// the newest one is damaged as well.
func TestOlderImageDamagedMeanwhile(t *testing.T) {
	n := env.Start(t)
	r := n.Raw(t, "a")
	r.Create("/1")
	first := checkpoint(t, n, r)
	r.Create("/2")
	second := checkpoint(t, n, r)
	found := func(want int) {
		t.Helper()
		if !strings.Contains(n.Metrics(t), fmt.Sprintf("\nleasefs_images_damaged %d\n", want)) {
			t.Errorf("the metrics do not say that %d images are damaged", want)
		}
	}
	damage(t, second)
	found(0)
	r.Create("/3")
	third := checkpoint(t, n, r)
	found(1)
	n.Stop(t)
	damage(t, third)
	n.Start(t)
	r = n.Raw(t, "a")
	for i := range 3 {
		r.File(fmt.Sprintf("/%d", i+1))
	}
	checkpoint(t, n, r)
	r.Create("/4")
	checkpoint(t, n, r)
	found(0)
	if _, err := os.Stat(first); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the first image is still there: %v", err)
	}
}

// The one image of a backup stays until there are two others.
func TestImageOfABackupIsKept(t *testing.T) {
	n := env.Start(t)
	r := n.Raw(t, "a")
	r.Create("/1")
	checkpoint(t, n, r)
	r.Create("/2")
	checkpoint(t, n, r)
	dir := t.TempDir()
	if err := backupTo(t, r, dir, nil); err != nil {
		t.Fatal(err)
	}
	b := env.Start(t, func(c *namenode.Config) { c.Data = dir })
	r = b.Raw(t, "b")
	r.Create("/3")
	damage(t, checkpoint(t, b, r))
	b.Restart(t)
	b.Raw(t, "b").File("/3")
}

// What a crash left of an image is removed at the next start.
func TestLeftoversOfImagesGo(t *testing.T) {
	n := env.Start(t)
	left := filepath.Join(n.Config().Data, "image", fmt.Sprintf("%020d.img.tmp", 7))
	if err := os.WriteFile(left, make([]byte, 1000), 0o600); err != nil {
		t.Fatal(err)
	}
	n.Restart(t)
	if _, err := os.Stat(left); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("still there: %v", err)
	}
}

// filling is a disk on which images take room.
type filling struct {
	vfs.FS
	free, least atomic.Int64
}

func (d *filling) Usage(string) (int64, int64, error) { return d.free.Load(), 1 << 40, nil }

func (d *filling) Create(name string) (vfs.File, error) {
	f, err := d.FS.Create(name)
	if err == nil && strings.Contains(name, ".img") {
		return &fillingFile{f, d}, nil
	}
	return f, err
}

type fillingFile struct {
	vfs.File
	d *filling
}

func (f *fillingFile) Write(p []byte) (int, error) {
	f.d.least.Store(min(f.d.least.Load(), f.d.free.Add(-int64(len(p)))))
	return f.File.Write(p)
}

// An image does not use up the room that is kept for deleting.
func TestImageLeavesRoomForDeleting(t *testing.T) {
	const reserve = 1 << 20
	disk := &filling{FS: vfs.OS()}
	disk.free.Store(1 << 39)
	n := env.Start(t, func(c *namenode.Config) { c.FS, c.Reserve = disk, reserve })
	r := n.Raw(t, "a")
	for i := range 4 {
		w := r.Create(fmt.Sprintf("/f%d", i))
		if err := r.Flush(w, 0, strings.Repeat("x", 500<<10)); err != nil {
			t.Fatal(err)
		}
	}
	try := func() error {
		disk.free.Store(reserve)
		disk.least.Store(reserve)
		_, err := r.Admin.Checkpoint(t.Context(), &pb.CheckpointRequest{Caller: r.Who})
		return err
	}
	for range 2 {
		if err := try(); !errors.Is(err, fserror.NoSpace) || !strings.Contains(err.Error(), "no room for an image") {
			t.Fatalf("%v", err)
		}
		if least := disk.least.Load(); least < reserve/2 {
			t.Fatalf("%d bytes were free in the middle of it", least)
		}
	}
	if left, err := filepath.Glob(filepath.Join(n.Config().Data, "image", "*")); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	remove(t, r, "/f1")
	disk.free.Store(1 << 39)
	checkpoint(t, n, r)
	// The size of the last one is known: the next is refused before it is begun.
	if err := try(); !errors.Is(err, fserror.NoSpace) || disk.least.Load() != reserve {
		t.Errorf("%v; %d bytes were written", err, reserve-disk.least.Load())
	}
}
