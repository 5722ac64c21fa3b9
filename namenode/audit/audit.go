// Package audit keeps a record of who asked a namenode for what, and what the answer was:
// one line of JSON for each call, in a file or on standard error.
//
// # Nothing waits for it
//
// A call appends its line to a queue in memory, of at most 8 MiB, and one goroutine writes
// what is there. A disk that is full or slow, or a reader of a pipe that does not read,
// delays no call: when the queue is full, lines are lost. How many is counted
// ([Log.Stats]), and told by a line of the log itself, {"time":…,"lost":n}, where they are
// missing.
//
// # Files
//
// A file is new, or is continued, has mode 0600 and is locked, so that no other process
// writes it. When it has its full size it becomes FILE.1, FILE.1 becomes FILE.2, and so on,
// and the oldest is removed. A file that somebody else moves away or removes is left to him,
// within a second, and a new one begun.
package audit

import (
	"bytes"
	"log/slog"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
)

// Which lines are kept.
const (
	All     = ""        // of all calls
	Changes = "changes" // only calls that may change something, or were denied
	Denied  = "denied"  // only calls that were denied
)

// Stderr is a Config.File that stands for standard error.
const Stderr = "stderr"

// Config says what is kept, and where.
type Config struct {
	File string // a file, a FIFO, or Stderr; empty: nothing is kept
	Only string // All, Changes or Denied
	// Skip are operations, as lines name them, of which only what was denied is kept.
	Skip []string
	// MaxBytes is how large a file becomes; 0: DefaultMaxBytes. Keep is how many older
	// ones are kept; 0: DefaultKeep.
	MaxBytes int64
	Keep     int

	Clock clock.Clock
	Log   *slog.Logger // is told when the file cannot be written, and when it can again
}

// Defaults of a Config.
const (
	DefaultMaxBytes = 100 << 20
	DefaultKeep     = 10

	LeastBytes = 1 << 20 // of Config.MaxBytes
	MostKept   = 10_000  // of Config.Keep
)

// Check refuses what cannot be meant.
func (c *Config) Check() error {
	switch {
	case c.File == "" && (c.Only != All || len(c.Skip) > 0 || c.MaxBytes != 0 || c.Keep != 0):
		return fserror.New(fserror.InvalidArgument, "", "", "what the audit log keeps is set, but no audit file").Because(fserror.ReasonAudit)
	case c.Only != All && c.Only != Changes && c.Only != Denied:
		return fserror.New(fserror.InvalidArgument, "", "", "%q is none of %s, %s: what the audit log keeps", c.Only, Changes, Denied)
	case c.MaxBytes != 0 && c.MaxBytes < LeastBytes:
		return fserror.New(fserror.InvalidArgument, "", "", "an audit log of %d bytes a file is too small; at least 1 MiB", c.MaxBytes)
	case c.Keep < 0 || c.Keep > MostKept:
		return fserror.New(fserror.InvalidArgument, "", "", "%d older files of the audit log cannot be kept; 1 to 10,000", c.Keep)
	}
	return nil
}

const (
	// maxPending is how many bytes wait to be written.
	maxPending = 8 << 20
	// gather is for how long lines are gathered before they are written.
	gather = 50 * time.Millisecond
	// again is after how long a write that failed is tried again.
	again = time.Second
	// closing is how long Close waits for what is yet to be written.
	closing = 3 * time.Second
	// unproven is how many calls and connections without a good proof have a line a
	// second, of how many at once: anybody can make them, and they must not push
	// others' lines out of what is kept.
	unproven, unprovenBurst = 100, 1000
)

// Stats are figures of a Log.
type Stats struct {
	Lines   uint64 // taken
	Lost    uint64 // of them, those that are never written
	Problem string // why nothing can be written; empty: it can
}

// Log is an audit log. A nil Log keeps nothing. It is safe for concurrent use.
type Log struct {
	cfg      Config
	out      *output
	buffers  sync.Pool // of *[]byte
	unproven *rate.Limiter
	wake     chan struct{} // something waits to be written
	full     chan struct{} // much does
	stop     chan struct{}
	done     chan struct{}

	mu      sync.Mutex
	pending []byte
	stats   Stats
	told    uint64 // of stats.Lost
	refused uint64 // without a proof and a line, since that was told
	closed  bool
}

// New opens a log; nil if none is wanted. An error says why the file cannot be written.
func New(cfg Config) (*Log, error) {
	if err := cfg.Check(); err != nil || cfg.File == "" {
		return nil, err
	}
	if cfg.MaxBytes == 0 {
		cfg.MaxBytes = DefaultMaxBytes
	}
	if cfg.Keep == 0 {
		cfg.Keep = DefaultKeep
	}
	l := &Log{
		cfg: cfg, out: &output{name: cfg.File, most: cfg.MaxBytes, keep: cfg.Keep}, unproven: rate.NewLimiter(unproven, unprovenBurst),
		wake: make(chan struct{}, 1), full: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{}),
	}
	l.buffers.New = func() any { return new([]byte) }
	if err := l.out.open(); err != nil && !noReader(err) {
		return nil, err
	}
	go l.run()
	return l, nil
}

// On reports whether lines are kept, so that it is worth to make one.
func (l *Log) On() bool { return l != nil }

// Tell keeps a line, if it is wanted. It waits for nothing.
func (l *Log) Tell(line *Line) {
	if l == nil || !l.wants(line) {
		return
	}
	if line.Unproven && !l.unproven.AllowN(time.Now(), 1) {
		l.mu.Lock()
		l.refused++
		l.mu.Unlock()
		return
	}
	buf := l.buffers.Get().(*[]byte) //nolint:errcheck,forcetypeassert // of no other type
	*buf = line.append((*buf)[:0])
	l.take(*buf)
	l.buffers.Put(buf)
}

func (l *Log) wants(line *Line) bool {
	switch {
	case line.denied():
		return true
	case l.cfg.Only == Denied, l.cfg.Only == Changes && line.Reads:
		return false
	}
	return !slices.Contains(l.cfg.Skip, line.Op)
}

// take appends whole lines to what waits.
func (l *Log) take(lines []byte) {
	l.mu.Lock()
	before := len(l.pending)
	l.stats.Lines++
	if l.closed || before+len(lines) > maxPending {
		l.stats.Lost++
	} else {
		l.pending = append(l.pending, lines...)
	}
	now := len(l.pending)
	l.mu.Unlock()
	switch {
	case before == 0:
		signal(l.wake)
	case before < maxPending/8 && now >= maxPending/8:
		signal(l.full)
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// run writes what waits until the log is closed.
func (l *Log) run() {
	defer close(l.done)
	defer l.out.close()
	var batch []byte
	tick := time.NewTicker(time.Second) // for a file that was moved away, and refusals to tell
	defer tick.Stop()
	for {
		select {
		case <-l.wake:
			select {
			case <-time.After(gather):
			case <-l.full:
			case <-l.stop:
			}
		case <-tick.C:
		case <-l.stop:
		}
		batch = l.swap(batch[:0])
		if !l.write(batch) {
			return
		}
		if cap(batch) > maxPending/4 && len(batch) < cap(batch)/4 {
			batch = nil // a burst is over
		}
		l.mu.Lock()
		over := l.closed && len(l.pending) == 0
		l.mu.Unlock()
		if over {
			return
		}
	}
}

// swap takes what waits, with what is to be said of lines that are missing behind it.
func (l *Log) swap(empty []byte) []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	batch := l.pending
	l.pending = empty
	now := l.cfg.Clock.Wall()
	if n := l.stats.Lost - l.told; n > 0 {
		batch = appendCount(batch, now, "lost", n)
		l.told = l.stats.Lost
	}
	if l.refused > 0 {
		batch = appendCount(batch, now, "more_without_a_proof", l.refused)
		l.refused = 0
	}
	return batch
}

// write writes a batch, however often that has to be tried. It is false when the log was
// closed meanwhile: then what is left is lost.
func (l *Log) write(batch []byte) bool {
	for {
		rest, skipped, err := l.out.write(batch)
		l.lose(skipped)
		if err == nil {
			l.problem("")
			return true
		}
		batch = rest
		l.problem(err.Error())
		select {
		case <-time.After(again):
		case <-l.stop:
			l.lose(uint64(bytes.Count(batch, []byte("\n")))) //nolint:gosec // a count
			return false
		}
	}
}

func (l *Log) lose(n uint64) {
	if n > 0 {
		l.mu.Lock()
		l.stats.Lost += n
		l.mu.Unlock()
	}
}

// problem notes, and logs once, why nothing can be written; empty: it can.
func (l *Log) problem(why string) {
	l.mu.Lock()
	was, lost := l.stats.Problem, l.stats.Lost
	l.stats.Problem = why
	l.mu.Unlock()
	switch {
	case why != "" && was == "":
		l.cfg.Log.Error("the audit log cannot be written; calls are answered all the same, and their lines will be lost when 8 MiB of them wait", "file", l.cfg.File, "cause", why, "reason", fserror.ReasonAudit)
	case why == "" && was != "":
		l.cfg.Log.Info("the audit log can be written again", "file", l.cfg.File, "lost", lost)
	}
}

// Stats returns the figures of this moment.
func (l *Log) Stats() Stats {
	if l == nil {
		return Stats{}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stats
}

// Close writes what waits, for at most three seconds, and closes the file. Lines that come
// later are lost.
func (l *Log) Close() {
	if l == nil {
		return
	}
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return
	}
	l.closed = true
	l.mu.Unlock()
	close(l.stop)
	select {
	case <-l.done:
	case <-time.After(closing):
		l.out.interrupt() // ends a write to a pipe; one to a disk that hangs is left behind
		select {
		case <-l.done:
		case <-time.After(closing / 10):
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := l.stats.Lost - l.told; n > 0 || len(l.pending) > 0 {
		n += uint64(bytes.Count(l.pending, []byte("\n"))) //nolint:gosec // a count
		l.cfg.Log.Error("lines of the audit log are lost that were yet to be written at the end", "file", l.cfg.File, "lost", n)
	}
}
