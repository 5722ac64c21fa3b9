package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasefs/leasefs/namenode/ensemble"
	"github.com/leasefs/leasefs/namenode/namespace/levels"
	"github.com/leasefs/leasefs/namenode/offline"
	"github.com/leasefs/leasefs/test/env/crashfs"
	"github.com/leasefs/leasefs/test/sim/s3model"
	"github.com/leasefs/leasefs/test/sim/simnet"
	"github.com/leasefs/leasefs/test/sim/zkmodel"
)

// Config says how large a world is and how long it lasts.
type Config struct {
	Seed       uint64
	Namenodes  int            // 0: 3
	ZooKeeper  int            // servers; 0: 3
	Clients    int            // 0: 7
	Length     time.Duration  // of the work of a shift, in simulated time; 0: 5 minutes
	Shifts     int            // how often work, checks, and a crash of all follow each other; 0: once
	Calm       bool           // nothing fails
	Sparse     bool           // clients think longer between calls, and things fail less often
	Faults     *regexp.Regexp // only what it matches can fail; nil: all
	S3         bool           // blocks are in a store, not in a folder that all share
	TailBudget int64          // bytes of all tails in a namenode; 0: its default
	Archive    time.Duration  // how far back the archive of the journal keeps moments; 0: there is none
	Broken     func(string)   // is told of each broken promise; nil: nobody is
	Removing   func(string)   // is called before a namenode removes a file, with its name; nil: nothing is
}

// Session time-out and lease limits of a world. They are short, so that ends and
// take-overs are frequent.
const (
	sessionTimeout = 3 * time.Second
	softLimit      = 8 * time.Second
	hardLimit      = 45 * time.Second
	cacheTerm      = 4 * time.Second
	urlLife        = 30 * time.Second
	blockSize      = 64 << 10 // bytes

	// usualDelay is that of all lines, so that there are always calls under way.
	usualDelay = time.Millisecond
)

// World is a fleet with its clients. It lives in a synctest bubble.
type World struct {
	Work

	t        testing.TB
	cfg      Config
	net      *simnet.Network
	zk       *zkmodel.Ensemble
	shared   *crashfs.FS     // has the blocks, unless store is there
	store    *s3model.Server // nil: there is none
	nodes    []*Node
	endStore func()
	hits     []string // whom the fault that is about to begin hits
	meetings meetings

	failovers int           // terms after the first
	lasted    time.Duration // of simulated time
}

// New makes a world whose namenodes are about to start.
func New(t testing.TB, cfg Config) *World {
	for v, d := range map[*int]int{&cfg.Namenodes: 3, &cfg.ZooKeeper: 3, &cfg.Clients: 7} {
		if *v == 0 {
			*v = d
		}
	}
	if cfg.Length == 0 {
		cfg.Length = 5 * time.Minute
	}
	w := &World{
		t: t, cfg: cfg, net: simnet.New(), shared: crashfs.New(cfg.Seed),
		zk: zkmodel.New(zkmodel.Config{Servers: cfg.ZooKeeper, Seed: cfg.Seed, Tick: 500 * time.Millisecond}),
	}
	for i := range cfg.ZooKeeper {
		l, err := w.net.Host(zkName(i)).Listen("tcp", ":2181")
		if err != nil {
			t.Fatal(err)
		}
		w.running.Go(func() { _ = w.zk.Server(i).Serve(l) }) // until it is closed
		t.Cleanup(func() { _ = l.Close() })
	}
	if cfg.S3 {
		w.serveStore()
	}
	for i := range cfg.Namenodes {
		w.nodes = append(w.nodes, newNode(w, i))
	}
	w.set(WorkConfig{
		Seed: cfg.Seed, S3: cfg.S3, Sparse: cfg.Sparse, Clients: cfg.Clients, Namenodes: w.namenodeAddrs(), Host: func(name string) Host { return w.net.Host(name) },
		Machines: w.machines(), // no clients yet
		Soft:     softLimit, Hard: hardLimit, Settled: settled, Largest: 3 * blockSize, Broken: cfg.Broken,
	})
	w.log.flood = func(who string, n int, what string) {
		w.truth.broken("%s has logged %d warnings within a second, such as: %s", who, n, what)
	}
	all := append(w.machines(), w.follow.c.name, w.operator.name)
	for _, a := range all {
		for _, b := range all {
			w.net.Line(a, b).SetDelay(usualDelay)
		}
	}
	return w
}

// Of the store.
const (
	storeName = "s3"
	storePort = ":9000"
	bucket    = "blocks"
	region    = "here"
)

// serveStore has a store serve at a machine of its own.
func (w *World) serveStore() {
	w.store = s3model.New(s3model.Config{Bucket: bucket, Region: region, AccessKey: "sim", SecretKey: "sim", Seed: w.cfg.Seed})
	w.t.Setenv("AWS_ACCESS_KEY_ID", "sim")
	w.t.Setenv("AWS_SECRET_ACCESS_KEY", "sim")
	l, err := w.net.Host(storeName).Listen("tcp", storePort)
	if err != nil {
		w.t.Fatal(err)
	}
	srv := &http.Server{Handler: w.store, ReadHeaderTimeout: time.Minute, IdleTimeout: time.Minute}
	w.running.Go(func() { _ = srv.Serve(l) }) // until it is closed
	w.endStore = func() { _ = srv.Close() }
}

// blocks is the URL of the block store.
func (w *World) blocks() string {
	if w.store == nil {
		return "file://" + sharedDir
	}
	return "s3://" + bucket + "/sim?region=" + region + "&endpoint=http://" + storeName + storePort
}

func zkName(i int) string { return fmt.Sprintf("zk%d", i) }

func (w *World) zkAddrs() (all []string) {
	for i := range w.cfg.ZooKeeper {
		all = append(all, zkName(i)+":2181")
	}
	return all
}

func (w *World) namenodeAddrs() (all []string) {
	for _, n := range w.nodes {
		all = append(all, n.name+":8020")
	}
	return all
}

// dialer dials from a machine.
func dialer(h *simnet.Host) func(ctx context.Context, network, address string) (net.Conn, error) {
	return h.DialContext
}

// format makes the namespace, from the first machine.
func (w *World) format(ctx context.Context) error {
	how, err := w.nodes[0].config(&disks{own: w.nodes[0].disk, shared: w.shared}).Offline()
	if err == nil {
		_, err = offline.Format(ctx, how)
	}
	if err == nil {
		err = firstLevel(ctx, how.HA)
	}
	return err
}

// firstLevel has a new namespace begin at the first feature level, as the first release makes it:
// the operator raises it.
func firstLevel(ctx context.Context, ha *ensemble.HA) error {
	sess, err := ha.DialOnce(ctx, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	defer func() { _ = sess.Close() }()
	raw, _, err := sess.Get(ctx, ha.Path("format"))
	if err != nil {
		return err
	}
	f, _, err := ensemble.ParseFormat("", raw)
	if err != nil {
		return err
	}
	f.Format = levels.First
	if raw, err = json.Marshal(f); err == nil {
		_, err = sess.Set(ctx, ha.Path("format"), raw, -1)
	}
	return err
}

// Run has one shift after another, and ends the world.
func (w *World) Run() {
	if err := w.format(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	for _, n := range w.nodes {
		w.running.Go(n.run)
	}
	if err := w.Begin(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	before := w.Base(w.used)
	for shift := range max(w.cfg.Shifts, 1) {
		w.shift(shift, before)
	}
	for _, n := range w.nodes {
		if t := n.tree(); t != nil {
			w.failovers = max(w.failovers, int(t.Term())-1) //nolint:gosec // some hundreds
		}
	}
	w.end()
	w.lasted = time.Since(w.began)
}

// shift lets the clients work while things fail, then heals all, has the clients
// leave and all namenodes crash, and checks what is left each time.
func (w *World) shift(number int, before Used) {
	ctx, cancel := context.WithTimeout(w.t.Context(), w.cfg.Length)
	w.Do(ctx, func() {
		if !w.cfg.Calm {
			w.faults(ctx, number)
		}
	})
	cancel()
	w.log.note("world", "all is healed; checking")
	w.checkHealed(fmt.Sprintf("after the faults of shift %d", number+1))
	w.checkLeft(before)
	for _, n := range w.nodes {
		n.kill(crashfs.Strict)
	}
	for _, n := range w.nodes {
		n.start()
	}
	w.log.note("world", "all namenodes have crashed; checking again")
	w.checkHealed(fmt.Sprintf("after the crash of all in shift %d", number+1))
}

// end ends all that is in the world.
func (w *World) end() {
	w.End()
	for _, n := range w.nodes {
		n.stop()
		if open := n.disk.Handles(); open > 0 {
			w.truth.broken("%s has ended and left %d files open", n.name, open)
		}
	}
	if open := w.shared.Handles(); open > 0 {
		w.truth.broken("all namenodes have ended and left %d files of the shared folder open", open)
	}
	if w.store != nil {
		w.endStore()
	}
	w.zk.Close()
	for i := range w.cfg.ZooKeeper {
		w.net.Host(zkName(i)).Crash()
	}
	w.running.Wait()
	<-time.After(time.Minute) // for what ends by itself: idle connections, ZooKeeper clients
}

// history is what has happened, by the time since the work began.
type history struct {
	began  time.Time
	flood  func(who string, warnings int, what string) // somebody warns too often
	mu     sync.Mutex
	events []*event
	warns  map[string]*warnings
}

// warnings are those of one machine within one second.
type warnings struct{ second, number int }

// manyWarnings is how many warnings and errors a machine may log in a second: more
// are of a loop that does not pause.
const manyWarnings = 200

func (h *history) warned(who, what string) {
	h.mu.Lock()
	w := h.warns[who]
	if w == nil {
		w = new(warnings)
		h.warns[who] = w
	}
	if now := int(time.Since(h.began).Seconds()); now != w.second {
		*w = warnings{second: now}
	}
	w.number++
	many := w.number == manyWarnings
	h.mu.Unlock()
	if many {
		h.flood(who, manyWarnings, what)
	}
}

// maxHistory is how many events are kept.
const maxHistory = 200_000

func (h *history) note(who, format string, args ...any) {
	h.add(&event{Who: who, Kind: noteEvent, What: fmt.Sprintf(format, args...)})
}

// add dates an event and keeps it.
func (h *history) add(e *event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.events) >= maxHistory {
		h.events = h.events[maxHistory/2:]
	}
	e.At = time.Since(h.began).Seconds()
	h.events = append(h.events, e)
}

// begin keeps an event that lasts until done is called, with its error if it has one.
func (h *history) begin(e *event) (done func(error)) {
	h.add(e)
	return func(err error) {
		h.mu.Lock()
		defer h.mu.Unlock()
		e.End = max(time.Since(h.began).Seconds(), e.At)
		if err != nil {
			e.Error = err.Error()
		}
	}
}

// String is the whole history, a line for each event without length.
func (h *history) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var b strings.Builder
	for _, e := range h.events {
		if e.Kind != callEvent && e.Kind != faultEvent {
			fmt.Fprintf(&b, "%10.3fs %-6s %s\n", e.At, e.Who, e.What)
		}
	}
	return b.String()
}

// logger is a slog.Handler that writes to the history.
type logger struct {
	h     *history
	who   string
	attrs []slog.Attr
}

func (l *logger) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }

func (l *logger) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &logger{l.h, l.who, append(append([]slog.Attr{}, l.attrs...), attrs...)}
}

func (l *logger) WithGroup(string) slog.Handler { return l }

func (l *logger) Handle(_ context.Context, r slog.Record) error {
	var b strings.Builder
	b.WriteString(r.Message)
	one := func(a slog.Attr) bool { fmt.Fprintf(&b, " %s=%v", a.Key, a.Value); return true }
	for _, a := range l.attrs {
		one(a)
	}
	r.Attrs(one)
	kind := logEvent
	if r.Level >= slog.LevelWarn {
		kind = warnEvent
		l.h.warned(l.who, r.Message)
	}
	l.h.add(&event{Who: l.who, Kind: kind, What: r.Level.String() + ": " + b.String()})
	return nil
}
