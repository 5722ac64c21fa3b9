package blockio

import (
	"maps"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	// idleTime is how long nobody must have used a block before it has to make room.
	idleTime = 2 * time.Second
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

// newMemory returns an eighth of what this process can have: of the machine's memory, or a
// container's.
func newMemory() *memory {
	total := int64(4 << 30) // where neither is known
	if text, err := os.ReadFile("/proc/meminfo"); err == nil {
		if f := strings.Fields(string(text)); len(f) > 1 && f[0] == "MemTotal:" {
			kb, _ := strconv.ParseInt(f[1], 10, 64)
			total = kb << 10
		}
	}
	text, _ := os.ReadFile("/sys/fs/cgroup/memory.max")
	if limit, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil {
		total = min(total, limit)
	}
	return &memory{most: max(total/8, leastMemory), fetchers: make(map[*Fetcher]struct{})}
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

// makeRoom has idle blocks dropped if there is no room for n bytes. The caller holds no
// Fetcher's mu.
func (m *memory) makeRoom(n int64) {
	m.mu.Lock()
	var all map[*Fetcher]struct{}
	if m.used+n > m.most && time.Since(m.swept) >= idleTime/4 {
		all, m.swept = maps.Clone(m.fetchers), time.Now()
	}
	m.mu.Unlock()
	for f := range all {
		f.dropIdle()
	}
}

// Ahead takes room for n bytes of a block that a writer has under way besides another, and
// what more asks for; nil: there is none now.
func (t *Transport) Ahead(n int64, more func() (leave func())) Room {
	t.memory.makeRoom(n)
	if !t.memory.take(nil, n) {
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
