package space

import (
	"errors"
	"io"
	"math"
	"os"

	"golang.org/x/sys/unix"
)

// SameDisk reports whether two folders are known to be of one file system.
func SameDisk(a, b string) bool {
	var of [2]unix.Stat_t
	return unix.Stat(a, &of[0]) == nil && unix.Stat(b, &of[1]) == nil && of[0].Dev == of[1].Dev
}

// Descriptors is how many open files this process has, and how many it may have; a limit of 0: that
// is not known.
func Descriptors() (used, limit int64) {
	var most unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &most) != nil || most.Cur > math.MaxInt64 {
		return 0, 0
	}
	if info, err := os.Stat(openFiles); err == nil && info.Size() > 0 { // from Linux 6.2 on
		return info.Size(), int64(most.Cur)
	}
	used, err := countOpen()
	if err != nil {
		return 0, 0
	}
	return used, int64(most.Cur)
}

const openFiles = "/proc/self/fd"

// countOpen counts the open files of this process one by one.
func countOpen() (n int64, err error) {
	d, err := os.Open(openFiles)
	if err != nil {
		return 0, err
	}
	defer d.Close() //nolint:errcheck // it is only read
	for {
		names, err := d.Readdirnames(1024)
		n += int64(len(names))
		switch {
		case errors.Is(err, io.EOF):
			return n - 1, nil // d itself is one of them
		case err != nil:
			return 0, err
		}
	}
}

// Connections is how many connections fit the limit of open files of this process.
func Connections() int {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil {
		limit.Cur = 1024
	}
	return connectionsFor(limit.Cur)
}

// connectionsFor is how many connections fit a limit of open files: a quarter,
// but not more than 256, is for the namenode's own, and a request may need a
// descriptor besides its connection's.
func connectionsFor(files uint64) int {
	return int(min((files-min(files/4, 256))/2, 1<<20)) //nolint:gosec // bounded
}
