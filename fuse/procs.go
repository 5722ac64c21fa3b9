package fuse

import (
	"bufio"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
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

// process is the process that a thread is of; 0 if that cannot be seen, as from
// another pid namespace. It must not be asked of one that may be in exec.
func process(thread uint32) uint32 {
	if thread == 0 {
		return 0
	}
	f, err := os.Open(procOf(thread) + "/status")
	if err != nil {
		return 0
	}
	defer func() { _ = f.Close() }() // only read
	for s := bufio.NewScanner(f); s.Scan(); {
		if value, ok := strings.CutPrefix(s.Text(), "Tgid:"); ok {
			n, err := strconv.ParseUint(strings.TrimSpace(value), 10, 32)
			if err == nil {
				return uint32(n)
			}
		}
	}
	return 0
}

// inProcess tells whether a thread is of a process, also if one is not known.
func inProcess(process, thread uint32) bool {
	if process == 0 || thread == 0 || process == thread {
		return true // the thread that is in exec has the process's own number
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
	dir, err := os.Open(proc + "/fd") //nolint:gosec // of /proc
	if err != nil {
		return false
	}
	defer func() { _ = dir.Close() }() // only read
	names, _ := dir.Readdirnames(maxDescriptors)
	for _, fd := range names {
		// The link's text needs no call to the file system, unlike a stat of it.
		to, err := os.Readlink(proc + "/fd/" + fd)
		if err == nil && strings.HasPrefix(to, m.within) && isWriter(proc+"/fdinfo/"+fd, inode) {
			return true
		}
	}
	return false
}

// isWriter tells whether a descriptor is of that inode and open for write.
func isWriter(info string, inode uint64) bool {
	f, err := os.Open(info) //nolint:gosec // of /proc
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }() // only read
	write, same := false, false
	for s := bufio.NewScanner(f); s.Scan(); {
		key, value, _ := strings.Cut(s.Text(), ":")
		value = strings.TrimSpace(value)
		switch key {
		case "flags":
			flags, err := strconv.ParseUint(value, 8, 64)
			write = err == nil && flags&syscall.O_ACCMODE != syscall.O_RDONLY
		case "ino":
			n, err := strconv.ParseUint(value, 10, 64)
			same = err == nil && n == inode
		}
	}
	return write && same
}
