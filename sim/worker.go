package sim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"path"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/fserror"
	"github.com/leasefs/leasefs/sim/simnet"
)

// logs is how many files all clients append to.
const logs = 3

// worker is a client process with a life of its own.
type worker struct {
	w     *World
	name  string
	host  *simnet.Host
	clock *Clock
	pipe  *http.Transport
	fs    *client.FS
	rand  *rand.Rand
	lines int
	busy  bool // it waits for no other client

	// own is what is below the worker's directory: nobody else changes that, so
	// each answer about it can be foretold. Unsure are the names of which a call
	// ended without an answer.
	own    map[string]string // content of a file by name
	unsure map[string]bool
	names  int
}

func newWorker(w *World, i int) *worker {
	name := "c" + string(rune('0'+i))
	c := &worker{w: w, name: name, host: w.net.Host(name), clock: newClock(), rand: w.rand("client", i), busy: i%2 == 1, own: map[string]string{}, unsure: map[string]bool{}}
	c.pipe = &http.Transport{DialContext: dialer(c.host), IdleConnTimeout: 10 * time.Second}
	return c
}

// connect waits until there is a namenode.
func (c *worker) connect(ctx context.Context) error {
	for {
		fs, err := client.New(ctx, client.Config{
			Namenodes: c.w.namenodeAddrs(), User: "root", Client: c.name, Host: c.name, PID: 1, Cache: true,
			Timeout: time.Minute, Clock: c.clock, HTTPClient: &http.Client{Transport: c.pipe},
			DialOptions: []grpc.DialOption{grpc.WithContextDialer(c.dial)},
			Logger:      slog.New(&logger{h: c.w.log, who: c.name}),
		})
		if err == nil {
			c.fs = fs
			return nil
		}
		c.w.log.note(c.name, "connect: %v", err)
		if ctx.Err() != nil {
			return err
		}
	}
}

func (c *worker) dir() string { return "/own/" + c.name }

func (c *worker) pause(ctx context.Context, most time.Duration) {
	select {
	case <-time.After(time.Duration(c.rand.Int64N(int64(most)))):
	case <-ctx.Done():
	}
}

// work does one thing after another until ctx ends; what is under way then is
// still finished.
func (c *worker) work(ctx context.Context) {
	if c.connect(ctx) != nil {
		return
	}
	for ctx.Err() == nil {
		call, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Minute)
		what := c.rand.IntN(10)
		if c.busy {
			what = c.rand.IntN(7) // never behind others
		}
		switch what {
		case 0, 1, 2, 3:
			c.change(call)
		case 4:
			c.look(call)
		case 5, 6:
			c.lookAtLog(call)
		case 7, 8:
			c.appendSome(call, ctx)
		case 9:
			c.lock(call, ctx)
		}
		cancel()
		c.pause(ctx, 100*time.Millisecond)
	}
}

// end closes the client.
func (c *worker) end() {
	if c.fs != nil {
		_ = c.fs.Close() // what it says is of no promise
	}
	c.pipe.CloseIdleConnections()
}

// expected are the errors that a call may end with when something has failed.
func expected(err error) bool {
	for _, kind := range []fserror.Kind{
		fserror.Held, fserror.LeaseLost, fserror.Unavailable, fserror.Unknown, fserror.Deadline, fserror.Canceled,
		fserror.Retry, fserror.NoSpace, fserror.NotActive,
	} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return errors.Is(err, context.DeadlineExceeded)
}

// outcomeUnknown reports whether a change may or may not have happened.
func outcomeUnknown(err error) bool {
	for _, kind := range []fserror.Kind{fserror.Unavailable, fserror.Unknown, fserror.Deadline, fserror.Canceled, fserror.NotActive} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return errors.Is(err, context.DeadlineExceeded)
}

// appendSome opens a log, writes some lines and closes it.
func (c *worker) appendSome(call, ctx context.Context) {
	p := fmt.Sprintf("/logs/%d", c.rand.IntN(logs))
	before := c.w.truth.token(p)
	w, err := c.fs.Append(call, p, client.WithCreate(), client.WithParents(), client.WithWait(20*time.Second))
	if err != nil {
		if !expected(err) {
			c.w.truth.broken("%s: append %s: %v", c.name, p, err)
		}
		return
	}
	c.w.log.note(c.name, "has %s with token %d", p, w.Token())
	c.w.truth.opened(c.name, p, w, before)
	c.w.truth.did("open")
	defer func() {
		err := w.CloseContext(call)
		c.w.log.note(c.name, "closed %s: %v", p, err)
	}()
	for range 1 + c.rand.IntN(8) {
		var lines []string
		for range 1 + c.rand.IntN(4) {
			c.lines++
			line := fmt.Sprintf("%s %d %0*d", c.name, c.lines, 1+c.rand.IntN(600), 0)
			c.w.truth.trying(p, line)
			lines = append(lines, line)
			if _, err := fmt.Fprintln(w, line); err != nil {
				return
			}
		}
		before := c.w.truth.token(p)
		if err := w.Flush(call); err != nil {
			c.w.log.note(c.name, "flush %s: %v", p, err)
			if !expected(err) {
				c.w.truth.broken("%s: flush %s: %v", c.name, p, err)
			}
			return
		}
		c.w.truth.flushed(c.name, p, w, lines, before)
		c.w.truth.did("flush")
		if c.rand.IntN(12) == 0 {
			c.pause(ctx, softLimit*2) // with the file open
		} else {
			c.pause(ctx, 200*time.Millisecond)
		}
	}
}

// lock has a lock for a while, or until it is lost.
func (c *worker) lock(call, ctx context.Context) {
	p := fmt.Sprintf("/locks/%d", c.rand.IntN(2))
	before := c.w.truth.token(p)
	l, err := c.fs.Lock(call, p, client.LockOptions{Wait: 20 * time.Second})
	if err != nil {
		if !expected(err) {
			c.w.truth.broken("%s: lock %s: %v", c.name, p, err)
		}
		return
	}
	c.w.log.note(c.name, "locked %s with token %d, %v are left", p, l.Token(), l.Remaining())
	c.w.truth.locked(c.name, p, l)
	if l.Token() <= before {
		c.w.truth.broken("%s locked %s with token %d after token %d was given", c.name, p, l.Token(), before)
	}
	c.w.truth.did("lock")
	c.pause(ctx, 2*softLimit)
	c.w.truth.unlocking(l)
	err = l.Unlock(call)
	c.w.log.note(c.name, "unlocked %s: %v", p, err)
}

// lookAtLog asks for the length of a log, which this client may keep from before:
// it must not be shorter than what was flushed before the question.
func (c *worker) lookAtLog(call context.Context) {
	p := fmt.Sprintf("/logs/%d", c.rand.IntN(logs))
	floor := c.w.truth.floor(p)
	i, err := c.fs.Stat(call, p)
	switch {
	case err == nil && i.Length < floor:
		c.w.truth.broken("%s: %s has %d bytes, %d were flushed before", c.name, p, i.Length, floor)
	case errors.Is(err, fserror.NotFound) && floor > 0:
		c.w.truth.broken("%s: %s is not found, %d bytes were flushed before", c.name, p, floor)
	case err == nil:
		c.w.truth.did("stat of a log")
	}
}

// change does one change below the worker's directory. Its answer is foretold.
func (c *worker) change(call context.Context) {
	if len(c.unsure) > 0 {
		c.settle(call)
		return
	}
	switch names := c.ownNames(); {
	case len(names) < 3 || c.rand.IntN(2) == 0:
		c.names++
		name, text := fmt.Sprintf("f%d", c.names), fmt.Sprintf("%s %d %0*d", c.name, c.names, 1+c.rand.IntN(100), 0)
		err := c.fs.WriteFile(call, path.Join(c.dir(), name), []byte(text), client.WithParents())
		c.outcome("create", err, []string{name}, func() { c.own[name] = text })
	case c.rand.IntN(2) == 0:
		from := names[c.rand.IntN(len(names))]
		c.names++
		to := fmt.Sprintf("r%d", c.names)
		err := c.fs.Rename(call, path.Join(c.dir(), from), path.Join(c.dir(), to), false)
		c.outcome("rename", err, []string{from, to}, func() { c.own[to] = c.own[from]; delete(c.own, from) })
	default:
		name := names[c.rand.IntN(len(names))]
		err := c.fs.Remove(call, path.Join(c.dir(), name))
		c.outcome("remove", err, []string{name}, func() { delete(c.own, name) })
	}
}

func (c *worker) ownNames() (names []string) {
	for name := range c.own {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// outcome takes the answer to a change of names that could not fail but because
// of what has failed around it.
func (c *worker) outcome(op string, err error, names []string, done func()) {
	c.w.log.note(c.name, "%s %v: %v", op, names, err)
	switch {
	case err == nil:
		done()
		c.w.truth.did(op)
	case outcomeUnknown(err):
		for _, name := range names {
			c.unsure[name] = true
		}
	case !expected(err):
		c.w.truth.broken("%s: %s %v: %v", c.name, op, names, err)
	}
}

// settle finds out what is there of names of which a call got no answer.
func (c *worker) settle(call context.Context) {
	for name := range c.unsure {
		data, err := c.fs.ReadFile(call, path.Join(c.dir(), name))
		switch {
		case err == nil:
			c.own[name] = string(data)
		case errors.Is(err, fserror.NotFound):
			delete(c.own, name)
		default:
			return
		}
		c.w.log.note(c.name, "%s is settled: %v", name, err)
		delete(c.unsure, name)
	}
}

// look reads one of the worker's files.
func (c *worker) look(call context.Context) {
	names := c.ownNames()
	if len(names) == 0 {
		return
	}
	name := names[c.rand.IntN(len(names))]
	if c.unsure[name] {
		return
	}
	c.lookAt(call, "", name)
}

func (c *worker) lookAt(call context.Context, when, name string) {
	data, err := c.fs.ReadFile(call, path.Join(c.dir(), name))
	switch {
	case err == nil && string(data) != c.own[name]:
		c.w.truth.broken("%s%s: %s has %q, not %q", when, c.name, name, data, c.own[name])
	case errors.Is(err, fserror.NotFound), err != nil && !expected(err), err != nil && when != "":
		c.w.truth.broken("%s%s: read %s: %v", when, c.name, name, err)
	case err == nil:
		c.w.truth.did("read")
	}
}

// check holds all that is below the worker's directory against what it knows.
func (c *worker) check(ctx context.Context, when string) {
	if c.fs == nil && c.connect(ctx) != nil {
		c.w.truth.broken("%s: %s finds no namenode", when, c.name)
		return
	}
	if c.settle(ctx); len(c.unsure) > 0 {
		c.w.truth.broken("%s: %s cannot read %v", when, c.name, c.unsure)
		return
	}
	entries, err := c.fs.ReadDir(ctx, c.dir())
	if err != nil && len(c.own) > 0 {
		c.w.truth.broken("%s: %s: list: %v", when, c.name, err)
		return
	}
	for _, e := range entries {
		if _, ok := c.own[e.Name()]; !ok {
			c.w.truth.broken("%s: %s: %s is there and was never made, or was removed", when, c.name, e.Name())
		}
	}
	var all sync.WaitGroup
	for _, name := range c.ownNames() {
		all.Go(func() { c.lookAt(ctx, when+": ", name) })
	}
	all.Wait()
}

// dial is dialer for gRPC.
func (c *worker) dial(ctx context.Context, addr string) (net.Conn, error) {
	return c.host.DialContext(ctx, "tcp", addr)
}
