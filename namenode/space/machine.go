package space

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// MachineMemory is the machine's memory in bytes; 4 GiB where that cannot be known.
func MachineMemory() int64 {
	var si unix.Sysinfo_t
	if unix.Sysinfo(&si) != nil || runtime.GOOS != "linux" {
		return 4 << 30
	}
	return int64(si.Totalram) * int64(si.Unit) //nolint:gosec // fits
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
