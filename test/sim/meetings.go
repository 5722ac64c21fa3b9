package sim

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// meetings are the faults that are there, and which have been there together.
type meetings struct {
	mu    sync.Mutex
	there map[string]int
	pairs map[[2]string]int
	began int // faults
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
	m.began++
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

// Coverage adds up many worlds: what was done in them, and which faults have been
// there together. Its zero value is ready for use.
type Coverage struct {
	kinds map[string]int // worlds that can have it
	pairs map[[2]string]int
	can   map[[2]string]bool

	worlds, broken           int
	simulated, machine       time.Duration
	failovers, calls, faults int
}

// Add adds a world that has ended, and took so much of this machine's time.
func (c *Coverage) Add(w *World, machine time.Duration) {
	c.worlds++
	if len(w.Broken()) > 0 {
		c.broken++
	}
	c.simulated += w.lasted
	c.machine += machine
	c.failovers += w.failovers
	c.calls += int(w.calls.Load())
	c.faults += w.meetings.began
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

// Sum is one line of numbers by name. Those of several runs can be added up, but for
// the pairs of faults that have been there together, which are told of all that can be.
func (c *Coverage) Sum() string {
	met := 0
	for _, n := range c.pairs {
		met += min(n, 1)
	}
	return fmt.Sprintf("sum: worlds=%d broken=%d simulated_hours=%.2f machine_minutes=%.2f failovers=%d calls=%d faults=%d pairs=%d/%d",
		c.worlds, c.broken, c.simulated.Hours(), c.machine.Minutes(), c.failovers, c.calls, c.faults, met, len(c.can))
}

// String is a table: how often each fault has begun beside each other one, a dot for
// never, nothing for two that are of no world together.
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
	for i, name := range names {
		fmt.Fprintf(&b, "\n%3d %-*s", i+1, wide, name)
		for _, other := range names[:i+1] {
			switch p := pair(name, other); {
			case c.pairs[p] > 0:
				fmt.Fprintf(&b, "%4d", c.pairs[p])
			case c.can[p]:
				b.WriteString("   .")
			default:
				b.WriteString("    ")
			}
		}
	}
	return b.String()
}
