package sim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode/namespace"
)

// truth is what the clients know together: what they were told is done, and who
// believes to be a writer. It is asked before and after each call, so that an
// answer can be held against what had been answered before the call began.
type truth struct {
	w  *Work
	mu sync.Mutex

	logs     map[string]*logTruth
	locks    map[*client.Lock]owner
	pair     map[int]string // the client that counted to a number
	ttl      time.Duration  // the longest of granted leases
	failures []string
	done     map[string]int // calls that succeeded, by kind, so that a run that does nothing is seen
}

// logTruth is what is known of a file to which all clients append.
type logTruth struct {
	acked map[string]bool // whole lines that a flush has confirmed
	tried map[string]bool // lines that were written
	floor int64           // the file is at least so long
	token uint64          // the largest that an opening has returned
}

type owner struct {
	who  *worker
	path string
}

func newTruth(w *Work) *truth {
	return &truth{w: w, logs: map[string]*logTruth{}, locks: map[*client.Lock]owner{}, pair: map[int]string{}, done: map[string]int{}}
}

func (t *truth) log(path string) *logTruth {
	l := t.logs[path]
	if l == nil {
		l = &logTruth{acked: map[string]bool{}, tried: map[string]bool{}}
		t.logs[path] = l
	}
	return l
}

// broken notes that a promise was broken.
func (t *truth) broken(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if t.w.with.Broken != nil {
		t.w.with.Broken(text)
	}
	t.w.log.add(&event{Who: "BROKEN", Kind: brokenEvent, What: text})
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failures = append(t.failures, fmt.Sprintf("%.3fs: %s", time.Since(t.w.began).Seconds(), text))
}

func (t *truth) did(what string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.done[what]++
}

// floor is how long a log is at least.
func (t *truth) floor(path string) int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.log(path).floor
}

// token is the largest token that an opening of a log has returned.
func (t *truth) token(path string) uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.log(path).token
}

// opened notes that a writer has a log since a call that began when the largest
// token was before. (Another may still believe to have it: past the soft limit he
// is told with his next call, which is refused.)
func (t *truth) opened(who, path string, w *client.Writer, before uint64) {
	t.mu.Lock()
	l := t.log(path)
	l.token = max(l.token, w.Token())
	t.mu.Unlock()
	if w.Token() <= before {
		t.broken("%s opened %s with token %d after token %d was given", who, path, w.Token(), before)
	}
}

// locked notes that a lock is somebody's. To nobody else may it promise anything. (One
// that stands still reads no promise; when it resumes, its clock shows what has passed.)
func (t *truth) locked(who *worker, path string, lock *client.Lock) {
	t.mu.Lock()
	var wrong []string
	for other, o := range t.locks {
		still, _ := o.who.clock.stands()
		if left := other.Remaining(); o.path == path && o.who != who && left > 0 && !still { // a client may take what its own dead process had
			wrong = append(wrong, fmt.Sprintf("%s had it (token %d) for another %v", o.who.name, other.Token(), left))
		}
	}
	t.locks[lock] = owner{who, path}
	t.log(path).token = max(t.log(path).token, lock.Token())
	t.mu.Unlock()
	if len(wrong) > 0 {
		t.broken("%s locked %s with token %d while %s", who.name, path, lock.Token(), strings.Join(wrong, ", "))
	}
}

// granted notes that a lease was granted.
func (t *truth) granted(ttl time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ttl = max(t.ttl, ttl)
}

// unlocking notes that a lock is given up.
func (t *truth) unlocking(lock *client.Lock) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.locks, lock)
}

func (t *truth) trying(path, line string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.log(path).tried[line] = true
}

// flushed notes that lines are durable. The call began when the largest token was
// before: a smaller one must not have succeeded.
func (t *truth) flushed(who, path string, w *client.Writer, lines []string, before uint64) {
	t.mu.Lock()
	l := t.log(path)
	for _, line := range lines {
		l.acked[line] = true
	}
	l.floor = max(l.floor, w.Durable())
	t.mu.Unlock()
	if w.Token() < before {
		t.broken("%s flushed %s with token %d after token %d was given", who, path, w.Token(), before)
	}
}

// checkLog holds the content of a log against what is known of it.
func (t *truth) checkLog(when, path string, data []byte) {
	t.mu.Lock()
	l := t.log(path)
	var wrong []string
	if int64(len(data)) < l.floor {
		wrong = append(wrong, fmt.Sprintf("%d bytes, %d were flushed", len(data), l.floor))
	}
	seen := map[string]bool{}
	for line := range strings.Lines(string(data)) {
		switch line := strings.TrimSuffix(line, "\n"); {
		case !l.tried[line]:
			wrong = append(wrong, fmt.Sprintf("line %q was never written so", line))
		case seen[line]:
			wrong = append(wrong, fmt.Sprintf("line %q is there twice", line))
		default:
			seen[line] = true
		}
	}
	for line := range l.acked {
		if !seen[line] {
			wrong = append(wrong, fmt.Sprintf("line %q was flushed and is missing", line))
		}
	}
	t.mu.Unlock()
	slices.Sort(wrong)
	for _, what := range wrong[:min(len(wrong), 10)] {
		t.broken("%s: %s: %s", when, path, what)
	}
}

// checkHealed is Check, and sees besides that all namenodes have the same.
func (w *World) checkHealed(when string) {
	ctx, cancel := context.WithTimeout(context.Background(), checkLimit)
	defer cancel()
	w.Check(ctx, when)
	w.checkTrees(ctx, when)
}

// checkLimit is how long after the last fault the fleet must serve and have kept
// its promises.
const checkLimit = 5 * time.Minute

// Check waits until the fleet serves, and checks all that is known.
func (w *Work) Check(ctx context.Context, when string) {
	var done sync.WaitGroup
	for _, c := range w.clients {
		done.Go(func() { c.check(ctx, when) })
	}
	done.Wait()
	w.follow.check(ctx, when, "/mark of what is "+when)
	w.truth.mu.Lock()
	var paths []string
	for path := range w.truth.logs {
		paths = append(paths, path)
	}
	w.truth.mu.Unlock()
	slices.Sort(paths)
	for _, path := range paths {
		data, err := w.clients[0].fs.ReadFile(ctx, path)
		if err != nil {
			if w.truth.floor(path) > 0 {
				w.truth.broken("%s: read %s: %v", when, path, err)
			}
			continue
		}
		w.truth.checkLog(when, path, data)
	}
	w.checkPresent(ctx, when)
	w.checkFree(ctx, when, paths)
	w.checkStore(ctx, when)
}

// settled is how long after the last fault all that waits for a limit must be over,
// besides that limit: a namenode takes over, holders come back, its monitor runs.
const settled = 30 * time.Second

// checkPresent sees that the files of leases that nobody keeps alive are gone.
func (w *Work) checkPresent(ctx context.Context, when string) {
	w.truth.mu.Lock()
	limit := 2*w.truth.ttl + w.with.Settled
	w.truth.mu.Unlock()
	var left []string
	for began := time.Now(); time.Since(began) < limit; <-time.After(time.Second) {
		entries, err := w.clients[0].fs.ReadDir(ctx, "/present")
		if left = nil; err == nil {
			for _, e := range entries {
				left = append(left, e.Name())
			}
		}
		if len(left) == 0 && (err == nil || errors.Is(err, fserror.NotFound)) {
			return
		}
	}
	w.truth.broken("%s: %v: nobody keeps their leases alive, and they are there after %v", when, left, limit)
}

// checkFree sees that each log can be opened: who has left it open may keep it for
// the soft limit.
func (w *Work) checkFree(ctx context.Context, when string, paths []string) {
	for _, path := range paths {
		o, err := w.clients[0].fs.Append(ctx, path, client.WithCreate(), client.WithParents(), client.WithWait(2*w.with.Soft+w.with.Settled))
		if err == nil {
			err = o.CloseContext(ctx)
		}
		if err != nil {
			w.truth.broken("%s: nobody writes %s, and it cannot be opened: %v", when, path, err)
		}
	}
}

// checkStore sees that the store has each block that files have, whole, and after
// a while no other.
func (w *Work) checkStore(ctx context.Context, when string) {
	summary, err := w.clients[0].fs.Admin().Fsck(ctx, "", true, func(p client.FsckProblem) error {
		w.truth.broken("%s: fsck: %s: %s", when, p.Path, p.Problem)
		return nil
	})
	if err != nil {
		w.truth.broken("%s: fsck: %v", when, err)
	}
	w.log.note("world", "fsck: %+v", summary)
}

// checkTrees waits until all namenodes are as far as the active one, and holds what
// they have against each other: what was replayed is what was applied.
func (w *World) checkTrees(ctx context.Context, when string) {
	for {
		trees, why := w.trees()
		if why == "" {
			for i, t := range trees {
				for _, problem := range t.Check() {
					w.truth.broken("%s: the tree of %s: %s", when, w.nodes[i].name, problem)
				}
			}
			return
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			w.truth.broken("%s: the namenodes do not agree: %s", when, why)
			return
		}
	}
}

// trees are what the namenodes have, and why they are not the same.
func (w *World) trees() (trees []*namespace.Tree, why string) {
	for _, n := range w.nodes {
		t := n.tree()
		if t == nil {
			return nil, n.name + " does not run"
		}
		trees = append(trees, t)
	}
	images := make([]bytes.Buffer, len(trees)) // each has the whole state
	for i, t := range trees {
		if err := t.WriteImage(&images[i]); err != nil {
			return trees, err.Error()
		}
		if !bytes.Equal(images[0].Bytes(), images[i].Bytes()) {
			return trees, fmt.Sprintf("%s has %+v, and %s %+v", w.nodes[0].name, trees[0].Counts(), w.nodes[i].name, t.Counts())
		}
	}
	return trees, ""
}

// Broken is what was found, empty if every promise was kept.
func (w *Work) Broken() []string {
	w.truth.mu.Lock()
	defer w.truth.mu.Unlock()
	return slices.Clone(w.truth.failures)
}

// Done is how many calls succeeded, by kind.
func (w *Work) Done() map[string]int {
	w.truth.mu.Lock()
	defer w.truth.mu.Unlock()
	return maps.Clone(w.truth.done)
}

// History is all that has happened, a line each.
func (w *Work) History() string { return w.log.String() }
