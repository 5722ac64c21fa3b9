package scenarios_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode"
	"github.com/leasefs/leasefs/test/env"
)

// The model is one file: the pieces that were appended, the epoch of the last
// opening, and whether somebody has it open. The monitor may close it unseen,
// so open means: perhaps.
type fileState struct {
	content string
	epoch   uint64
	open    bool
}

type opKind string

const (
	opOpen    opKind = "open"
	opAppend  opKind = "append" // write and flush
	opClose   opKind = "close"  // with what was written and not flushed
	opRecover opKind = "recover"
	opRead    opKind = "read"
)

type input struct {
	kind  opKind
	epoch uint64 // of the writer
	piece string
}

type output struct {
	outcome outcome
	epoch   uint64
	length  int
	wasOpen bool
	content string
}

type outcome int

const (
	done    outcome = iota
	unknown         // it happened or not
	applied         // its piece is in the file; whether it closed it is not known
	held            // refused: another has the file
)

func fileModel() porcupine.Model {
	m := porcupine.NondeterministicModel{
		Init: func() []any { return []any{fileState{}} },
		Step: func(state, in, out any) []any { return step(state.(fileState), in.(input), out.(output)) },
		DescribeOperation: func(in, out any) string {
			return fmt.Sprintf("%+v → %+v", in, out)
		},
	}
	return m.ToModel()
}

// step is which states an operation may lead to; none: it cannot have happened
// here.
func step(s fileState, in input, out output) []any {
	mine := s.open && s.epoch == in.epoch
	switch in.kind {
	case opRead:
		if out.content == s.content {
			return []any{s}
		}
	case opOpen:
		opened := fileState{s.content, out.epoch, true}
		switch {
		case out.outcome == held && s.open:
			return []any{s}
		case out.outcome == unknown:
			opened.epoch = s.epoch // which one is not known
			return []any{s, opened}
		case out.outcome == done && out.epoch > s.epoch && out.length == len(s.content):
			return []any{opened}
		}
	case opAppend, opClose:
		next := fileState{s.content + in.piece, s.epoch, in.kind == opAppend}
		still := fileState{next.content, s.epoch, true}
		switch {
		case out.outcome == unknown && mine:
			return []any{s, next, still}
		case out.outcome == applied && mine:
			return []any{next, still}
		case out.outcome == applied:
		case out.outcome == unknown:
			return []any{s} // fenced: too late to happen
		case mine:
			return []any{next}
		}
	case opRecover:
		closed := fileState{s.content, s.epoch, false}
		switch {
		case out.outcome == unknown:
			return []any{s, closed}
		case out.length != len(s.content):
		case !out.wasOpen:
			return []any{closed}
		case s.open && out.epoch > s.epoch:
			closed.epoch = out.epoch
			return []any{closed}
		}
	}
	return nil
}

// history records what clients did and what they were told.
type history struct {
	began time.Time
	mu    sync.Mutex
	ops   []porcupine.Operation
}

func (h *history) record(id int, in input, do func() output) output {
	op := porcupine.Operation{ClientId: id, Input: in, Call: time.Since(h.began).Nanoseconds()}
	out := do()
	op.Output, op.Return = out, time.Since(h.began).Nanoseconds()
	if out.outcome == unknown {
		op.Return = math.MaxInt64 // it may happen later
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, op)
	return out
}

// settle makes certain what the last read tells: an append of unknown outcome
// whose piece is there happened, before anybody saw it; one whose piece is not
// never did. (If a piece went away again, that read itself is refuted.)
func (h *history) settle() {
	var last string
	seen := map[string]int64{} // piece to when it was surely there
	for _, op := range h.ops {
		if op.Input.(input).kind == opRead {
			last = op.Output.(output).content
			for piece := range strings.SplitAfterSeq(last, ";") {
				if at, ok := seen[piece]; !ok || op.Return < at {
					seen[piece] = op.Return
				}
			}
		}
	}
	kept := h.ops[:0]
	for _, op := range h.ops {
		in, out := op.Input.(input), op.Output.(output)
		if (in.kind == opAppend || in.kind == opClose) && out.outcome == unknown {
			if in.piece == "" || !strings.Contains(";"+last, ";"+in.piece) {
				continue // of a close without a piece: the model's open is a perhaps
			}
			op.Output, op.Return = output{outcome: applied}, max(seen[in.piece], op.Call+1)
		}
		kept = append(kept, op)
	}
	h.ops = kept
}

// actor is one client of the file. What it does is chosen at random.
type actor struct {
	t    *testing.T
	ctx  context.Context
	id   int
	fs   *client.FS
	wire *env.Wire
	rnd  *rand.Rand
	h    *history
	n    int
	// apart: what is left is flushed before the close, not with it. With
	// blocks it must be: there a close is two changes, and others may see the
	// first before the second.
	apart bool
}

const contested = "/f"

func (a *actor) run() {
	for a.ctx.Err() == nil {
		switch a.rnd.IntN(12) {
		case 0:
			a.recover()
		case 1, 2:
			a.read()
		default:
			a.write()
		}
	}
}

func (a *actor) piece() string {
	a.n++
	return fmt.Sprintf("%d.%d;", a.id, a.n)
}

// failed is the outcome of an operation's error. Kinds that no fault of this
// test explains fail it.
func (a *actor) failed(what string, err error) outcome {
	switch fserror.KindOf(err) {
	case fserror.Held:
		return held
	case fserror.LeaseLost, fserror.Canceled, fserror.Deadline, fserror.Unavailable, fserror.Unknown:
	default:
		a.t.Errorf("%s: %v", what, err)
	}
	return unknown
}

func (a *actor) read() {
	a.h.record(a.id, input{kind: opRead}, func() output {
		got, err := a.fs.ReadFile(a.t.Context(), contested)
		if err != nil {
			a.t.Errorf("read: %v", err)
		}
		return output{content: string(got)}
	})
}

func (a *actor) recover() {
	a.h.record(a.id, input{kind: opRecover}, func() output {
		res, err := a.fs.Recover(a.t.Context(), contested, true)
		if err != nil {
			return output{outcome: a.failed("recover", err)}
		}
		return output{epoch: res.Epoch, length: int(res.Length), wasOpen: res.WasOpen}
	})
}

// write opens the file, appends some pieces, and closes it; or leaves it; or
// falls silent and then continues as if nothing had happened.
func (a *actor) write() {
	var w *client.Writer
	a.h.record(a.id, input{kind: opOpen}, func() (out output) {
		var err error
		w, err = a.fs.Append(a.t.Context(), contested, client.WithWait(time.Duration(a.rnd.IntN(3))*100*time.Millisecond))
		if err != nil {
			return output{outcome: a.failed("open", err)}
		}
		return output{epoch: w.Token(), length: int(w.Length())}
	})
	if w == nil {
		return
	}
	end := a.rnd.IntN(6)
	for range a.rnd.IntN(4) {
		if !a.append(w, opAppend) {
			_ = w.Abort() // else the next flush would bring this piece too
			return
		}
	}
	switch end {
	case 0: // dead: nobody renews
		_ = w.Detach()
		return
	case 1, 2: // silent, for up to the hard limit
		a.silent(true)
		ctx, cancel := context.WithTimeout(a.t.Context(), time.Duration(a.rnd.IntN(250))*time.Millisecond)
		if r, err := a.fs.Open(ctx, contested); err == nil {
			_, _, _ = r.WaitBeyond(ctx, 1<<40) // until it is closed, or the time is over
			_ = r.Close()
		}
		cancel()
		ok := a.append(w, opAppend)
		a.silent(false)
		if !ok {
			_ = w.Abort()
			return
		}
	}
	if a.apart && !a.append(w, opAppend) {
		_ = w.Abort()
		return
	}
	a.append(w, opClose)
}

// append writes a piece and flushes it, or closes with it.
func (a *actor) append(w *client.Writer, kind opKind) bool {
	in := input{kind: kind, epoch: w.Token()}
	if kind == opAppend || !a.apart {
		in.piece = a.piece()
	}
	out := a.h.record(a.id, in, func() output {
		_, err := w.Write([]byte(in.piece))
		if err == nil {
			if kind == opClose {
				err = w.Close()
			} else {
				err = w.Flush(a.t.Context())
			}
		}
		if err != nil && !errors.Is(err, fserror.Closed) {
			return output{outcome: a.failed(string(kind), err)}
		}
		return output{}
	})
	return out.outcome == done
}

// silent is whether renewals get lost; requests and replies do now and then
// anyway.
func (a *actor) silent(silent bool) {
	var mu sync.Mutex
	rnd := rand.New(rand.NewPCG(a.rnd.Uint64(), 0))
	a.wire.Set(func(method string, _ any, send func() error) error {
		mu.Lock()
		dice := rnd.IntN(100)
		mu.Unlock()
		switch method {
		case "Renew", "RenewLease":
			if silent {
				return env.ErrLost
			}
		case "Append", "AppendTail", "Commit", "Close", "Recover":
			if dice < 3 {
				return env.ErrLost
			}
			if err := send(); err != nil || dice >= 6 {
				return err
			}
			return env.ErrLost // it was done, and nobody hears of it
		}
		return send()
	})
}

// counts are how often what was done, and with what outcome.
func (h *history) counts() map[string]int {
	h.mu.Lock()
	defer h.mu.Unlock()
	counts := map[string]int{}
	for _, op := range h.ops {
		k := string(op.Input.(input).kind)
		counts[k]++
		if o := op.Output.(output).outcome; o != done {
			counts[fmt.Sprint(k, " ", map[outcome]string{unknown: "unknown", held: "held"}[o])]++
		}
	}
	return counts
}

// tells is whether enough has happened.
func (h *history) tells() bool {
	c := h.counts()
	return c["append"]-c["append unknown"] >= 20 && c["append unknown"]+c["close unknown"] > 0
}

// untilTold lets a history continue for a while, and on a busy machine until it tells
// enough, a minute at most.
func untilTold(ctx context.Context, least time.Duration, tells func() bool) {
	began := time.Now()
	tick := time.NewTicker(least / 10)
	defer tick.Stop()
	for d := time.Duration(0); d < least || d < time.Minute && !tells(); d = time.Since(began) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// Several clients open, append to, close, take over, recover and read one file
// at once. Some die, some fall silent past the limits and then continue, some have
// a clock that stands still and so never notice by themselves; messages get
// lost. What they were told is linearizable: there is one order of it all in
// which each acknowledged piece is appended once, under the epoch that was the
// file's then, and every read and every open sees just what was there.
func TestScenarioHistoryIsLinearizable(t *testing.T) {
	t.Parallel()
	for _, blocks := range []bool{false, true} {
		t.Run(map[bool]string{false: "tails", true: "blocks"}[blocks], func(t *testing.T) {
			t.Parallel()
			seed := uint64(time.Now().UnixNano())
			n := env.Start(t, env.Limits(100*time.Millisecond, 250*time.Millisecond), func(c *namenode.Config) {
				if blocks { // no room in tails: most flushes become blocks
					c.MaxTail, c.TailBudget = 4096, 32
				}
			})
			must(t, n.Client(t).WriteFile(t.Context(), contested, nil))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			h := &history{began: time.Now()}
			var wg sync.WaitGroup
			for id := range 5 {
				mod := func(c *client.Config) {
					if id%2 == 1 {
						c.Clock = &clock.Fake{} // stands still
					}
				}
				a := &actor{t: t, ctx: ctx, id: id, h: h, apart: blocks, rnd: rand.New(rand.NewPCG(seed, uint64(id)))}
				a.fs, a.wire = n.Wired(t, env.Named(fmt.Sprint("client", id)), mod)
				a.silent(false)
				wg.Go(a.run)
			}
			untilTold(ctx, 3*time.Second, h.tells)
			cancel()
			wg.Wait()
			last := &actor{t: t, id: 99, h: h, fs: n.Client(t)}
			last.recover()
			last.read()

			t.Logf("seed %d: %v", seed, h.counts())
			if !h.tells() {
				t.Errorf("the history tells too little: %v", h.counts())
			}
			h.settle()
			switch result, info := porcupine.CheckOperationsVerbose(fileModel(), h.ops, 2*time.Minute); result {
			case porcupine.Ok:
			case porcupine.Illegal:
				longest := 0
				for _, l := range info.PartialLinearizations()[0] {
					longest = max(longest, len(l))
				}
				t.Errorf("seed %d: not linearizable; the longest part that is has %d of %d operations", seed, longest, len(h.ops))
				for _, op := range h.ops {
					t.Logf("%d: %9.3f–%9.3f %s", op.ClientId, float64(op.Call)/1e6, float64(op.Return)/1e6, fileModel().DescribeOperation(op.Input, op.Output))
				}
			case porcupine.Unknown:
				t.Errorf("seed %d: the check of %d operations took too long", seed, len(h.ops))
			}
		})
	}
}

// The model refuses histories that must not be: else the test above says
// nothing.
func TestHistoryModelRefuses(t *testing.T) {
	t.Parallel()
	type event struct {
		in  input
		out output
	}
	open := func(epoch uint64, length int) event {
		return event{input{kind: opOpen}, output{epoch: epoch, length: length}}
	}
	add := func(epoch uint64, piece string) event { return event{input{opAppend, epoch, piece}, output{}} }
	read := func(content string) event { return event{input{kind: opRead}, output{content: content}} }
	for name, c := range map[string]struct {
		events []event
		ok     bool
	}{
		"in order":               {[]event{open(1, 0), add(1, "a"), open(2, 1), add(2, "b"), read("ab")}, true},
		"a fenced append":        {[]event{open(1, 0), open(2, 0), add(1, "a")}, false},
		"a lost append":          {[]event{open(1, 0), add(1, "a"), read("")}, false},
		"an append twice":        {[]event{open(1, 0), add(1, "a"), read("aa")}, false},
		"an epoch that fell":     {[]event{open(2, 0), open(1, 0)}, false},
		"an open that missed":    {[]event{open(1, 0), add(1, "a"), open(2, 0)}, false},
		"a read from the past":   {[]event{open(1, 0), add(1, "a"), read("a"), add(1, "b"), read("a")}, false},
		"an unknown that shows":  {[]event{open(1, 0), {input{opAppend, 1, "a"}, output{outcome: unknown}}, read("a")}, true},
		"an unknown that is not": {[]event{open(1, 0), {input{opAppend, 1, "a"}, output{outcome: unknown}}, read("")}, true},
		"an unknown, too late":   {[]event{open(1, 0), open(2, 0), {input{opAppend, 1, "a"}, output{outcome: unknown}}, read("a")}, false},
		"a close that kept it":   {[]event{open(1, 0), {input{opClose, 1, "a"}, output{}}, add(1, "b")}, false},
		"held by nobody":         {[]event{{input{kind: opOpen}, output{outcome: held}}}, false},
	} {
		var ops []porcupine.Operation
		for i, e := range c.events {
			ops = append(ops, porcupine.Operation{Input: e.in, Output: e.out, Call: int64(2 * i), Return: int64(2*i + 1)})
		}
		if got := porcupine.CheckOperations(fileModel(), ops); got != c.ok {
			t.Errorf("%s: linearizable %v, want %v", name, got, c.ok)
		}
	}
}
