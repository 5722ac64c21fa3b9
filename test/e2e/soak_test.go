package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fserror/wire"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
	"github.com/leasefs/leasefs/test/env"
	"github.com/leasefs/leasefs/test/env/size"
)

// TestSoak has honest, silent, half-open and greedy clients come and go in rounds.
// When those of a round are gone, and their limits have passed, the namenode uses
// no more than after the first round. LEASEFS_SOAK says how long new rounds are
// begun, such as 10m.
func TestSoak(t *testing.T) {
	t.Parallel()
	length := size.Of(0, 2*time.Minute)
	if s := os.Getenv("LEASEFS_SOAK"); s != "" {
		var err error
		if length, err = time.ParseDuration(s); err != nil {
			t.Fatalf("LEASEFS_SOAK: %v", err)
		}
	}
	ctx := deadline(t, length+5*time.Minute)
	s := &soak{namenode: startNamenode(ctx, t, "--pprof", "--soft-limit", "1s", "--hard-limit", "3m", "--cache-term", "1s", "--reap-rate", "10000", "--log-level", "error")}
	s.run(ctx, "chmod", "1777", "/")
	s.round(ctx, t, 0)
	first := s.rest(ctx, nil)
	t.Logf("after round 0: %v", first)
	began := time.Now()
	for i := 1; i == 1 || time.Since(began) < length; i++ {
		s.round(ctx, t, i)
		now := s.rest(ctx, first)
		t.Logf("after round %d, %.0f s: %v", i, time.Since(began).Seconds(), now)
	}
}

type soak struct{ *namenode }

// used is how much the namenode uses, by what.
type used map[string]float64

// soakBounds is how much more than after the first round there may be. What is not
// here is only told.
var soakBounds = used{
	"leasefs_watchers": 0, "leasefs_sessions_connected": 0, "leasefs_unfinished_bytes": 0, "leasefs_unsent_bytes": 0, "leasefs_cache_sessions": 0,
	"leasefs_cache_keys": 0, "leasefs_open_files": 0, "leasefs_leases": 0, "leasefs_granted_leases": 0, "leasefs_attached_files": 0,
	"leasefs_allocated_blocks": 0, "leasefs_detached_subtrees": 0, "leasefs_inodes": 0, "leasefs_tail_bytes": 0, "leasefs_panics_total": 0,
	"leasefs_connections": 2,       // the one that asks, and one of a command that has just ended
	"go_goroutines":       20,      // of these connections, and of work that is due just then
	"descriptors":         8,       // of these connections, and of segments
	"heap":                8 << 20, // pools, and what is filled up to a bound
	"folder":              2 << 20, // the last answers in the image
}

// What may grow for ten minutes and more, in bytes of the heap each.
const (
	soakEvent   = 512      // kept for watches; see watch.Config
	soakSession = 16 << 10 // answers of a client's last calls
)

// historyBytes is what the history of leases takes of the folder.
const historyBytes = "leasefs_lease_history_bytes"

// exceeds tells what of now is more than before and its bound.
func (now used) exceeds(before used) (list []string) {
	for what, bound := range soakBounds {
		if what == "heap" {
			bound += soakEvent*(now["leasefs_watch_events"]-before["leasefs_watch_events"]) +
				soakSession*(now["leasefs_retry_sessions"]-before["leasefs_retry_sessions"])
		}
		if now[what] > before[what]+bound {
			list = append(list, fmt.Sprintf("%s is %.0f, was %.0f", what, now[what], before[what]))
		}
	}
	slices.Sort(list)
	return list
}

// String is all of it on one line.
func (now used) String() string {
	var list []string
	for what, n := range now {
		list = append(list, fmt.Sprintf("%s %.0f", strings.TrimPrefix(what, "leasefs_"), n))
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}

// rest waits until the namenode uses no more than before, or for nil until nobody
// is connected and nothing is held, and returns what it uses then.
func (s *soak) rest(ctx context.Context, before used) (now used) {
	s.t.Helper()
	settled := before
	if before == nil {
		settled = used{"go_goroutines": 1e3, "descriptors": 1e3, "heap": 1e9, "folder": 1e9, "leasefs_inodes": 10}
	}
	late, cancel := context.WithTimeout(ctx, 5*time.Minute) // longer than any limit
	defer cancel()
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for {
		now = s.look(ctx)
		now["folder"] = 0 // has the journal of the round, until there are two images
		if len(now.exceeds(settled)) == 0 {
			s.run(ctx, "admin", "gc")
			s.run(ctx, "admin", "checkpoint")
			s.run(ctx, "admin", "checkpoint") // the journal before the last but one is not needed
			if now = s.look(ctx); len(now.exceeds(settled)) == 0 {
				return now
			}
		}
		select {
		case <-tick.C:
		case <-late.Done():
			stacks := s.page(ctx, "/debug/pprof/goroutine?debug=1") // the most frequent first
			s.t.Fatalf("the clients are gone, and their limits have passed: %s\n%.4000s", strings.Join(now.exceeds(settled), "; "), stacks)
		}
	}
}

// page is what the namenode answers under a path.
func (s *soak) page(ctx context.Context, path string) string {
	s.t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.http+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return string(body)
}

// look asks the namenode what it uses.
func (s *soak) look(ctx context.Context) used {
	s.t.Helper()
	for range 2 { // the pools keep what was put back for one collection more
		s.page(ctx, "/debug/pprof/heap?gc=1")
	}
	now := used{}
	for line := range strings.Lines(s.page(ctx, "/metrics")) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if name == "go_memstats_heap_alloc_bytes" {
			name = "heap"
		}
		if _, ok := soakBounds[name]; !ok && !slices.Contains([]string{"leasefs_watch_events", "leasefs_retry_sessions", "leasefs_garbage_bytes", historyBytes, "leasefs_txid"}, name) {
			continue
		}
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			s.t.Fatalf("/metrics: %q", line)
		}
		now[name] = n
	}
	if len(now) < len(soakBounds) {
		s.t.Fatalf("/metrics lacks some of %v: %v", soakBounds, now)
	}
	all, _ := folderBytes(s.t, s.data)
	// Garbage waits for its URLs to be over, and the history of leases has a bound of its own.
	now["folder"] = float64(all) - now["leasefs_garbage_bytes"] - now[historyBytes]
	now["descriptors"] = float64(s.descriptors())
	return now
}

// round has clients of each kind at once, and ends when all of them are gone.
func (s *soak) round(ctx context.Context, t *testing.T, i int) {
	t.Helper()
	ok := t.Run(fmt.Sprintf("round %d", i), func(t *testing.T) {
		var honest sync.WaitGroup
		errs := make(chan error, 100)
		dir := fmt.Sprintf("/round%d", i)
		if err := s.raw(t, "root", "127.0.0.1").mkdir(ctx, dir); err != nil {
			t.Fatal(err)
		}
		// They are there as long as the round is.
		s.silent(ctx, t, dir)
		s.halfOpen(ctx, t)
		s.greedy(ctx, t)
		for c := range 8 {
			honest.Go(func() { errs <- s.honest(ctx, fmt.Sprintf("%s/c%d", dir, c), c%2 == 0) })
		}
		honest.Wait()
		close(errs)
		for err := range errs {
			if err != nil {
				t.Error(err)
			}
		}
		s.run(ctx, "rm", "-r", dir)
	})
	if !ok {
		t.Fatal("the round failed")
	}
}

// honest does what clients do, and cleans up.
func (s *soak) honest(ctx context.Context, dir string, caching bool) (err error) {
	f, err := client.New(ctx, client.Config{Namenodes: []string{s.listen}, Client: strings.ReplaceAll(dir[1:], "/", "-"), Cache: caching, Drafts: caching,
		TTL: 2 * time.Minute}) // longer than a machine stalls
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	do := func(what string, e error) {
		if err == nil && e != nil {
			err = fmt.Errorf("%s in %s: %w", what, dir, e)
		}
	}
	do("mkdir", f.Mkdir(ctx, dir, 0o755))
	if err != nil {
		return err
	}
	w, e := f.Watch(ctx, dir, client.WatchOptions{Recursive: true})
	if e != nil {
		return e
	}
	defer w.Close()
	lease, e := f.Leases().Grant(ctx, 3*time.Minute, 0)
	if e != nil {
		return e
	}
	kept, e := f.Leases().KeepAlive(ctx, lease.ID)
	if e != nil {
		return e
	}
	defer kept.Stop()
	for i := 0; i < 20 && err == nil; i++ {
		path := fmt.Sprintf("%s/f%d", dir, i)
		out, e := f.Create(ctx, path)
		if do("create", e); e != nil {
			return err
		}
		_, e = io.WriteString(out, line(dir, i))
		do("write", e)
		do("flush", out.Flush(ctx))
		do("close", out.Close())
		out, e = f.Append(ctx, path)
		if do("append", e); e != nil {
			return err
		}
		_, e = io.WriteString(out, line(dir, i))
		do("write", e)
		do("close", out.Close())
		got, e := f.ReadFile(ctx, path)
		do("read", e)
		if want := line(dir, i) + line(dir, i); e == nil && string(got) != want {
			do("read", fmt.Errorf("%q instead of %q", got, want))
		}
		_, e = f.Stat(ctx, path)
		do("stat", e)
		do("rename", f.Rename(ctx, path, path+"x", false))
		do("attach", f.Leases().Attach(ctx, lease.ID, path+"x"))
	}
	// In blocks, of which two make way for the next content.
	for range 2 {
		do("write a large file", f.WriteFile(ctx, dir+"/large", make([]byte, 2<<20), client.WithOverwrite()))
	}
	_, e = f.ReadDir(ctx, dir)
	do("list", e)
	lock, e := f.Lock(ctx, dir+"/lock", client.LockOptions{Wait: time.Minute})
	if do("lock", e); e == nil {
		do("unlock", lock.Unlock(ctx))
	}
	for told := false; err == nil && !told; {
		events, e := w.Next()
		do("watch", e)
		told = slices.ContainsFunc(events, func(e client.Event) bool { return e.Path == dir+"/lock" })
	}
	e = f.Leases().Revoke(ctx, lease.ID)
	do("revoke", e)
	do("remove", f.RemoveAll(ctx, dir))
	return err
}

// soakRaw is a session of a test that speaks the wire contract, and a context that
// ends with the round.
type soakRaw struct {
	*env.Raw
	ctx context.Context //nolint:containedctx // of all that it does
}

// raw connects from an address of this machine.
func (s *soak) raw(t *testing.T, user, from string) soakRaw {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	r := env.RawAt(t, s.listen, "soak", grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
		return d.DialContext(ctx, "tcp", addr)
	}), grpc.WithStaticStreamWindowSize(64<<10))
	r.Who.User = user
	return soakRaw{r, t.Context()}
}

func (r soakRaw) mkdir(ctx context.Context, path string) error {
	_, err := r.NN.Mkdir(ctx, &pb.MkdirRequest{Call: r.Call(), Caller: r.Who, At: pb.At(path), Mode: 0o1777, HasMode: true})
	return err
}

// watch begins a watch of everything that nobody reads.
func (r soakRaw) watch() error {
	w, err := r.NN.Watch(r.ctx, &pb.WatchRequest{Caller: r.Who, Path: "/", Recursive: true})
	if err == nil {
		_, err = w.Recv()
	}
	return wire.FromStatus(err)
}

// cache begins a session that may keep what it reads, and that acknowledges nothing.
func (r soakRaw) cache() error {
	c, err := r.NN.Session(r.ctx)
	if err == nil {
		err = c.Send(&pb.SessionRequest{Kind: &pb.SessionRequest_Hello{Hello: &pb.Hello{Caller: r.Who, Cache: true, Stream: 1}}})
	}
	if err == nil {
		_, err = c.Recv()
	}
	if err == nil {
		err = c.Send(&pb.SessionRequest{Kind: &pb.SessionRequest_CacheRenew{CacheRenew: &pb.CacheRenew{Seq: 1}}})
	}
	if err == nil {
		_, err = c.Recv()
	}
	return wire.FromStatus(err)
}

// silent has clients that begin something and say nothing more: watchers, caching
// readers, writers, waiters, holders of leases.
func (s *soak) silent(ctx context.Context, t *testing.T, dir string) {
	t.Helper()
	for i := range 8 {
		r := s.raw(t, "silent", "127.0.0.2")
		for range 8 {
			if err := r.watch(); err != nil {
				t.Fatal(err)
			}
		}
		if err := r.cache(); err != nil {
			t.Fatal(err)
		}
		if _, err := r.NN.Stat(ctx, &pb.StatRequest{Caller: r.Who, At: pb.At(dir), Cache: true}); err != nil {
			t.Fatal(err)
		}
		w := r.Create(fmt.Sprintf("%s/silent%d", dir, i))
		if err := r.Flush(w, 0, "left"); err != nil {
			t.Fatal(err)
		}
		g, err := r.NN.GrantLease(ctx, &pb.GrantLeaseRequest{Call: r.Call(), Caller: r.Who, TtlMs: 1000})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.NN.AttachLease(ctx, &pb.AttachLeaseRequest{Call: r.Call(), Caller: r.Who, Id: g.GetId(), At: pb.At(fmt.Sprintf("%s/silent%d", dir, i))}); err != nil {
			t.Fatal(err)
		}
	}
}

// halfOpen leaves connections on which a message is begun, and does not close them
// before the namenode does or the test ends.
func (s *soak) halfOpen(ctx context.Context, t *testing.T) {
	t.Helper()
	const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
	settings := "\x00\x00\x00\x04\x00\x00\x00\x00\x00"
	for _, c := range []struct{ addr, sent string }{
		{s.listen, ""},
		{s.listen, preface[:10]},
		{s.listen, preface},
		{s.listen, preface + settings},
		{s.listen, preface + settings + "\x00\x10\x00\x01\x04\x00\x00\x00\x01half of a header"},
		{s.http, ""},
		{s.http, "GET /metr"},
		{s.http, "GET /metrics HTTP/1.1\r\nHost: x\r\n"},
		{s.http, "GET /metrics HTTP/1.0\r\n\r\n"}, // and does not read the answer
	} {
		for range 10 {
			conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", c.addr)
			if err != nil {
				t.Fatal(err)
			}
			s.t.Cleanup(func() { _ = conn.Close() }) // the namenode has
			if _, err := io.WriteString(conn, c.sent); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// greedy takes as many watches, leases and caching sessions as it gets.
func (s *soak) greedy(ctx context.Context, t *testing.T) {
	t.Helper()
	var refused error
	for watches := 0; refused == nil && watches < size.Of(500, 10_000); {
		r := s.raw(t, "greedy", "127.0.0.3")
		for range 500 { // a connection
			if refused = r.watch(); refused != nil {
				break
			}
			watches++
		}
	}
	if size.Full && !errors.Is(refused, fserror.Retry) {
		t.Errorf("a user took 10,000 watches, or: %v", refused)
	}
	r := s.raw(t, "greedy", "127.0.0.3")
	for range size.Of(500, 5000) {
		if _, err := r.NN.GrantLease(ctx, &pb.GrantLeaseRequest{Call: r.CallInTurn(), Caller: r.Who, TtlMs: 1000}); err != nil {
			t.Fatal(err)
		}
	}
	for range size.Of(50, 500) {
		other := s.raw(t, "greedy", "127.0.0.3")
		if err := other.cache(); err != nil {
			t.Fatal(err)
		}
	}
}
