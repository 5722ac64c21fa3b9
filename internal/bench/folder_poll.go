package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

const (
	pollEvery   = 5 * time.Millisecond  // how often B looks
	appendEvery = 20 * time.Millisecond // how often A appends
)

// polled is what one run of poll has found out.
type polled struct {
	looks   []time.Duration // how long each look took
	delays  []time.Duration // from fsync returned to seen
	stale   int64           // looks that began after fsync had returned and showed less
	seconds float64
}

// growing is a file that A appends to and B looks at.
type growing struct {
	mu     sync.Mutex
	synced int64       // bytes that fsync has returned for
	at     []time.Time // when it did, for each append
	done   bool
}

func (g *growing) state() (synced int64, done bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.synced, g.done
}

const pollBytes = 100 // of one append

// poll has A append with fsync through one mount, and B look at the file with
// stat and read through the other.
func (f *folder) poll(ctx context.Context) (Row, error) {
	name := filepath.Join(f.dir, "poll")
	w, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return Row{}, err
	}
	if err := w.Close(); err != nil { // so that the name is there for B
		return Row{}, err
	}
	var g growing
	f.seen = &polled{}
	group, ctx := errgroup.WithContext(ctx)
	began := time.Now()
	group.Go(func() error {
		defer func() { g.mu.Lock(); g.done = true; g.mu.Unlock() }()
		return g.append(ctx, name, max(10, f.cfg.N/10))
	})
	group.Go(func() error { return f.seen.look(ctx, &g, filepath.Join(f.other, "poll")) })
	if err := group.Wait(); err != nil {
		return Row{}, err
	}
	f.seen.seconds = time.Since(began).Seconds()
	row := summarize(f.seen.looks, time.Since(began))
	row.Note = fmt.Sprintf("stat, open, read, close every %v while another appends", pollEvery)
	return row, nil
}

// append is what A does.
func (g *growing) append(ctx context.Context, name string, n int) (err error) {
	w, err := os.OpenFile(name, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	tick := time.NewTicker(appendEvery)
	defer tick.Stop()
	data := pattern(pollBytes)
	for range n {
		if _, err := w.Write(data); err != nil {
			return err
		}
		if err := w.Sync(); err != nil {
			return err
		}
		g.mu.Lock()
		g.synced += pollBytes
		g.at = append(g.at, time.Now())
		g.mu.Unlock()
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// look is what B does, until it has seen all.
func (p *polled) look(ctx context.Context, g *growing, name string) error {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	buf := make([]byte, 4096)
	next := 0 // the append that was not seen yet
	for {
		least, done := g.state()
		began := time.Now()
		size, err := lookAt(name, buf, int64(next)*pollBytes)
		if err != nil {
			return err
		}
		now := time.Now()
		p.looks = append(p.looks, now.Sub(began))
		if size < least {
			p.stale++
		}
		g.mu.Lock()
		for ; next < len(g.at) && int64(next+1)*pollBytes <= size; next++ {
			p.delays = append(p.delays, now.Sub(g.at[next]))
		}
		all := next == len(g.at)
		g.mu.Unlock()
		if done && all {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// lookAt is how far a file can be seen: the lesser of its size and of what can
// be read from an offset on.
func lookAt(name string, buf []byte, from int64) (size int64, err error) {
	i, err := os.Stat(name)
	if err != nil {
		return 0, err
	}
	r, err := os.Open(name) //nolint:gosec // in the folder that the caller named
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	n, err := unix.Pread(int(r.Fd()), buf, from)
	if err != nil {
		return 0, err
	}
	return min(i.Size(), from+int64(n)), nil
}

// polled is what poll found, which runs now if it has not.
func (f *folder) polled(ctx context.Context) (*polled, error) {
	if f.seen == nil {
		if _, err := f.poll(ctx); err != nil {
			return nil, err
		}
	}
	return f.seen, nil
}

// visible is how long it took until B saw what A had fsynced.
func (f *folder) visible(ctx context.Context) (Row, error) {
	p, err := f.polled(ctx)
	if err != nil {
		return Row{}, err
	}
	row := summarize(p.delays, 0)
	row.Seconds = p.seconds
	row.Note = fmt.Sprintf("from fsync to seen by one who looks every %v", pollEvery)
	return row, nil
}

// stale is how often B saw what was old.
func (f *folder) stale(ctx context.Context) (Row, error) {
	p, err := f.polled(ctx)
	if err != nil {
		return Row{}, err
	}
	return Row{Ops: p.stale, Seconds: p.seconds, Note: fmt.Sprintf("looks of %d that were begun after fsync and showed less", len(p.looks))}, nil
}

// dropPages drops the page cache of a file.
func dropPages(r *os.File) error {
	return unix.Fadvise(int(r.Fd()), 0, 0, unix.FADV_DONTNEED)
}
