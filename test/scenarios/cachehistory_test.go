package scenarios_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode"
	"github.com/leasefs/leasefs/test/env"
)

// The model is a directory with a few files: of each whether it is there, its
// mode and its content. The directory is renamed away and back, and closed to
// others than its owner and opened again. The last file is also appended to, and
// is neither renamed nor deleted: so an append is one change, that of its close.
type (
	treeState struct {
		away, shut bool
		files      [treeFiles]treeFile
	}
	treeFile struct {
		exists  bool
		mode    uint32
		content string
	}
)

const (
	treeFiles = 4
	treeDir   = "/d"
	treeAway  = "/away"
)

type treeOp string

const (
	treeStat   treeOp = "stat"
	treeRead   treeOp = "read"
	treeCreate treeOp = "create" // it must not exist
	treeWrite  treeOp = "overwrite"
	treeAppend treeOp = "append"
	treeRename treeOp = "rename" // over what is there
	treeDelete treeOp = "delete"
	treeChmod  treeOp = "chmod"
	treeMove   treeOp = "move away" // the directory
	treeBack   treeOp = "move back"
	treeShut   treeOp = "shut"
	treeOpen   treeOp = "open"
)

type treeInput struct {
	op      treeOp
	file    int
	to      int    // of a rename
	content string // that is written or appended
	mode    uint32
	other   bool // asked by another user than the owner
}

// treeOutput is what the client was told: by kind, and by a read.
type treeOutput struct {
	kind    fserror.Kind // 0: done
	unknown bool         // it happened, or not, or will
	length  int
	mode    uint32
	content string
}

func treeModel() porcupine.Model {
	m := porcupine.NondeterministicModel{
		Init: func() []any { return []any{treeState{}} },
		Step: func(state, in, out any) []any { return treeStep(state.(treeState), in.(treeInput), out.(treeOutput)) },
		DescribeOperation: func(in, out any) string {
			return fmt.Sprintf("%+v → %+v", in, out)
		},
	}
	return m.ToModel()
}

// treeStep is which states an operation may lead to; none: it cannot have
// happened here.
func treeStep(s treeState, in treeInput, out treeOutput) []any {
	next, kind := treeApply(s, in)
	switch {
	case out.unknown && kind == 0:
		return []any{s, next}
	case out.unknown, out.kind == fserror.Held: // another is appending
		return []any{s}
	case out.kind != kind:
		return nil
	case kind != 0:
		return []any{s}
	}
	f := s.files[in.file]
	if in.op == treeStat && (out.length != len(f.content) || out.mode != f.mode) || in.op == treeRead && out.content != f.content {
		return nil
	}
	return []any{next}
}

// treeApply is the state after an operation, or why it is refused.
func treeApply(s treeState, in treeInput) (treeState, fserror.Kind) {
	f := &s.files[in.file]
	switch in.op {
	case treeMove, treeBack:
		if s.away == (in.op == treeMove) {
			return s, fserror.NotFound
		}
		s.away = in.op == treeMove
		return s, 0
	case treeAppend:
		// It was opened by its name; meanwhile the directory may have moved.
		f.content += in.content
		return s, 0
	}
	if s.away {
		return s, fserror.NotFound
	}
	switch in.op {
	case treeShut, treeOpen:
		s.shut = in.op == treeShut
		return s, 0
	}
	if in.other && s.shut {
		return s, fserror.Permission
	}
	switch {
	case in.op == treeCreate && f.exists:
		return s, fserror.Exists
	case in.op == treeWrite && f.exists:
		f.content = in.content // the mode stays
		return s, 0
	case in.op == treeCreate, in.op == treeWrite:
		*f = treeFile{true, 0o644, in.content}
		return s, 0
	case !f.exists:
		return s, fserror.NotFound
	}
	switch in.op {
	case treeRename:
		s.files[in.to] = *f
		*f = treeFile{}
	case treeDelete:
		*f = treeFile{}
	case treeChmod:
		f.mode = in.mode
	}
	return s, 0
}

// treeActor is one goroutine of a client. What it does is chosen at random.
type treeActor struct {
	t     *testing.T
	ctx   context.Context
	id    int
	fs    *client.FS
	other bool // of another user than the owner
	looks bool // all the time, and waits for no answer that takes long
	rnd   *rand.Rand
	h     *treeHistory
	n     int
}

type treeHistory struct {
	began time.Time
	mu    sync.Mutex
	ops   []porcupine.Operation
}

func (a *treeActor) run() {
	pause := time.NewTimer(0)
	defer pause.Stop()
	<-pause.C
	for a.ctx.Err() == nil {
		a.do(a.choose())
		most := 10_000
		if a.looks {
			most = 4000
		}
		pause.Reset(time.Duration(a.rnd.IntN(most)) * time.Microsecond)
		select {
		case <-pause.C:
		case <-a.ctx.Done():
		}
	}
}

func (a *treeActor) choose() treeInput {
	in := treeInput{op: treeStat, file: a.rnd.IntN(treeFiles), other: a.other}
	if a.looks {
		if a.rnd.IntN(20) > 0 { // mostly at the same, which others change now and then
			in.file = a.id / 2 % 2
		}
		return in
	}
	if a.rnd.IntN(2) == 0 {
		in.file = a.rnd.IntN(2)
	}
	last := in.file == treeFiles-1
	dice := a.rnd.IntN(100)
	switch {
	case dice < 45:
	case dice < 65:
		in.op = treeRead
	case dice < 71:
		in.op, in.content = treeWrite, a.content()
	case dice < 78 && !last:
		in.op, in.content = treeCreate, a.content()
	case dice < 82 && !last:
		in.op, in.to = treeRename, (in.file+1+a.rnd.IntN(treeFiles-2))%(treeFiles-1)
	case dice < 86 && !last:
		in.op = treeDelete
	case dice < 86:
		in.op, in.content = treeAppend, a.content()
	case dice < 92:
		in.op, in.mode = treeChmod, 0o400+a.rnd.Uint32N(0o200)
	case dice < 94:
		in = treeInput{op: treeMove}
	case dice < 97:
		in = treeInput{op: treeBack}
	case dice < 98:
		in = treeInput{op: treeShut}
	case dice < 99:
		in = treeInput{op: treeOpen}
	}
	return in
}

// content is one that no other is like, and rarely of a length that another has.
func (a *treeActor) content() string {
	a.n++
	return fmt.Sprintf("%d.%d%s;", a.id, a.n, strings.Repeat("x", a.rnd.IntN(200)))
}

func (a *treeActor) do(in treeInput) {
	op := porcupine.Operation{ClientId: a.id, Input: in, Call: time.Since(a.h.began).Nanoseconds()}
	var out treeOutput
	err := a.call(in, &out)
	op.Return = time.Since(a.h.began).Nanoseconds()
	switch kind := fserror.KindOf(err); {
	case err == nil:
	case kind == fserror.NotFound, kind == fserror.Exists, kind == fserror.Held, kind == fserror.Permission:
		out = treeOutput{kind: kind}
	case a.looks && kind == fserror.Deadline:
		return
	case in.op == treeStat || in.op == treeRead:
		a.t.Errorf("%+v: %v", in, err)
		return
	default:
		out, op.Return = treeOutput{unknown: true}, math.MaxInt64
	}
	op.Output = out
	a.h.mu.Lock()
	defer a.h.mu.Unlock()
	a.h.ops = append(a.h.ops, op)
}

func (a *treeActor) call(in treeInput, out *treeOutput) error {
	ctx := a.t.Context()
	if a.looks { // else a held line would soon have stopped it
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, 3*time.Millisecond)
		defer cancel()
	}
	path := fmt.Sprintf("%s/f%d", treeDir, in.file)
	switch in.op {
	case treeStat:
		if a.rnd.IntN(3) == 0 {
			path = fmt.Sprintf("/link%d", in.file)
		}
		i, err := a.fs.Stat(ctx, path)
		if err == nil {
			out.length, out.mode = int(i.Length), uint32(i.Mode().Perm())
		}
		return err
	case treeRead:
		got, err := a.fs.ReadFile(ctx, path)
		out.content = string(got)
		return err
	case treeCreate:
		return a.fs.WriteFile(ctx, path, []byte(in.content))
	case treeWrite:
		return a.fs.WriteFile(ctx, path, []byte(in.content), client.WithOverwrite())
	case treeAppend:
		err := appendText(ctx, a.fs, path, in.content)
		if fserror.KindOf(err) == fserror.NotFound {
			return fserror.New(fserror.Held, "", "", "not opened") // moved away before it was opened
		}
		return err
	case treeRename:
		return a.fs.Rename(ctx, path, fmt.Sprintf("%s/f%d", treeDir, in.to), true)
	case treeDelete:
		return a.fs.Remove(ctx, path)
	case treeChmod:
		return a.fs.Chmod(ctx, path, fs.FileMode(in.mode))
	case treeMove:
		return a.fs.Rename(ctx, treeDir, treeAway, false)
	case treeBack:
		return a.fs.Rename(ctx, treeAway, treeDir, false)
	case treeShut:
		return a.fs.Chmod(ctx, treeDir, 0o700)
	case treeOpen:
		return a.fs.Chmod(ctx, treeDir, 0o755)
	}
	return errors.New("unknown operation")
}

// slowClock runs slower than the machine's, by less than the margin allows.
type slowClock struct{ began time.Time }

func (c slowClock) Boot() time.Duration { return time.Since(c.began) * 92 / 100 }
func (c slowClock) Mono() time.Duration { return c.Boot() }
func (c slowClock) Wall() time.Time     { return c.began.Add(c.Boot()) }

// trouble holds lines, cuts them, loses replies and restarts the namenode, and
// leaves all well behind.
func trouble(ctx context.Context, t *testing.T, nn *env.Namenode, wires []*env.Wire, rnd *rand.Rand) {
	t.Helper()
	pause := func(least, most int) {
		timer := time.NewTimer(time.Duration(least+rnd.IntN(most-least)) * time.Millisecond)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	for ctx.Err() == nil {
		pause(5, 60)
		w := wires[rnd.IntN(len(wires))]
		switch dice := rnd.IntN(20); {
		case dice < 4: // stopped, or its network is: for up to some terms
			w.Hold(env.ToNamenode)
			w.Hold(env.ToClient)
			pause(1, 500)
		case dice < 10: // it hears nothing
			w.Hold(env.ToClient)
			pause(1, 300)
		case dice < 13: // it says nothing
			w.Hold(env.ToNamenode)
			pause(1, 250)
		case dice < 15:
			w.Cut()
			pause(1, 100)
			w.Mend()
		case dice < 17:
			w.LoseReply([]string{"SetAttr", "Rename", "Delete", "Create", "Append", "Close", "Stat"}[rnd.IntN(7)])
		case dice < 18:
			nn.Restart(t)
			pause(100, 300)
		default:
			pause(50, 150) // calm
		}
		for _, w := range wires {
			w.Release()
			w.Mend()
		}
	}
}

// Several clients of several goroutines each keep what they read, and change it
// under one another. Their lines are held for longer than a term, in either
// direction, and are cut; replies get lost; the namenode is restarted; one
// client's clock is slow. What they were told is linearizable: nothing is
// answered that had been changed before, by anybody, as far as anybody knew.
func TestScenario55HistoryIsLinearizable(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano()) //nolint:gosec // any
	nn := env.Start(t, func(c *namenode.Config) { c.CacheTerm = 100 * time.Millisecond })
	admin := nn.Client(t)
	must(t, admin.MkdirAll(t.Context(), treeDir, 0o755))
	last := fmt.Sprintf("%s/f%d", treeDir, treeFiles-1)
	for i := range treeFiles {
		must(t, admin.Symlink(t.Context(), fmt.Sprintf("%s/f%d", treeDir, i), fmt.Sprintf("/link%d", i)))
	}
	h := &treeHistory{began: time.Now()}
	first := &treeActor{t: t, id: 99, fs: admin, h: h, rnd: rand.New(rand.NewPCG(seed, 99))}
	first.do(treeInput{op: treeWrite, file: treeFiles - 1, content: first.content()})
	if _, err := admin.Stat(t.Context(), last); err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	var caches []*client.FS
	var wires []*env.Wire
	for c := range 5 {
		fs, w := nn.Wired(t, func(cfg *client.Config) {
			switch c {
			case 0:
				return // it keeps nothing: so it sees at once
			case 1:
				cfg.Clock = slowClock{time.Now()}
			case 2:
				cfg.User = "ann"
			}
			cfg.Cache = true
		})
		caches, wires = append(caches, fs), append(wires, w)
		for n := range 2 {
			a := &treeActor{t: t, ctx: ctx, id: 2*c + n, fs: fs, other: c == 2, looks: c == 2 || n == 1, h: h, rnd: rand.New(rand.NewPCG(seed, uint64(2*c+n)))} //nolint:gosec // small
			wg.Go(a.run)
		}
	}
	told := func() (hits, misses uint64, ops int) {
		for _, fs := range caches {
			st := fs.Stats().Cache
			hits, misses = hits+st.Hits, misses+st.Misses
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		return hits, misses, len(h.ops)
	}
	enough := func() bool { hits, _, ops := told(); return hits >= 200 && ops >= 1000 }
	wg.Go(func() {
		untilTold(ctx, 4*time.Second, enough)
		cancel()
	})
	trouble(ctx, t, nn, wires[1:], rand.New(rand.NewPCG(seed, 100)))
	wg.Wait()
	for i := range treeFiles {
		first.do(treeInput{op: treeStat, file: i})
	}
	hits, misses, _ := told()
	counts := map[treeOp]int{}
	for _, op := range h.ops {
		counts[op.Input.(treeInput).op]++
		if op.Output.(treeOutput).unknown {
			counts["of unknown outcome"]++
		}
	}
	t.Logf("seed %d: %d hits, %d misses, %v", seed, hits, misses, counts)
	if !enough() {
		t.Errorf("the history tells too little: %d hits, %d operations", hits, len(h.ops))
	}
	switch result, info := porcupine.CheckOperationsVerbose(treeModel(), h.ops, 3*time.Minute); result {
	case porcupine.Ok:
	case porcupine.Illegal:
		longest := map[int]bool{}
		for _, l := range info.PartialLinearizations()[0] {
			if len(l) > len(longest) {
				clear(longest)
				for _, i := range l {
					longest[i] = true
				}
			}
		}
		t.Errorf("seed %d: not linearizable; the longest part that is has %d of %d operations; what follows is near the first that is not in it", seed, len(longest), len(h.ops))
		from := int64(math.MaxInt64)
		for i, op := range h.ops {
			if !longest[i] && op.Return < from {
				from = op.Return
			}
		}
		for i, op := range h.ops {
			if op.Return > from-20e6 && op.Call < from+5e6 {
				t.Logf("%v %d: %9.3f–%9.3f %s", longest[i], op.ClientId, float64(op.Call)/1e6, float64(op.Return)/1e6, treeModel().DescribeOperation(op.Input, op.Output))
			}
		}
	case porcupine.Unknown:
		t.Errorf("seed %d: the check of %d operations took too long", seed, len(h.ops))
	}
}

// The model refuses histories that must not be: else the test above says
// nothing.
func TestCacheHistoryModelRefuses(t *testing.T) {
	t.Parallel()
	type event struct {
		in  treeInput
		out treeOutput
	}
	write := event{treeInput{op: treeWrite, content: "a"}, treeOutput{}}
	stat := func(length int, mode uint32) event {
		return event{treeInput{op: treeStat}, treeOutput{length: length, mode: mode}}
	}
	gone := event{treeInput{op: treeStat}, treeOutput{kind: fserror.NotFound}}
	done := func(in treeInput) event { return event{in, treeOutput{}} }
	for name, c := range map[string]struct {
		events []event
		ok     bool
	}{
		"in order":                {[]event{gone, write, stat(1, 0o644), done(treeInput{op: treeChmod, mode: 0o600}), stat(1, 0o600)}, true},
		"an old mode":             {[]event{write, done(treeInput{op: treeChmod, mode: 0o600}), stat(1, 0o644)}, false},
		"an old length":           {[]event{write, done(treeInput{op: treeAppend, content: "bc"}), stat(1, 0o644)}, false},
		"an old name":             {[]event{write, done(treeInput{op: treeDelete}), stat(1, 0o644)}, false},
		"an old absence":          {[]event{write, gone}, false},
		"an old parent":           {[]event{write, done(treeInput{op: treeMove}), stat(1, 0o644)}, false},
		"a parent that came back": {[]event{write, done(treeInput{op: treeMove}), gone, done(treeInput{op: treeBack}), stat(1, 0o644)}, true},
		"an old permission":       {[]event{write, done(treeInput{op: treeShut}), {treeInput{op: treeStat, other: true}, treeOutput{length: 1, mode: 0o644}}}, false},
		"renamed":                 {[]event{write, done(treeInput{op: treeRename, to: 1}), gone, {treeInput{op: treeRead, file: 1}, treeOutput{content: "a"}}}, true},
		"an old content":          {[]event{write, done(treeInput{op: treeWrite, content: "b"}), {treeInput{op: treeRead}, treeOutput{content: "a"}}}, false},
		"an unknown, seen":        {[]event{{write.in, treeOutput{unknown: true}}, stat(1, 0o644), gone}, false},
	} {
		var ops []porcupine.Operation
		for i, e := range c.events {
			ops = append(ops, porcupine.Operation{Input: e.in, Output: e.out, Call: int64(2 * i), Return: int64(2*i + 1)})
		}
		if got := porcupine.CheckOperations(treeModel(), ops); got != c.ok {
			t.Errorf("%s: linearizable %v, want %v", name, got, c.ok)
		}
	}
}
