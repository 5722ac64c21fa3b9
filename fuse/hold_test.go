package fuse_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/fuse"
	"github.com/leasefs/leasefs/test/env"
)

// traces are the moves of the holds of a rig's mounts, by inode.
type traces struct {
	mu sync.Mutex
	of map[uint64][]string
}

func newTraces() *traces { return &traces{of: make(map[uint64][]string)} }

// moved records a move, and complains if it is not drawn.
func (r *rig) moved(inode uint64, move string) {
	r.traces.mu.Lock()
	defer r.traces.mu.Unlock()
	r.traces.of[inode] = append(r.traces.of[inode], move)
	if !slices.Contains(fuse.Moves(), move) {
		r.t.Errorf("the hold on inode %d moved as it is not drawn: %q", inode, r.traces.of[inode])
	}
}

// trace is what led from phase to phase.
func (r *rig) trace(inode uint64) string {
	r.traces.mu.Lock()
	defer r.traces.mu.Unlock()
	var by []string
	for _, move := range r.traces.of[inode] {
		by = append(by, strings.Split(move, "──")[1])
	}
	return strings.Join(by, " ")
}

// TestMovesAreAsDrawn: the drawing in the comment is what the code has.
func TestMovesAreAsDrawn(t *testing.T) {
	source, err := os.ReadFile("hold.go")
	must(t, err)
	arrow := regexp.MustCompile(`((?:\w+, )*\w+) ──(\w+\*?)──▶ (\w+)`)
	var drawn []string
	for line := range strings.Lines(string(source)) {
		if !strings.HasPrefix(line, "//\t") {
			continue
		}
		// What an arrow leads to may be where the next one begins.
		for m := arrow.FindStringSubmatchIndex(line); m != nil; m = arrow.FindStringSubmatchIndex(line) {
			for from := range strings.SplitSeq(line[m[2]:m[3]], ", ") {
				drawn = append(drawn, fmt.Sprintf("%s ──%s──▶ %s", from, line[m[4]:m[5]], line[m[6]:m[7]]))
			}
			line = line[m[6]:]
		}
	}
	want := fuse.Moves()
	slices.Sort(drawn)
	slices.Sort(want)
	if !slices.Equal(drawn, want) {
		t.Errorf("drawn is\n%s\nbut the code has\n%s", strings.Join(drawn, "\n"), strings.Join(want, "\n"))
	}
}

// TestTracesOfHolds: what programs do leads through a hold as one would follow it in the
// drawing. (Each mount of this package's tests checks that its moves are drawn.)
func TestTracesOfHolds(t *testing.T) {
	inode := func(t *testing.T, m *drafter) uint64 {
		i, err := os.Stat(m.path("d/f"))
		must(t, err)
		return i.Sys().(*syscall.Stat_t).Ino
	}
	for name, c := range map[string]struct {
		do   func(t *testing.T, m *drafter, other *client.FS) uint64
		want string
	}{
		"a new file": {func(t *testing.T, m *drafter, _ *client.FS) uint64 {
			must(t, m.begin("d/f", os.O_WRONLY).Close())
			return inode(t, m)
		}, "draft* settle stored"},
		"a new file that is synced": {func(t *testing.T, m *drafter, _ *client.FS) uint64 {
			f := m.begin("d/f", os.O_WRONLY)
			say(t, f, "text")
			must(t, f.Sync())
			must(t, f.Close())
			return inode(t, m)
		}, "draft* settle made end closed"},
		"opened again": {func(t *testing.T, m *drafter, other *client.FS) uint64 {
			must(t, other.WriteFile(t.Context(), "/d/f", []byte("text")))
			for range 2 {
				must(t, m.open("d/f", os.O_WRONLY|os.O_APPEND).Close())
			}
			return inode(t, m)
		}, "begin* end closed begin* end closed"},
		"cut": {func(t *testing.T, m *drafter, other *client.FS) uint64 {
			must(t, other.WriteFile(t.Context(), "/d/f", []byte("text")))
			f := m.open("d/f", os.O_WRONLY|os.O_APPEND)
			must(t, f.Truncate(2))
			must(t, f.Close())
			return inode(t, m)
		}, "begin* end resume end closed"},
		"removed elsewhere": {func(t *testing.T, m *drafter, other *client.FS) uint64 {
			must(t, other.WriteFile(t.Context(), "/d/f", []byte("text")))
			m.loses = client.ErrLeaseLost
			f := m.open("d/f", os.O_WRONLY|os.O_APPEND)
			ino := inode(t, m)
			must(t, other.Remove(t.Context(), "/d/f"))
			env.Eventually(t, "the lease is lost", func() bool { _, err := f.WriteString("more"); return err != nil })
			_ = f.Close() // it is lost
			return ino
		}, "begin* lost*"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, longTerm)
			m, other := r.drafter(long(), "d"), r.Client(t)
			ino := c.do(t, m, other)
			if got := r.trace(ino); got != c.want {
				t.Errorf("the trace is %q, want %q", got, c.want)
			}
		})
	}
}
