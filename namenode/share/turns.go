package share

import (
	"context"
	"slices"
	"sync"
)

// Turns lets a few at a time do what takes long. Whose turn is next is decided by
// how many are under way for the same name: the fewest first, and among equals who
// waits longest. So whoever asks for a hundred of them waits for most of these
// himself. It is safe for concurrent use.
type Turns struct {
	mu      sync.Mutex
	free    int
	under   map[string]int // way, by name
	waiting []*turn        // in the order in which they came
}

type turn struct {
	name string
	mine chan struct{} // is closed when it has come
}

// NewTurns returns Turns of which so many are taken at a time.
func NewTurns(most int) *Turns { return &Turns{free: most, under: map[string]int{}} }

// Begin waits for a turn, until ctx ends. Without an error, End gives it back.
func (t *Turns) Begin(ctx context.Context, name string) error {
	t.mu.Lock()
	if t.free > 0 {
		t.take(name)
		t.mu.Unlock()
		return nil
	}
	w := &turn{name, make(chan struct{})}
	t.waiting = append(t.waiting, w)
	t.mu.Unlock()
	select {
	case <-w.mine:
		return nil
	case <-ctx.Done():
	}
	t.mu.Lock()
	i := slices.Index(t.waiting, w)
	if i >= 0 {
		t.waiting = slices.Delete(t.waiting, i, i+1)
	}
	t.mu.Unlock()
	if i < 0 { // it came at the same moment
		t.End(name)
	}
	return ctx.Err()
}

// End gives a turn to the next.
func (t *Turns) End(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.free++
	if t.under[name]--; t.under[name] == 0 {
		delete(t.under, name)
	}
	if len(t.waiting) == 0 {
		return
	}
	next := 0
	for i, w := range t.waiting {
		if t.under[w.name] < t.under[t.waiting[next].name] {
			next = i
		}
	}
	w := t.waiting[next]
	t.waiting = slices.Delete(t.waiting, next, next+1)
	t.take(w.name)
	close(w.mine)
}

// In runs do in a turn. Its error is that of Begin, or of do.
func (t *Turns) In(ctx context.Context, name string, do func() error) error {
	if err := t.Begin(ctx, name); err != nil {
		return err
	}
	defer t.End(name)
	return do()
}

func (t *Turns) take(name string) {
	t.free--
	t.under[name]++
}
