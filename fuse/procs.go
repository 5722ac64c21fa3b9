package fuse

import (
	"bufio"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// maxDescriptors is how many descriptors of a process are looked at. One with
// more gives its lease back at the first FLUSH.
const maxDescriptors = 4096

// holds tells whether a process has a descriptor of that inode of this mount,
// open for write. While a descriptor is being closed it is not in the list any
// more. False if that cannot be seen: another user's process, or one in a pid
// namespace that this one does not see.
func (m *Mounted) holds(pid uint32, inode uint64) bool {
	if pid == 0 {
		return false
	}
	proc := "/proc/" + strconv.FormatUint(uint64(pid), 10)
	dir, err := os.Open(proc + "/fd")
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
