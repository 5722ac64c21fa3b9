package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// free is how much room is left.
func (s *scratch) free() int64 {
	s.t.Helper()
	var st unix.Statfs_t
	if err := unix.Statfs(s.outside(), &st); err != nil {
		s.t.Fatal(err)
	}
	return int64(st.Bavail) * st.Bsize
}

// fill writes somebody else's file until only so much is free.
func (s *scratch) fill(left int64) {
	s.t.Helper()
	f, err := os.OpenFile(filepath.Join(s.outside(), "ballast"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		s.t.Fatal(err)
	}
	defer f.Close()
	piece := make([]byte, 64<<10)
	for s.free() > left {
		if _, err := f.Write(piece[:min(int64(len(piece)), s.free()-left)]); err != nil && !errors.Is(err, syscall.ENOSPC) {
			s.t.Fatal(err)
		}
	}
}

// fillFor fills the disk until only so much is free and the namenode makes no more
// room by itself, and creations are refused. It returns why.
func (s *scratch) fillFor(ctx context.Context, n *namenode, left int64) string {
	s.t.Helper()
	eventually(ctx, s.t, "there is no garbage to make room", func() bool {
		s.fill(left)
		return n.status(ctx).GarbageBlocks == 0
	})
	s.fill(left)
	return untilRefused(ctx, s.t, func(i int) result { return n.try(ctx, "x", "create", fmt.Sprintf("/f%d", i), "--overwrite") })
}

func (s *scratch) empty() {
	s.t.Helper()
	if err := os.Remove(filepath.Join(s.outside(), "ballast")); err != nil {
		s.t.Fatal(err)
	}
}

// onScratch is a namenode whose folder is on a small disk.
func onScratch(ctx context.Context, t *testing.T, size string) (*namenode, *scratch) {
	t.Helper()
	disk := newScratch(ctx, t, size)
	n := newNamenode(t, filepath.Join(disk.dir, "data"))
	n.via = disk.via
	n.start(ctx)
	return n, disk
}

var fullLine = regexp.MustCompile(`^leasefs: \S+ /\S+: .*(full|reserve).*delete files or add .*\n$`)

// untilRefused repeats a write until it is refused, and tells why.
func untilRefused(ctx context.Context, t *testing.T, write func(i int) result) string {
	t.Helper()
	for i := 0; ; i++ {
		r := write(i)
		if r.code == 0 {
			continue
		}
		if r.code != 6 || !fullLine.MatchString(r.err) {
			t.Fatalf("exit code %d, want 6: %s", r.code, r.err)
		}
		if ctx.Err() != nil {
			t.Fatal("never refused")
		}
		return strings.TrimSpace(r.err)
	}
}

// Others fill the disk below the reserve: writes are refused, everything else
// continues, and so do writes when there is room again.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	ctx := deadline(t, 2*time.Minute)
	n, disk := onScratch(ctx, t, "512m")
	n.run(ctx, "put", "-r", oddTree(t), "/tree")
	w := n.begin(ctx, nil, "append", "--create", "--flush", "line", "--ack", "/log")
	fed, done := feedUntilGone(w)
	w.acksUpTo(ctx, 5_000)
	late := n.begin(ctx, nil, "create", "--flush", "block", "/late")
	late.feed("never flushed")
	eventually(ctx, t, "/late is open", func() bool { return n.try(ctx, "", "stat", "/late").code == 0 })
	disk.fill(64 << 20)
	t.Log(untilRefused(ctx, t, func(i int) result { return n.try(ctx, "x", "create", fmt.Sprintf("/f%d", i)) }))
	// The writer that was at work is refused, too, and closes what it has.
	w.ends(ctx, 6)
	<-done
	oneLine(t, w.err.String())
	disk.fillFor(ctx, n, 64<<20)
	e := jsonError(t, n.fails(ctx, 6, "x", "--json", "append", "--create", "/g"))
	if e["kind"] != "NO_SPACE" || e["retry_after_ms"] == nil {
		t.Errorf("%v", e)
	}
	// So is one that has all its bytes still to write with its close. It gives
	// the file back all the same.
	late.eof()
	late.ends(ctx, 6)
	oneLine(t, late.err.String())
	check := func() {
		t.Helper()
		got := n.run(ctx, "cat", "/log")
		if int64(len(got)) < w.acked() || !strings.HasPrefix(fed.String(), got) {
			t.Errorf("%d bytes were acknowledged, %d are there", w.acked(), len(got))
		}
	}
	check()
	if got := n.run(ctx, "find", "/", "--open"); got != "" {
		t.Errorf("open: %s", got)
	}
	n.fails(ctx, 6, "", "mv", "/tree", "/moved")
	n.run(ctx, "rm", "-r", "/tree/cgi", "/tree/cookiejar", "/tree/exactly a block", "/tree/empty")
	n.crash(ctx) // and it comes up on a full disk
	check()
	disk.fillFor(ctx, n, 64<<20)
	n.fails(ctx, 6, "x", "create", "/no")
	disk.empty()
	eventually(ctx, t, "writes continue", func() bool { return n.try(ctx, "x", "create", "--overwrite", "/yes").code == 0 })
	check()
	n.crash(ctx)
	check()
	n.fsck(ctx)
}

// The disk is full to the last byte, so not even a deletion can be journalled:
// the namenode ends rather than answer what it cannot keep, and has everything
// when there is room again.
func TestDiskFullToTheLastByte(t *testing.T) {
	t.Parallel()
	ctx := deadline(t, 2*time.Minute)
	n, disk := onScratch(ctx, t, "512m")
	w := n.begin(ctx, nil, "--timeout", "5s", "append", "--create", "--flush", "line", "--ack", "/log")
	fed, done := feedUntilGone(w)
	w.acksUpTo(ctx, 5_000)
	for range 10 {
		n.write(ctx, strings.Repeat("kept", 1000), "create", "--overwrite", "/kept")
	}
	const cut = 100_000
	n.write(ctx, strings.Repeat("x", cut), "create", "/cut")
	fsys := n.client(ctx)
	disk.fill(0)
	w.wait(ctx)
	<-done
	// Thousands of records still fit in the room that the journal has. The first
	// that does not ends it.
	for left := int64(cut) - 1; left >= 0 && !n.ended(); left-- {
		short, cancel := context.WithTimeout(ctx, time.Second)
		_ = fsys.Truncate(short, "/cut", left) // until there is nobody to answer
		cancel()
	}
	n.ends(ctx, 1)
	all := lines(n.err.String())
	oneLine(t, all[len(all)-1]+"\n")
	names(t, all[len(all)-1], "no space left")
	t.Log(all[len(all)-1])
	disk.empty()
	n.start(ctx)
	got := n.run(ctx, "cat", "/log")
	if int64(len(got)) < w.acked() || !strings.HasPrefix(fed.String(), got) {
		t.Errorf("%d bytes were acknowledged, %d are there", w.acked(), len(got))
	}
	if got := n.run(ctx, "cat", "/kept"); got != strings.Repeat("kept", 1000) {
		t.Errorf("%d bytes", len(got))
	}
	n.write(ctx, "x", "create", "/new")
	n.fsck(ctx)
}

// A namenode starts on a disk that is full to the last byte, so that files can be
// deleted through it, until there is room to write again.
func TestStartWithNothingFree(t *testing.T) {
	t.Parallel()
	ctx := deadline(t, 2*time.Minute)
	n, disk := onScratch(ctx, t, "330m")
	block := strings.Repeat("leasefs ", 1<<20) // 8 MiB
	n.write(ctx, "kept", "create", "/kept")
	rm := []string{"rm"}
	untilRefused(ctx, t, func(i int) result {
		name := fmt.Sprintf("/f%03d", i)
		r := n.try(ctx, block, "create", name)
		if r.code == 0 {
			rm = append(rm, name)
		}
		return r
	})
	// After a clean end, which gives back what the journal has allocated ahead, and
	// after a crash, when that start has used what was set aside for it.
	for i := range 3 {
		if i == 0 {
			n.term(ctx)
		} else {
			n.kill()
		}
		disk.fill(0)
		n.start(ctx)
	}
	disk.fill(0) // what the start has given back
	if got := n.run(ctx, "cat", "/kept"); got != "kept" {
		t.Errorf("read %q", got)
	}
	n.fails(ctx, 6, "x", "create", "/no")
	n.run(ctx, rm...)
	eventually(ctx, t, "the garbage is deleted", func() bool { return n.status(ctx).GarbageBlocks == 0 })
	eventually(ctx, t, "writes continue", func() bool { return n.try(ctx, "new", "create", "--overwrite", "/new").code == 0 })
	n.crash(ctx)
	for name, want := range map[string]string{"/kept": "kept", "/new": "new"} {
		if got := n.run(ctx, "cat", name); got != want {
			t.Errorf("%s: read %q", name, got)
		}
	}
	n.fsck(ctx)
}

// Files fill the disk up to the reserve, no less and no more.
func TestFilledByWriting(t *testing.T) {
	t.Parallel()
	ctx := deadline(t, time.Minute)
	n, disk := onScratch(ctx, t, "200m")
	block := strings.Repeat("leasefs ", 1<<20) // 8 MiB
	written := 0
	began := disk.free()
	t.Log(untilRefused(ctx, t, func(i int) result {
		r := n.try(ctx, block, "create", fmt.Sprintf("/f%03d", i))
		if r.code == 0 {
			written++
		}
		return r
	}))
	t.Logf("%d files of 8 MiB were taken on a disk with %s free; %s are left", written, mib(began), mib(disk.free()))
	const reserve = 128 << 20
	if most := int64(reserve + 16<<20); disk.free() > most {
		t.Errorf("%s are left; the reserve is %s", mib(disk.free()), mib(reserve))
	}
	for i := range written {
		if got := n.run(ctx, "cat", fmt.Sprintf("/f%03d", i)); got != block {
			t.Fatalf("file %d: %d bytes", i, len(got))
		}
	}
	// Deleting still works, and then all else does.
	n.run(ctx, "rm", "/f000", "/f001")
	eventually(ctx, t, "writes continue", func() bool { return n.try(ctx, "", "mv", "/f002", "/moved").code == 0 })
	n.run(ctx, "admin", "checkpoint")
	n.crash(ctx)
	if got := n.run(ctx, "cat", "/moved"); got != block {
		t.Fatalf("%d bytes", len(got))
	}
	n.fsck(ctx)
}
