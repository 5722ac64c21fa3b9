package blockio

import (
	"maps"
	"runtime/debug"
	"sync"
	"time"

	"github.com/leasefs/leasefs/internal/machine"
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

// newMemory returns an eighth of what this process can have, by the machine and by GOMEMLIMIT.
func newMemory() *memory {
	return &memory{most: max(min(machine.Memory(), debug.SetMemoryLimit(-1))/8, leastMemory), fetchers: make(map[*Fetcher]struct{})}
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
