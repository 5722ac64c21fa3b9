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

// holds tells whether a process has a descriptor of that inode of this mount,
// open for write. One that is being closed is not in the list any more. False
// if that cannot be seen: it is another user's process, or in exec.
func (m *Mounted) holds(pid uint32, inode uint64) bool {
	if pid == 0 {
		return false
	}
	found := make(chan bool, 1)
	if !m.goRun(func() { found <- m.look(procOf(pid), inode) }) {
		return false
	}
	late := time.NewTimer(procPatience)
	defer late.Stop()
	select {
	case is := <-found:
		return is
	case <-late.C:
		return false
	}
}

func (m *Mounted) look(proc string, inode uint64) bool {
	dir, err := unix.Open(proc+"/fd", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer func() { _ = unix.Close(dir) }() // only read
	var buf, to [4096]byte
	names := make([]string, 0, 64)
	for seen := 0; seen < maxDescriptors; seen += len(names) {
		n, err := unix.ReadDirent(dir, buf[:])
		if n <= 0 || err != nil {
			return false
		}
		_, _, names = unix.ParseDirent(buf[:n], -1, names[:0])
		for _, fd := range names {
			// The link's text needs no call to the file system, unlike a stat of it.
			n, err := unix.Readlinkat(dir, fd, to[:])
			if err == nil && bytes.HasPrefix(to[:n], m.within) && isWriter(proc+"/fdinfo/"+fd, inode) {
				return true
			}
		}
	}
	return false
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
