package blockio

import (
	"maps"
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	// idleTime is how long a Fetcher must not have been asked for a block before its blocks have to make
	// room, and slowTime for how long it is read by pieces then: who reads that seldom would have whole
	// blocks fetched again for each read.
	idleTime = 2 * time.Second
	slowTime = time.Minute
	// leastMemory is enough for two readers of blocks of the default size.
	leastMemory = 64 << 20
	// piece is how much of a block is read at once that there is no room for.
	piece = 1 << 20
)

// memory bounds what the blocks take that Fetchers hold whole, and those that writers have
// under way besides the one that each may have. It locks no Fetcher while it is locked.
type memory struct {
	most int64

	mu       sync.Mutex
	used     int64
	fetchers map[*Fetcher]struct{} // that have taken some
	swept    time.Time             // when they were last asked for idle blocks
}

// newMemory returns an eighth of what this process can have: of the machine's memory, or of what
// its control groups or GOMEMLIMIT leave it.
func newMemory() *memory {
	total := int64(4 << 30) // where none is known
	if text, err := os.ReadFile("/proc/meminfo"); err == nil {
		if f := strings.Fields(string(text)); len(f) > 1 && f[0] == "MemTotal:" {
			kb, _ := strconv.ParseInt(f[1], 10, 64)
			total = kb << 10
		}
	}
	groups, _ := os.ReadFile("/proc/self/cgroup")
	total = min(total, groupLimit("/sys/fs/cgroup", string(groups)), debug.SetMemoryLimit(-1))
	return &memory{most: max(total/8, leastMemory), fetchers: make(map[*Fetcher]struct{})}
}

// groupLimit is the least limit of the control groups (version 2) that a process is in.
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

// take takes room for n bytes, of a Fetcher or (nil) a writer, if there is. Whoever is alone
// gets it, so that blocks may be of any size.
func (m *memory) take(f *Fetcher, n int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.used > 0 && m.used+n > m.most {
		return false
	}
	m.used += n
	if f != nil {
		m.fetchers[f] = struct{}{}
	}
	return true
}

func (m *memory) give(n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.used -= n
}

func (m *memory) forget(f *Fetcher) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.fetchers, f)
}

// makeRoom has blocks of idle Fetchers dropped, now and then; it reports whether it did. The caller holds no
// Fetcher's mu.
func (m *memory) makeRoom() bool {
	m.mu.Lock()
	if time.Since(m.swept) < idleTime/4 {
		m.mu.Unlock()
		return false
	}
	all := maps.Clone(m.fetchers)
	m.swept = time.Now()
	m.mu.Unlock()
	for f := range all {
		f.dropIdle()
	}
	return true
}

// Ahead takes room for n bytes of a block that a writer has under way besides another, and
// what more asks for; nil: there is none now.
func (t *Transport) Ahead(n int64, more func() (leave func())) Room {
	if !t.memory.take(nil, n) && (!t.memory.makeRoom() || !t.memory.take(nil, n)) {
		return nil
	}
	leave := func() {}
	if more != nil {
		leave = more()
	}
	if leave == nil {
		t.memory.give(n)
		return nil
	}
	return func() {
		leave()
		t.memory.give(n)
	}
}
