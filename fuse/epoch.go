package fuse

import (
	"encoding/binary"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
)

const (
	// maxGiven is how many names of directories the kernel may believe at once;
	// further ones get no time-out.
	maxGiven = 100_000
	// givenGrace is for how long an answer may take to reach the kernel, whose
	// time-out begins only then. Who is stopped for longer has lost its lease.
	givenGrace = 10 * time.Second
	// epochQuiet is how long the kernel gets no names to believe after it had to
	// forget all of them: with them it forgets what it has of the files below that
	// nobody has open.
	epochQuiet = 30 * time.Second
)

// epochs lets the kernel believe names of directories for a while. There is one
// notification that takes it all back: the kernel's names have the epoch in which
// it asked for them, and those of an older one are asked for again. It takes no
// lock, so it waits for nobody, and it says so by what it has returned.
type epochs struct {
	next   func() error        // begins one; nil: this kernel has none
	inside func() bool         // something else is mounted inside the mount
	pause  func(time.Duration) // waits, but not longer than the mount lives
	quiet  time.Duration

	mu sync.Mutex
	// given is until when the kernel may believe a name, at the latest.
	given map[client.RevokedName]time.Time
	any   bool      // since the last epoch began
	from  time.Time // none is given before
}

// give notes that the kernel may be told to believe a name from now on, if what
// it stands for is found in the cache after this; false: it must not be.
func (e *epochs) give(name client.RevokedName) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	if e.next == nil || now.Before(e.from) {
		return false
	}
	if len(e.given) >= maxGiven {
		for k, until := range e.given {
			if now.After(until) {
				delete(e.given, k)
			}
		}
		if len(e.given) >= maxGiven {
			return false
		}
	}
	e.given[name], e.any = now.Add(maxAttrTime+givenGrace), true
	return true
}

// believed tells whether the kernel may believe something of what is revoked.
func (e *epochs) believed(r client.Revocation) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.hit(r)
}

// hit: the caller holds mu.
func (e *epochs) hit(r client.Revocation) bool {
	if r.All {
		return e.any
	}
	now := time.Now()
	for _, name := range r.Names {
		if until, ok := e.given[name]; ok && now.Before(until) {
			return true
		}
	}
	return false
}

// revoked makes the kernel forget all names if it may believe one that is revoked.
// When it returns, none of them is believed.
func (e *epochs) revoked(r client.Revocation) {
	e.mu.Lock()
	if !e.hit(r) {
		e.mu.Unlock()
		return
	}
	e.from = time.Now().Add(e.quiet)
	e.mu.Unlock()
	// The kernel would take away what is mounted on the folders that it forgets.
	// Then it is left to forget by itself, answers under way included.
	if e.inside() || !e.begin() {
		e.pause(2 * maxAttrTime)
	}
}

// begin begins an epoch. Whatever was given before is of one that is over: who
// asked for it had asked before.
func (e *epochs) begin() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.next() != nil {
		return false
	}
	clear(e.given)
	e.any = false
	return true
}

// device is a duplicate of the descriptor by which this process serves a mount,
// by the number of its connection: go-fuse keeps its own to itself. Closing the
// duplicate is the caller's.
func device(connection uint32) (*os.File, error) {
	const dir = "/proc/self/fdinfo"
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	serves := func(fd string) bool {
		var buf [1024]byte
		n, err := strconv.ParseUint(field(readProc(dir+"/"+fd, buf[:]), "fuse_connection"), 10, 32)
		return err == nil && uint32(n) == connection
	}
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil || !serves(e.Name()) {
			continue
		}
		dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3) //nolint:gosec // a descriptor
		if err != nil {
			continue
		}
		if serves(strconv.Itoa(dup)) { // and not what came in its place
			return os.NewFile(uintptr(dup), "/dev/fuse"), nil //nolint:gosec // a descriptor
		}
		_ = unix.Close(dup) // another's
	}
	return nil, fserror.New(fserror.NotFound, "", "", "no descriptor of this process serves connection %d", connection)
}

// incEpoch is FUSE_NOTIFY_INC_EPOCH of the kernel's include/uapi/linux/fuse.h: a
// header only.
func incEpoch(w *os.File) error {
	const code = 8
	var header [16]byte // length, code, and 0 for a notification
	binary.NativeEndian.PutUint32(header[0:], uint32(len(header)))
	binary.NativeEndian.PutUint32(header[4:], code)
	_, err := w.Write(header[:])
	return err
}

// startEpochs finds out whether the kernel has them (from Linux 6.16 on).
func (m *Mounted) startEpochs(o Options) {
	if o.test.noEpochs {
		return
	}
	var st unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, m.dir, unix.AT_STATX_DONT_SYNC, 0, &st); err != nil {
		return
	}
	dev, err := device(st.Dev_minor)
	if err != nil {
		return // an older kernel does not tell the connection
	}
	if err := incEpoch(dev); err != nil {
		_ = dev.Close() // nothing was written
		return
	}
	m.device = dev
	e := &m.epochs
	e.mu.Lock()
	defer e.mu.Unlock()
	e.given = make(map[client.RevokedName]time.Time)
	e.inside, e.pause, e.quiet = m.mountsInside, m.pause, epochQuiet
	if o.test.quiet != nil {
		e.quiet = *o.test.quiet
	}
	e.next = func() error { return incEpoch(dev) }
}

// pause waits, but not longer than the mount lives.
func (m *Mounted) pause(d time.Duration) {
	_ = clock.Pause(m.ctx, d) // who waits looks by itself whether it is over
}

// mountsInside tells whether something is mounted on a folder of the mount, as
// far as this process sees it; true if it cannot see.
func (m *Mounted) mountsInside() bool {
	info, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return true
	}
	for line := range strings.Lines(string(info)) {
		if f := strings.Fields(line); len(f) > 4 && strings.HasPrefix(unescape(f[4]), string(m.within)) {
			return true
		}
	}
	return false
}
