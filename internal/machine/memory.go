// Package machine tells what this process can have of the machine that it runs on.
package machine

import (
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Memory is how many bytes of memory this process can have: the machine's, or what its control
// groups (version 2) leave it, as in a container or by MemoryMax= of a unit; 4 GiB where that
// cannot be known.
func Memory() int64 {
	total := int64(4 << 30)
	var si unix.Sysinfo_t
	if runtime.GOOS == "linux" && unix.Sysinfo(&si) == nil {
		total = int64(si.Totalram) * int64(si.Unit) //nolint:gosec // fits
	}
	groups, _ := os.ReadFile("/proc/self/cgroup") // without it there is no limit
	return min(total, groupLimit("/sys/fs/cgroup", string(groups)))
}

// groupLimit is the least limit of the control groups that a process is in.
func groupLimit(root, groups string) int64 {
	least := int64(math.MaxInt64)
	for line := range strings.Lines(groups) {
		group, is := strings.CutPrefix(strings.TrimSpace(line), "0::")
		for is {
			text, _ := os.ReadFile(filepath.Join(root, group, "memory.max"))
			if limit, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil { // else there is none
				least = min(least, limit)
			}
			is = group != "/" && group != "."
			group = filepath.Dir(group)
		}
	}
	return least
}
