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
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/lowlevel"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// plainEvery: in the worlds of every third seed no client keeps what it has read. Who takes
// over waits for those who do, longer than its predecessor answers, and so would
// hide that he does not wait for that.
const plainEvery = 3

// logs is how many files all clients append to. The next number is that of the
// steady one's.
const logs = 3

// worker is a client process with a life of its own.
type worker struct {
	w      *Work
	name   string
	ttl    time.Duration // the soft limit that it asks for, as one that only locks does; 0: the namenodes' own
	host   Host
	clock  *Clock
	pipe   *http.Transport
	fs     *client.FS
	rand   *rand.Rand
	lines  int
	busy   bool // it waits for no other client
	reads  bool // it only looks, so that no call of its own keeps it from asking a namenode that changes nothing any more
	plain  bool // it keeps nothing of what it reads
	steady bool // it only appends, to a log of its own, so that whoever serves has its lines at once

	// own is what is below the worker's directory: nobody else changes that, so
	// each answer about it can be foretold. Unsure are the names of which a call
	// ended without an answer.
	own    map[string]string // content of a file by name, such as "f1" or "t2/a"
	unsure map[string]bool
	names  int

	life *process

	answered func(call string) // is called between the answer to a call and its use; nil: nothing is
}

// process is one run of a client. What is left of it when it was killed reaches
// nothing.
type process struct {
	fs   *client.FS
	host Host
	dead atomic.Bool
}

func (p *process) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if p.dead.Load() {
		return nil, errors.New("the process is dead")
	}
	return p.host.DialContext(ctx, network, address)
}

func newWorker(w *Work, i int) *worker {
	name := "c" + string(rune('0'+i))
	c := &worker{w: w, name: name, host: w.with.Host(name), clock: newClock(), rand: w.rand("client", i), busy: i%2 == 1, reads: i == 5, steady: i == 6, plain: w.with.Seed%plainEvery == 0, own: map[string]string{}, unsure: map[string]bool{}}
	return c
}

// connect waits until there is a namenode.
func (c *worker) connect(ctx context.Context) error {
	p := &process{host: c.host}
	c.pipe = &http.Transport{DialContext: p.dial, IdleConnTimeout: 10 * time.Second}
	for {
		fs, err := client.New(ctx, client.Config{
			Namenodes: c.w.with.Namenodes, User: "root", Client: c.name, Host: c.name, PID: 1, Cache: c.ttl == 0 && !c.plain, Drafts: c.ttl == 0 && !c.plain,
			Timeout: time.Minute, TTL: c.ttl, Clock: c.clock, HTTPClient: &http.Client{Transport: c.pipe},
			DialOptions: []grpc.DialOption{
				grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) { return p.dial(ctx, "tcp", addr) }),
				grpc.WithChainUnaryInterceptor(c.trace(p)),
			},
			Logger: slog.New(&logger{h: c.w.log, who: c.name}),
		})
		if err == nil {
			p.fs, c.fs, c.life = fs, fs, p
			return nil
		}
		c.w.log.note(c.name, "connect: %v", err)
		if ctx.Err() != nil {
			return err
		}
	}
}

// trace notes each call of a process with its length, until it is dead.
func (c *worker) trace(p *process) grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		if p.dead.Load() {
			return invoke(ctx, method, req, reply, cc, opts...)
		}
		c.w.calls.Add(1)
		what := path.Base(method)
		if r, ok := req.(interface{ GetAt() *pb.Ref }); ok {
			what += " " + r.GetAt().GetPath()
		}
		done := c.w.log.begin(&event{Who: c.name, Kind: callEvent, What: what + " at " + path.Base(cc.Target())})
		err := invoke(ctx, method, req, reply, cc, opts...)
		done(err)
		if c.answered != nil {
			c.answered(path.Base(method))
		}
		return err
	}
}

func (c *worker) dir() string { return "/own/" + c.name }

// pause lets some time pass, and more while the machine stands still.
func (c *worker) pause(ctx context.Context, most time.Duration) {
	c.rest(ctx, time.Duration(c.rand.Int64N(int64(most))))
}

func (c *worker) rest(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
	c.clock.await()
}

// stoodSince reports whether the machine stood still since it had done so a number of
// times: then what the client believes by its timers is not to be relied on.
func (c *worker) stoodSince(stops int) bool {
	_, now := c.clock.stands()
	return now != stops
}

// work does one thing after another until ctx ends; what is under way then is
// still finished.
func (c *worker) work(ctx context.Context) {
	if c.fs == nil && c.connect(ctx) != nil {
		return
	}
	if c.reads {
		c.lookOften(ctx)
		return
	}
	for ctx.Err() == nil {
		call, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Minute)
		what := c.rand.IntN(20)
		switch {
		case c.steady:
			what = 14
		case c.busy:
			what = c.rand.IntN(14) // never behind others
		}
		switch what {
		case 0, 1, 2, 3, 4, 5, 6:
			c.change(call)
		case 7:
			c.look(call)
		case 8, 19:
			c.pair(call)
		case 9:
			c.list(call)
		case 10, 11, 12, 13:
			c.lookAtLog(call, c.rand.IntN(logs+1))
		case 14, 15, 16:
			c.appendSome(call, ctx)
		case 17:
			c.lock(call, ctx)
		case 18:
			c.present(call, ctx)
		}
		cancel()
		c.rest(ctx, c.w.think(c.rand, 100*time.Millisecond))
	}
}

// die ends the client as a power cut does, and begins another one on the same
// machine. What it had open it holds until others may take it.
func (c *worker) die(ctx context.Context) {
	c.w.log.note(c.name, "dies")
	old := c.life
	old.dead.Store(true)
	c.host.Crash()
	c.w.running.Go(func() { _ = old.fs.Close() }) // it reaches nobody
	c.pipe.CloseIdleConnections()
	c.pause(ctx, c.w.with.Soft)
	c.host.Restart()
	if c.connect(context.WithoutCancel(ctx)) != nil {
		c.w.truth.broken("%s finds no namenode", c.name)
	}
}

// end closes the client.
func (c *worker) end() {
	if c.fs != nil {
		_ = c.fs.Close() // what it says is of no promise
	}
	if c.pipe != nil { // it was connected once
		c.pipe.CloseIdleConnections()
	}
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

// recovered is the reason of a loss that only the hard limit brings about, if nobody has
// opened the file since. (Who takes over does not know who had it and has closed it.)
const recovered = "recovered"

// appendSome opens a log, writes some lines and closes it.
func (c *worker) appendSome(call, ctx context.Context) {
	p, longest := fmt.Sprintf("/logs/%d", c.rand.IntN(logs)), 600
	if c.steady {
		p, longest = fmt.Sprintf("/logs/%d", logs), 20
	}
	before, since := c.w.truth.token(p), time.Now()
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
	me := c.life
	_, stops := c.clock.stands()
	defer func() {
		if me != c.life {
			return
		}
		err := w.CloseContext(call)
		c.w.log.note(c.name, "closed %s: %v", p, err)
	}()
	for range 1 + c.rand.IntN(8) {
		var lines []string
		for range 1 + c.rand.IntN(4) {
			c.lines++
			line := fmt.Sprintf("%s %d %0*d", c.name, c.lines, 1+c.rand.IntN(longest), 0)
			c.w.truth.trying(p, line)
			lines = append(lines, line)
			if _, err := fmt.Fprintln(w, line); err != nil {
				return
			}
		}
		before, asked := c.w.truth.token(p), time.Now()
		if err := w.Flush(call); err != nil {
			c.w.log.note(c.name, "flush %s: %v", p, err)
			if !expected(err) {
				c.w.truth.broken("%s: flush %s: %v", c.name, p, err)
			}
			var why *fserror.Error
			if silent := time.Since(since); errors.As(err, &why) && why.Reason == recovered && c.w.truth.token(p) == w.Token() && silent < c.w.with.Hard && !c.stoodSince(stops) {
				c.w.truth.broken("%s: %s was recovered %v after a flush, the hard limit is %v", c.name, p, silent, c.w.with.Hard)
			}
			return
		}
		since = asked // it renewed the lease no sooner
		c.w.truth.flushed(c.name, p, w, lines, before)
		c.w.truth.did("flush")
		switch chance := c.rand.IntN(24); {
		case chance < 2 && !c.steady:
			c.pause(ctx, 2*c.w.with.Soft) // with the file open
		case chance == 2 && !c.steady:
			c.die(ctx)
			return
		default:
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
	c.w.truth.locked(c, p, l)
	if l.Token() <= before {
		c.w.truth.broken("%s locked %s with token %d after token %d was given", c.name, p, l.Token(), before)
	}
	c.w.truth.did("lock")
	c.pause(ctx, 2*c.w.with.Soft)
	if c.rand.IntN(8) == 0 {
		c.die(ctx) // what the lock promised still counts
		return
	}
	c.w.truth.unlocking(l)
	err = l.Unlock(call)
	c.w.log.note(c.name, "unlocked %s: %v", p, err)
}

// lookAtLog asks for the length of a log, which this client may keep from before:
// it must not be shorter than what was flushed before the question.
func (c *worker) lookAtLog(call context.Context, number int) {
	p := fmt.Sprintf("/logs/%d", number)
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

// lookOften looks at all logs until ctx ends, at each by itself: a question that nobody
// answers holds up no look at what the client keeps.
func (c *worker) lookOften(ctx context.Context) {
	var all sync.WaitGroup
	for number := range logs + 1 {
		chance := c.w.rand("looks", number)
		all.Go(func() {
			for ctx.Err() == nil {
				call, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Minute)
				c.lookAtLog(call, number)
				cancel()
				c.rest(ctx, c.w.think(chance, 300*time.Millisecond))
			}
		})
	}
	all.Wait()
}

// manyNames is how many files of its own a client has at most: without it they would
// grow in number as long as the world lasts.
const manyNames = 200

// change does one change below the worker's directory. Its answer is foretold.
func (c *worker) change(call context.Context) {
	if len(c.unsure) > 0 {
		c.settle(call)
		return
	}
	switch names := c.ownNames(); {
	case len(names) < 3 || len(names) < manyNames && c.rand.IntN(2) == 0:
		c.names++
		name, text := fmt.Sprintf("f%d", c.names), fmt.Sprintf("%s %d %0*d", c.name, c.names, 1+c.rand.IntN(100), 0)
		switch c.rand.IntN(3) {
		case 0:
			name = fmt.Sprintf("t%d/a", c.names)
		case 1:
			if c.draft(call, name, text) {
				return
			}
			if c.rand.IntN(4) == 0 { // of several blocks
				text = fmt.Sprintf("%s %d %s", c.name, c.names, strings.Repeat("0", c.rand.IntN(c.w.with.Largest)))
			}
			c.write(call, name, text)
			return
		}
		err := c.fs.WriteFile(call, path.Join(c.dir(), name), []byte(text), client.WithParents())
		c.outcome("create", err, []string{name}, func() { c.own[name] = text })
	case c.rand.IntN(2) == 0:
		from := names[c.rand.IntN(len(names))]
		c.names++
		to := fmt.Sprintf("r%d", c.names)
		what, as := from, to
		if tree, file, ok := strings.Cut(from, "/"); ok { // the whole tree
			what, to = tree, path.Join(to, file)
		}
		err := c.fs.Rename(call, path.Join(c.dir(), what), path.Join(c.dir(), as), false)
		c.outcome("rename", err, []string{from, to}, func() { c.own[to] = c.own[from]; delete(c.own, from) })
	default:
		name := names[c.rand.IntN(len(names))]
		var err error
		if tree, _, ok := strings.Cut(name, "/"); ok {
			err = lowlevel.Of(c.fs).RemoveTree(call, path.Join(c.dir(), tree))
		} else {
			err = c.fs.Remove(call, path.Join(c.dir(), name))
		}
		c.outcome("remove", err, []string{name}, func() { delete(c.own, name) })
	}
}

// draft makes a file as a mount does, without a call before its end; false if that
// cannot be.
func (c *worker) draft(call context.Context, name, text string) bool {
	low := lowlevel.Of(c.fs)
	dir, _, err := low.LstatKept(call, lowlevel.At(c.dir())) // as a mount looks first
	if err != nil {
		return false
	}
	at := lowlevel.Ref{Base: dir.Inode, Path: name}
	if _, _, err := low.LstatKept(call, at); err != nil && !errors.Is(err, fserror.NotFound) {
		return false
	}
	d, ok := low.Draft(call, at, "")
	if !ok {
		return false
	}
	d.Write([][]byte{[]byte(text)})
	c.pause(call, 200*time.Millisecond)
	err = d.Close(call, 0)
	c.outcome("draft", err, []string{name}, func() { c.own[name] = text })
	return true
}

// write makes a file in several calls, and asks for the right to make more
// without any, as a mount does.
func (c *worker) write(call context.Context, name, text string) {
	w, err := c.fs.Create(call, path.Join(c.dir(), name), client.WithParents())
	if err == nil {
		if _, err = w.WriteContext(call, []byte(text)); err == nil {
			err = w.CloseContext(call)
		} else {
			_ = w.Abort()
		}
		if err != nil {
			// What is there then is a part of it, which is not to be foretold.
			c.outcome("write", context.DeadlineExceeded, []string{name}, nil)
			return
		}
	}
	c.outcome("write", err, []string{name}, func() { c.own[name] = text })
}

// list lists the worker's directory: what is in it is known.
func (c *worker) list(call context.Context) {
	if len(c.unsure) > 0 || len(c.own) == 0 {
		return
	}
	entries, err := c.fs.ReadDir(call, c.dir())
	if err != nil {
		if !expected(err) {
			c.w.truth.broken("%s: list: %v", c.name, err)
		}
		return
	}
	c.compare("", entries)
	c.w.truth.did("list")
}

// compare holds a listing against what the worker knows.
func (c *worker) compare(when string, entries []*client.FileInfo) {
	there := map[string]bool{}
	for _, e := range entries {
		there[e.Name()] = true
	}
	for _, name := range c.ownNames() {
		first, _, _ := strings.Cut(name, "/")
		if !there[first] {
			c.w.truth.broken("%s%s: %s is not listed", when, c.name, first)
		}
	}
	for _, e := range entries {
		if _, known := c.own[e.Name()]; !known && !e.IsDir() { // a directory may be left of what was unsure
			c.w.truth.broken("%s%s: %s is there and was never made, or was removed", when, c.name, e.Name())
		}
	}
}

// presentTTL is the time to live of the leases that workers are granted.
const presentTTL = 6 * time.Second

// present shows that the worker is there by a file that lives as long as its lease.
func (c *worker) present(call, ctx context.Context) {
	c.names++
	_, stops := c.clock.stands()
	p := fmt.Sprintf("/present/%s-%d", c.name, c.names)
	g, err := c.fs.Leases().Grant(call, presentTTL, 0)
	if err != nil {
		if !expected(err) {
			c.w.truth.broken("%s: grant: %v", c.name, err)
		}
		return
	}
	kept, err := c.fs.Leases().KeepAlive(ctx, g.ID)
	if err != nil {
		c.w.log.note(c.name, "keep alive %v: %v", g.ID, err)
		return
	}
	defer kept.Stop()
	c.w.truth.granted(g.TTL)
	err = c.fs.WriteFile(call, p, nil, client.WithParents(), client.WithLease(g.ID))
	c.w.log.note(c.name, "present %s with lease %v: %v", p, g.ID, err)
	if err != nil {
		if !expected(err) && !errors.Is(err, fserror.NotFound) { // the lease has ended
			c.w.truth.broken("%s: %s: %v", c.name, p, err)
		}
		return
	}
	for range 1 + c.rand.IntN(6) {
		c.pause(ctx, presentTTL)
		if c.rand.IntN(12) == 0 {
			c.die(ctx)
			return
		}
		_, err := c.fs.Stat(call, p)
		if errors.Is(err, fserror.NotFound) && kept.Remaining() > 0 && !c.stoodSince(stops) {
			c.w.truth.broken("%s: %s is gone while lease %v is certainly alive", c.name, p, g.ID)
			return
		}
		if err == nil {
			c.w.truth.did("present")
		}
	}
	if c.rand.IntN(2) == 0 {
		return // it ends by itself
	}
	kept.Stop()
	err = c.fs.Leases().Revoke(call, g.ID)
	c.w.log.note(c.name, "revoke %v: %v", g.ID, err)
	if err != nil {
		if !expected(err) && !errors.Is(err, fserror.NotFound) {
			c.w.truth.broken("%s: revoke %v: %v", c.name, g.ID, err)
		}
		return
	}
	if _, err := c.fs.Stat(call, p); err == nil {
		c.w.truth.broken("%s: %s is there though its lease %v was revoked", c.name, p, g.ID)
	}
	c.w.truth.did("revoke")
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
		c.w.truth.broken("%s%s: %s has %d bytes %.100q, not %d bytes %.100q", when, c.name, name, len(data), data, len(c.own[name]), c.own[name])
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
	c.compare(when+": ", entries)
	var all sync.WaitGroup
	for _, name := range c.ownNames() {
		all.Go(func() { c.lookAt(ctx, when+": ", name) })
	}
	all.Wait()
}
