package fuse

import (
	"bytes"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// maxDescriptors is how many descriptors of a process are looked at.
	maxDescriptors = 4096
	// procPatience is how long a look at a process's descriptors may take. In
	// exec the kernel closes descriptors, with FLUSH, under a lock that such a
	// look waits for, so it must not be waited for.
	procPatience = 10 * time.Millisecond
)

func procOf(pid uint32) string { return "/proc/" + strconv.FormatUint(uint64(pid), 10) }

// readProc reads a small file of /proc, and nothing if that cannot be. Package os
// would take three times as many system calls; this is done for each file.
func readProc(name string, buf []byte) []byte {
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer func() { _ = unix.Close(fd) }() // only read
	n, err := unix.Read(fd, buf)
	if err != nil {
		return nil
	}
	return buf[:n]
}

// field is the value of a line "KEY:\tVALUE".
func field(text []byte, key string) string {
	for line := range bytes.Lines(text) {
		if k, v, ok := bytes.Cut(line, []byte(":")); ok && string(k) == key {
			return string(bytes.TrimSpace(v))
		}
	}
	return ""
}

// process is the process that a thread is of; 0 if that cannot be seen, as from
// another pid namespace. It must not be asked of one that may be in exec.
func process(thread uint32) uint32 {
	if thread == 0 {
		return 0
	}
	if p, ok := group(thread); ok {
		return p
	}
	return groupByProc(thread)
}

// group is the process that a thread is of, as the kernel tells from Linux 6.13
// on: at a tenth of the price of /proc, and waiting for nothing.
func group(thread uint32) (process uint32, ok bool) {
	fd, err := unix.PidfdOpen(int(thread), unix.PIDFD_THREAD)
	if err != nil {
		return 0, false
	}
	defer func() { _ = unix.Close(fd) }() // only asked
	info := unix.PidfdInfo{Mask: unix.PIDFD_INFO_PID}
	if err := unix.IoctlPidfdInfo(fd, &info); err != nil {
		return 0, false
	}
	return info.Tgid, info.Tgid != 0
}

// groupByProc is group for older kernels; 0 if it cannot be seen.
func groupByProc(thread uint32) uint32 {
	var buf [4096]byte
	n, err := strconv.ParseUint(field(readProc(procOf(thread)+"/status", buf[:]), "Tgid"), 10, 32)
	if err != nil {
		return 0
	}
	return uint32(n)
}

// inProcess tells whether a thread is of a process, also if one is not known.
func inProcess(process, thread uint32) bool {
	if process == 0 || thread == 0 || process == thread {
		return true // the thread that is in exec has the process's own number
	}
	if p, ok := group(thread); ok {
		return p == process
	}
	_, err := os.Lstat(procOf(process) + "/task/" + strconv.FormatUint(uint64(thread), 10))
	return err == nil
}

// hasChildren tells whether a process has children, which may have its descriptors; true if that
// cannot be seen.
func hasChildren(process uint32) bool {
	dir := procOf(process) + "/task"
	threads, err := os.ReadDir(dir)
	if process == 0 || err != nil {
		return true
	}
	var buf [64]byte
	seen := false
	for _, t := range threads {
		fd, err := unix.Open(dir+"/"+t.Name()+"/children", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			continue // the thread has ended, or this kernel does not tell
		}
		n, err := unix.Read(fd, buf[:])
		_ = unix.Close(fd) // only read
		if n != 0 || err != nil {
			return true
		}
		seen = true
	}
	return !seen
}

// holds tells whether a process has a descriptor of that inode of this mount,
// open for write. One that is being closed is not in the list any more. It is not
// seen if the process is another user's, or in exec.
func (m *Mounted) holds(pid uint32, inode uint64) (is, seen bool) {
	if pid == 0 {
		return false, false
	}
	type look struct{ is, seen bool }
	found := make(chan look, 1)
	if !m.goRun(func() { is, seen := m.look(procOf(pid), inode); found <- look{is, seen} }) {
		return false, false
	}
	late := time.NewTimer(procPatience)
	defer late.Stop()
	select {
	case l := <-found:
		return l.is, l.seen
	case <-late.C:
		return false, false
	}
}

func (m *Mounted) look(proc string, inode uint64) (is, seen bool) {
	dir, err := unix.Open(proc+"/fd", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false, false
	}
	defer func() { _ = unix.Close(dir) }() // only read
	var buf, to [4096]byte
	names := make([]string, 0, 64)
	for seen := 0; seen < maxDescriptors; seen += len(names) {
		n, err := unix.ReadDirent(dir, buf[:])
		if n <= 0 || err != nil {
			return false, n == 0 && err == nil
		}
		_, _, names = unix.ParseDirent(buf[:n], -1, names[:0])
		for _, fd := range names {
			// The link's text needs no call to the file system, unlike a stat of it.
			n, err := unix.Readlinkat(dir, fd, to[:])
			if err == nil && bytes.HasPrefix(to[:n], m.within) && isWriter(proc+"/fdinfo/"+fd, inode) {
				return true, true
			}
		}
	}
	return false, false
}

// namesAlike tells whether a process has the same mounts as this one, so that its descriptors of a
// mount's files have the names that this one knows. A container has others.
func namesAlike(process uint32) bool {
	theirs, err := os.Readlink(procOf(process) + "/ns/mnt")
	if err != nil {
		return false
	}
	ours, err := os.Readlink("/proc/self/ns/mnt")
	return err == nil && theirs == ours
}

// isWriter tells whether a descriptor is of that inode and open for write.
func isWriter(info string, inode uint64) bool {
	var buf [1024]byte
	text := readProc(info, buf[:])
	flags, err := strconv.ParseUint(field(text, "flags"), 8, 64)
	if err != nil || flags&syscall.O_ACCMODE == syscall.O_RDONLY {
		return false
	}
	n, err := strconv.ParseUint(field(text, "ino"), 10, 64)
	return err == nil && n == inode
}
