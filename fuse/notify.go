package fuse

import (
	"context"
	"encoding/binary"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/leasefs/leasefs/internal/fserror"
)

// attrsOnly is the offset of a notification that leaves the pages alone.
const attrsOnly = -1

// inKernel is a node as the book of the kernel's caches sees it.
type inKernel struct{ *node }

// number implements kernelInode.
func (n inKernel) number() uint64 { return n.ino }

// drop implements kernelInode. The kernel waits for READs of the pages.
func (n inKernel) drop(pages bool) syscall.Errno {
	off := int64(attrsOnly)
	if pages {
		off = 0
	}
	return n.NotifyContent(off, 0)
}

// forgotten implements kernelInode. (OnForget may come late: when the kernel has asked
// for the inode again.) A kernel that does not know the root has let go of the mount:
// it forgets what it had without telling this process.
func (n inKernel) forgotten() bool {
	return n.Forgotten() || //nolint:staticcheck // deprecated for OnForget, which does not do here
		n.Root().NotifyContent(attrsOnly, 0) == syscall.ENOENT
}

// grow implements kernelInode: it stores the file's last byte in a page. It drops pages
// before, which may have zeros where the file has grown, and after, in case the file was
// cut and written again meanwhile. The kernel knows the size of a file that is open for
// write here, since it comes from its own WRITEs.
func (n inKernel) grow(ctx context.Context, size int64) bool {
	f := n.m.file(n.ino)
	defer f.unuse()
	if f.current() != nil {
		return false
	}
	r, _, e := f.view(ctx, n.node, false)
	if e != 0 {
		return false
	}
	var last [1]byte
	if k, _ := r.ReadAtContext(ctx, last[:], size-1, false); k == 0 {
		return false // it is not as long any more
	}
	return n.drop(true) == 0 && n.WriteCache(size-1, last[:]) == 0 && n.drop(true) == 0
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
	quiet := epochQuiet
	if o.test.quiet != nil {
		quiet = *o.test.quiet
	}
	m.kernel.names.start(func() error { return incEpoch(dev) }, m.mountsInside, quiet)
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
