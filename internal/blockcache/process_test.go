package blockcache

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"
)

// asProcess makes the test's own program a user of the folder that it names.
const asProcess = "LEASEFS_TEST_BLOCK_CACHE"

const (
	shared = 40  // blocks that the processes use, of up to 1 MiB
	turns  = 150 // how often a process uses one at least
)

func sharedObject(i int) object { return newObject(uint64(i), 1<<20-i*1000) }

// process reads and offers blocks until it has done so often enough and its input ends.
func process(dir string) int {
	c, err := Open(Config{Dir: dir, Size: MinSize})
	if err == nil {
		err = c.Use(namespace)
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	var ended atomic.Bool
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // until it ends, however it does
		ended.Store(true)
	}()
	for i := 0; i < turns || !ended.Load(); i++ {
		if i == 10 {
			fmt.Println("running")
		}
		o := sharedObject(rand.IntN(shared)) //nolint:gosec // a test
		buf := make([]byte, len(o.data))
		if table, ok := c.Read(o.Block, nil, 0, buf); ok {
			if string(buf) != string(o.data) || string(table) != string(o.table) {
				fmt.Println("wrong bytes of block", o.Key)
				return 1
			}
			continue
		}
		done := make(chan struct{})
		if c.Offer(o.Block, o.table, 0, o.data, func() { close(done) }) {
			<-done
		}
	}
	c.Close()
	if s := c.Stats(); s.Damaged > 0 || s.Skipped > 0 {
		fmt.Printf("%+v\n", s)
		return 1
	}
	return 0
}

// TestProcesses share a folder, two of which are killed: each reads only what is
// right, and the limit holds all the time.
func TestProcesses(t *testing.T) {
	dir := folderOf(t)
	type running struct {
		*exec.Cmd
		in   io.Closer
		said *bufio.Reader
	}
	var all []running
	for range 5 {
		cmd := exec.CommandContext(t.Context(), os.Args[0]) //nolint:gosec // this very program
		cmd.Env = append(os.Environ(), asProcess+"="+dir)
		out, err := cmd.StdoutPipe()
		must(t, err)
		in, err := cmd.StdinPipe()
		must(t, err)
		must(t, cmd.Start())
		all = append(all, running{cmd, in, bufio.NewReader(out)})
	}
	c := open(t, dir, MinSize)
	for i, p := range all {
		if line, err := p.said.ReadString('\n'); line != "running\n" {
			t.Fatalf("%q, %v", line, err)
		}
		s, err := c.folder.lock(t.Context())
		must(t, err)
		_, total, err := c.folder.count()
		must(t, err)
		if sum, known := s.load(); !known || sum < total || total > MinSize {
			t.Errorf("the files take %d bytes of %d, the sum is %d, %v", total, int64(MinSize), sum, known)
		}
		s.unlock()
		if i < 2 {
			must(t, p.Process.Kill())
			_ = p.Wait() // killed
		}
	}
	for _, p := range all[2:] {
		must(t, p.in.Close())
	}
	for _, p := range all[2:] {
		said, err := io.ReadAll(p.said)
		must(t, err)
		if err := p.Wait(); err != nil {
			t.Errorf("%v: %s", err, said)
		}
	}
	if got := usage(t, dir); got > MinSize || got < MinSize/2 {
		t.Errorf("%d bytes", got)
	}
	kept := 0
	for i := range shared {
		if o := sharedObject(i); has(t, c, o, 0, len(o.data)) {
			kept++
		}
	}
	if kept == 0 || kept == shared {
		t.Errorf("%d of %d blocks are kept", kept, shared)
	}
}

// TestKilledWhileWriting: whenever a process dies that writes, the sum is at least what
// the files take.
func TestKilledWhileWriting(t *testing.T) {
	dir := folderOf(t)
	c := open(t, dir, MinSize)
	sumNow := func() int64 {
		f, err := os.Open(filepath.Join(dir, lockName))
		must(t, err)
		defer f.Close()
		n, known := (&sum{c.folder, f}).load()
		if !known {
			t.Error("the sum is not known")
		}
		return n
	}
	writes := 0
	o := newObject(1, 3<<20)
	put(t, c, o, 0, chunk)
	before := sumNow()
	c.folder.writing = func() {
		writes++
		if got := sumNow(); got < before+2<<20 {
			t.Errorf("before 2 MiB were written the sum was %d, then %d", before, got)
		}
	}
	put(t, c, o, 1<<20, 2<<20)
	if got := sumNow(); writes != 1 || got < usage(t, dir)-4096 || got > before+2<<20+64<<10 {
		t.Errorf("after %d writes the sum is %d, the files take %d", writes, got, usage(t, dir))
	}
}

// TestStoppedProcess has the lock and gives it back to nobody: others read on, offer
// as much as may wait, and end.
func TestStoppedProcess(t *testing.T) {
	dir := folderOf(t)
	c := open(t, dir, MinSize)
	o := newObject(1, chunk)
	put(t, c, o, 0, chunk)
	stopped, err := openFolder(dir, MinSize)
	must(t, err)
	defer stopped.close()
	s, err := stopped.lock(t.Context())
	must(t, err)
	defer s.unlock()
	freed := make(chan struct{}, 100)
	taken := 0
	for i := range 100 {
		o := newObject(uint64(100+i), 1<<20)
		if c.Offer(o.Block, o.table, 0, o.data, func() { freed <- struct{}{} }) {
			taken++
		}
	}
	if taken != maxQueued>>20 {
		t.Errorf("%d MiB wait", taken)
	}
	if !has(t, c, o, 0, chunk) {
		t.Error("nothing can be read")
	}
	c.Close()
	if len(freed) != taken {
		t.Errorf("%d of %d pieces were let go of", len(freed), taken)
	}
	if c.Offer(o.Block, o.table, 0, o.data, nil) {
		t.Error("an offer was taken after the end")
	}
}

// TestLockReplaced: somebody has removed the lock. Who comes next makes another, and has
// it alone.
func TestLockReplaced(t *testing.T) {
	dir := folderOf(t)
	a, err := openFolder(dir, MinSize)
	must(t, err)
	defer a.close()
	s, err := a.lock(t.Context())
	must(t, err)
	must(t, os.Remove(filepath.Join(dir, lockName)))
	second, err := a.lock(t.Context())
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if third, err := a.lock(ctx); err == nil {
		third.unlock()
		t.Error("two have the lock")
	}
	s.unlock()
	second.unlock()
}

// TestFullDisk fills the disk of a folder, and makes it read-only: the folder takes
// nothing for a while, then it does again. It runs in a process of its own, which
// sees a small disk where nobody else does.
func TestFullDisk(t *testing.T) {
	const within = "LEASEFS_TEST_SMALL_DISK"
	disk := os.Getenv(within)
	if disk == "" {
		argv := []string{"unshare", "--mount"}
		if os.Getuid() != 0 {
			argv = append(argv, "--user", "--map-root-user")
		}
		script := `mount -t tmpfs -o size=12m small "$2"; chmod 700 "$2"; exec "$1" -test.run='^TestFullDisk$' -test.v`
		argv = append(argv, "sh", "-ec", script, "sh", os.Args[0], folderOf(t))
		cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...) //nolint:gosec // this very program
		cmd.Env = append(os.Environ(), within+"="+argv[len(argv)-1])
		if said, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, said)
		}
		return
	}
	c := open(t, disk, MinSize)
	first := newObject(0, 1<<20)
	put(t, c, first, 0, len(first.data))
	refused := func(why string, from int) {
		t.Helper()
		for i := range 20 {
			o := newObject(uint64(from+i), 1<<20)
			done := make(chan struct{})
			if !c.Offer(o.Block, o.table, 0, o.data, func() { close(done) }) {
				if !has(t, c, first, 0, chunk) {
					t.Errorf("%s: what is there is not read", why)
				}
				return
			}
			<-done
			if c.paused() {
				if _, err := os.Lstat(filepath.Join(disk, c.path(o.Block))); !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("%s: a block that could not be written is there: %v", why, err)
				}
			}
		}
		t.Fatalf("%s: all was taken", why)
	}
	again := func(n uint64) {
		t.Helper()
		if !c.failing {
			t.Error("nobody was told")
		}
		c.pausedUntil.Store(0)
		o := newObject(n, chunk)
		put(t, c, o, 0, chunk)
		if !has(t, c, o, 0, chunk) || c.failing {
			t.Error("it takes nothing any more")
		}
	}
	filler := filepath.Join(disk, "filler")
	must(t, os.WriteFile(filler, make([]byte, 4<<20), 0o600))
	refused("a full disk", 100)
	must(t, os.Remove(filler))
	again(1000)
	remount := func(how string) {
		if said, err := exec.CommandContext(t.Context(), "mount", "-o", "remount,"+how, disk).CombinedOutput(); err != nil { //nolint:gosec // of this test
			t.Fatalf("%v: %s", err, said)
		}
	}
	remount("ro")
	refused("a read-only disk", 200)
	if _, err := Open(Config{Dir: disk}); err == nil {
		t.Error("a read-only folder was opened")
	} else if _, err := fmt.Println(err); err != nil {
		t.Error(err)
	}
	remount("rw")
	again(2000)
}
