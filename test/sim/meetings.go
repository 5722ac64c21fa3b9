package sim

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

// meetings are the faults that are there, and which have been there together.
type meetings struct {
	mu    sync.Mutex
	there map[string]int
	pairs map[[2]string]int
}

// meet notes that a fault begins beside those that are there.
func (w *World) meet(name string) {
	m := &w.meetings
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.there == nil {
		m.there, m.pairs = map[string]int{}, map[[2]string]int{}
	}
	for other, n := range m.there {
		m.pairs[pair(name, other)] += n
	}
	m.there[name]++
}

// part notes that a fault is over.
func (w *World) part(name string) {
	m := &w.meetings
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.there[name]--; m.there[name] == 0 {
		delete(m.there, name)
	}
}

func pair(a, b string) [2]string { return [2]string{min(a, b), max(a, b)} }

// Coverage counts which faults have been there together in many worlds. Its zero
// value is ready for use.
type Coverage struct {
	kinds map[string]int // worlds that can have it
	pairs map[[2]string]int
	can   map[[2]string]bool
}

// Add adds a world that has ended.
func (c *Coverage) Add(w *World) {
	if c.kinds == nil {
		c.kinds, c.pairs, c.can = map[string]int{}, map[[2]string]int{}, map[[2]string]bool{}
	}
	names := map[string]bool{}
	for _, f := range w.kinds() {
		names[f.name] = true
	}
	for a := range names {
		c.kinds[a]++
		for b := range names {
			c.can[pair(a, b)] = true
		}
	}
	for p, n := range w.meetings.pairs {
		c.pairs[p] += n
	}
}

// String is a table: how often each fault has begun beside each other one, a dot for
// never, nothing for two that are of no world together. Below it is how many of the
// pairs that can be have been.
func (c *Coverage) String() string {
	var b strings.Builder
	names := slices.Sorted(maps.Keys(c.kinds))
	wide := 0
	for _, name := range names {
		wide = max(wide, len(name))
	}
	fmt.Fprintf(&b, "%*s", wide+4, "")
	for i := range names {
		fmt.Fprintf(&b, "%4d", i+1)
	}
	met := 0
	for i, name := range names {
		fmt.Fprintf(&b, "\n%3d %-*s", i+1, wide, name)
		for _, other := range names[:i+1] {
			switch p := pair(name, other); {
			case c.pairs[p] > 0:
				met++
				fmt.Fprintf(&b, "%4d", c.pairs[p])
			case c.can[p]:
				b.WriteString("   .")
			default:
				b.WriteString("    ")
			}
		}
	}
	fmt.Fprintf(&b, "\n%d of %d pairs of faults have been there together\n", met, len(c.can))
	return b.String()
}
