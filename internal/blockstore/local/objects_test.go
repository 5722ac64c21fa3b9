package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/vfs"
	"github.com/leasefs/leasefs/test/env/blocktest"
	"github.com/leasefs/leasefs/test/env/crashfs"
)

func TestObjects(t *testing.T) {
	for name, on := range map[string]func(t *testing.T) (vfs.FS, string){
		"Disk":   func(t *testing.T) (vfs.FS, string) { return vfs.OS(), t.TempDir() },
		"Memory": func(*testing.T) (vfs.FS, string) { return crashfs.New(), "/blocks" },
	} {
		t.Run(name, func(t *testing.T) {
			blocktest.RunObjects(t, func(t *testing.T) (one, another blockstore.Objects) {
				disk, dir := on(t)
				a, _, _ := harness(t, Config{FS: disk, Dir: dir})
				b, _, _ := harness(t, Config{FS: disk, Dir: dir})
				return a, b
			})
		})
	}
}

func putNamed(s *Store, name string, body []byte) error {
	return s.PutNamed(context.Background(), name, bytes.NewReader(body), int64(len(body)), blockstore.CRC(body)) //nolint:usetesting // no test at hand
}

func namedBody(name string, i int) []byte {
	return bytes.Repeat([]byte(fmt.Sprintf("%s %d ", name, i)), 5_000)
}

// named is what callers were told of named objects; each value is the number of
// the body.
type named struct {
	acked, tried map[string]int
	deleted      map[string]bool
}

// namedWorkload puts and deletes, as the namenode does with its images, until
// the first error.
func namedWorkload(disk vfs.FS) (h named, err error) {
	h = named{map[string]int{}, map[string]int{}, map[string]bool{}}
	s, err := openOn(disk)
	if err != nil {
		return h, err
	}
	ctx := context.Background() //nolint:usetesting // no test at hand
	for i, name := range []string{"namespace", "image-1", "image-2", "a.b", "image-3"} {
		h.tried[name] = i
		if err := putNamed(s, name, namedBody(name, i)); err != nil {
			return h, err
		}
		h.acked[name] = i
		if err := putNamed(s, name, namedBody(name, 99)); !errors.Is(err, fserror.Exists) {
			return h, fmt.Errorf("second put: %w", err)
		}
		if name == "image-3" {
			delete(h.acked, "image-1") // from here on either is right
			if err := s.DeleteNamed(ctx, "image-1"); err != nil {
				return h, err
			}
			h.deleted["image-1"] = true
		}
	}
	return h, s.Close()
}

// checkNamed opens the disk as a crash left it. It returns what the store says
// is there, which from then on has to stay.
func checkNamed(t *testing.T, disk vfs.FS, h named) named {
	t.Helper()
	s, err := openOn(disk)
	if err != nil {
		t.Fatalf("open after the crash: %v", err)
	}
	requireNoTemporaries(t, s)
	infos, err := s.ListNamed(t.Context(), "", "", 100)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, info := range infos {
		found[info.Name] = true
		i, ok := h.tried[info.Name]
		if !ok || h.deleted[info.Name] {
			t.Fatalf("object %s should not be there", info.Name)
		}
		want := namedBody(info.Name, i)
		if _, crc, err := s.StatNamed(t.Context(), info.Name); err != nil || crc != blockstore.CRC(want) || info.Length != int64(len(want)) {
			t.Fatalf("object %s: %d bytes, %v", info.Name, info.Length, err)
		}
	}
	for name := range h.acked {
		if !found[name] {
			t.Fatalf("object %s was acknowledged and is gone", name)
		}
	}
	// It still works. Exists is an acknowledgement of the first put.
	acked := map[string]int{}
	for name, i := range h.tried {
		if h.deleted[name] {
			continue
		}
		if err := putNamed(s, name, namedBody(name, i)); err != nil && !errors.Is(err, fserror.Exists) {
			t.Fatalf("put %s again: %v", name, err)
		}
		acked[name] = i
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return named{acked, h.tried, h.deleted}
}

// TestObjectsCrashAtEveryPoint: an image is there whole or not at all, an
// acknowledged one stays, and nothing is left of one that was cut short.
func TestObjectsCrashAtEveryPoint(t *testing.T) {
	base := crashfs.New()
	if _, err := namedWorkload(base); err != nil {
		t.Fatal(err)
	}
	points := base.Ops()
	if points < 40 {
		t.Fatalf("only %d points", points)
	}
	t.Logf("%d points", points)
	for name, mode := range map[string]crashfs.Mode{"strict": crashfs.Strict, "torn": crashfs.Torn, "kill": crashfs.Kill} {
		t.Run(name, func(t *testing.T) {
			for n := 1; n <= points; n++ {
				seeds := uint64(1)
				if mode == crashfs.Torn {
					seeds = 3
				}
				for seed := range seeds {
					disk := crashfs.New(seed)
					disk.CrashAt(n)
					h, err := namedWorkload(disk)
					if err == nil {
						t.Fatalf("no error at point %d", n)
					}
					after := disk.Crash(mode)
					h = checkNamed(t, after, h)
					checkNamed(t, after.Crash(crashfs.Strict), h)
				}
			}
		})
	}
}

// TestObjectsFailedSync: what could not be made durable is not there, and
// may be put again.
func TestObjectsFailedSync(t *testing.T) {
	for _, what := range []string{"*" + tmpSuffix, namedFolder} {
		disk := crashfs.New()
		s, err := openOn(disk)
		if err != nil {
			t.Fatal(err)
		}
		if err := putNamed(s, "first", []byte("x")); err != nil { // makes the folder
			t.Fatal(err)
		}
		disk.FailSync(what, nil)
		if err := putNamed(s, "image", []byte("one")); !errors.Is(err, fserror.Unavailable) {
			t.Fatalf("%s: %v, want Unavailable", what, err)
		}
		disk.Heal()
		requireNoTemporaries(t, s)
		if _, _, err := s.StatNamed(t.Context(), "image"); !errors.Is(err, fserror.NotFound) {
			t.Fatalf("%s: %v, want NotFound", what, err)
		}
		if err := putNamed(s, "image", []byte("two")); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		after, err := openOn(disk.Crash())
		if err != nil {
			t.Fatal(err)
		}
		r, err := after.GetNamed(t.Context(), "image", 0, -1)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(r)
		if err := errors.Join(err, r.Close()); err != nil || string(got) != "two" {
			t.Errorf("%s: %q, %v", what, got, err)
		}
	}
}

// TestObjectsLeftovers: an upload that a crash cut short does not stay for ever.
func TestObjectsLeftovers(t *testing.T) {
	disk := crashfs.New()
	s, err := openOn(disk)
	if err != nil {
		t.Fatal(err)
	}
	tmp := filepath.Join(s.tmp.dir, s.tmp.id+"-named-1"+tmpSuffix)
	if err := s.write(t.Context(), "image", tmp, source{body: strings.NewReader("half"), length: 4, crc: blockstore.CRC([]byte("half"))}); err != nil {
		t.Fatal(err)
	}
	after := disk.Crash(crashfs.Kill)
	if _, err := openOn(after); err != nil {
		t.Fatal(err)
	}
	if _, err := after.Stat(tmp); err == nil {
		t.Error("it is still there")
	}
}

func TestObjectsClosed(t *testing.T) {
	s, err := openOn(crashfs.New())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	_, gerr := s.GetNamed(t.Context(), "x", 0, -1)
	_, lerr := s.ListNamed(t.Context(), "", "", 1)
	for what, err := range map[string]error{"put": putNamed(s, "x", []byte("x")), "get": gerr, "list": lerr, "delete": s.DeleteNamed(t.Context(), "x")} {
		if !errors.Is(err, fserror.Closed) {
			t.Errorf("%s: %v, want Closed", what, err)
		}
	}
}

// Bytes that end early are not those that were announced; a body that cannot be
// read is no damage. Nothing is stored of either.
func TestPutNamedOfLessThanWasAnnounced(t *testing.T) {
	s, err := openOn(crashfs.New())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		body io.ReaderAt
		want fserror.Kind
	}{
		{strings.NewReader("half"), fserror.Damaged},
		{unreadable{}, fserror.Unavailable},
	} {
		if err := s.PutNamed(t.Context(), "image", c.body, 8, blockstore.CRC([]byte("half"))); fserror.KindOf(err) != c.want {
			t.Errorf("%v, want %v", err, c.want)
		}
		if _, _, err := s.StatNamed(t.Context(), "image"); !errors.Is(err, fserror.NotFound) {
			t.Errorf("it is stored: %v", err)
		}
	}
}

type unreadable struct{}

func (unreadable) ReadAt([]byte, int64) (int, error) { return 0, errors.New("bad sector") }

// TestLargeObjectsLeaveRoom: an image or a base of the archive, however large, leaves half of the
// reserve for deleting. What deleting itself needs may go there.
func TestLargeObjectsLeaveRoom(t *testing.T) {
	disk := crashfs.New()
	disk.Capacity(8 << 20)
	s, _, _ := harness(t, Config{FS: disk, Dir: "/b", Reserve: 4 << 20})
	for _, c := range []struct {
		name  string
		bytes int
		want  error
	}{
		{"image-1", 7 << 20, fserror.NoSpace},
		{"image-1", 5 << 20, nil}, // 3 MiB are left, less than what blocks leave
		{"image-2", smallObject + smallObject/2, fserror.NoSpace},
		{"image-2", smallObject - 1, nil},
		{"image-3", smallObject, fserror.NoSpace},
		{"reign-1", smallObject / 2, nil},
	} {
		if err := putNamed(s, c.name, make([]byte, c.bytes)); !errors.Is(err, c.want) {
			t.Errorf("%s of %d bytes: %v", c.name, c.bytes, err)
		}
		if left := s.pending.Load(); left != 0 {
			t.Errorf("%s: %d bytes are still booked", c.name, left)
		}
	}
}

// whileRead calls a function before the second piece of an object is read.
type whileRead struct {
	io.ReaderAt
	then func()
}

func (w *whileRead) ReadAt(p []byte, at int64) (int, error) {
	if at == pieceSize {
		w.then()
	}
	return w.ReaderAt.ReadAt(p, at)
}

// TestLargeObjectsCountOnce: what is on the disk of an object that is being written is not booked
// besides.
func TestLargeObjectsCountOnce(t *testing.T) {
	s, _, _ := harness(t, Config{FS: crashfs.New(), Dir: "/b", Reserve: 4 << 20})
	image := make([]byte, 3*pieceSize)
	body := &whileRead{bytes.NewReader(image), func() {
		if left := s.pending.Load(); left != 2*pieceSize {
			t.Errorf("%d bytes are booked", left)
		}
	}}
	if err := s.PutNamed(t.Context(), "image", body, int64(len(image)), blockstore.CRC(image)); err != nil {
		t.Error(err)
	}
}
