package scenarios_test

import (
	"context"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fserror/wire"
	"github.com/leasefs/leasefs/namenode"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
	"github.com/leasefs/leasefs/test/env"
)

func caching(c *client.Config) { c.Cache = true }

// cacheTerm is short, so that a change waits only a moment for a reader that is
// gone: also where the namenode's clock stands still, the clients' and the
// timers do not.
const cacheTerm = 300 * time.Millisecond

func shortTerm(c *namenode.Config) { c.CacheTerm = cacheTerm }

// overTerm is more than a term and its margin.
const overTerm = 2 * cacheTerm

// warm asks for a path until the answer comes from the cache: a term must have
// begun, and what the namenode did last must be durable.
func warm(t *testing.T, b *client.FS, wire *env.Wire, path string) {
	t.Helper()
	env.Eventually(t, path+" is answered from the cache", func() bool {
		before := wire.Count("Stat")
		if _, err := b.Stat(t.Context(), path); err != nil {
			wantKind(t, err, fserror.NotFound)
		}
		return wire.Count("Stat") == before
	})
}

// metric reads one figure off the namenode's page.
func metric(t *testing.T, nn *env.Namenode, name string) float64 {
	t.Helper()
	for line := range strings.Lines(nn.Metrics(t)) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), name+" "); ok {
			n, err := strconv.ParseFloat(value, 64)
			must(t, err)
			return n
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}

func lengthOf(t *testing.T, fs *client.FS, path string) int64 {
	t.Helper()
	i, err := fs.Stat(t.Context(), path)
	must(t, err)
	return i.Length
}

// TestCachedStatMakesNoCalls: a reader that polls makes a handful of calls.
func TestCachedStatMakesNoCalls(t *testing.T) {
	nn := env.Start(t)
	a := nn.Client(t)
	b, wire := nn.Wired(t, caching)
	must(t, a.WriteFile(t.Context(), "/d/e/f", []byte("x"), client.WithParents()))
	warm(t, b, wire, "/d/e/f")
	before := wire.Total()
	for range 100_000 {
		i, err := b.Stat(t.Context(), "/d/e/f")
		if err != nil || i.Length != 1 {
			t.Fatalf("stat: %v, %v", i, err)
		}
	}
	if calls := wire.Total() - before; calls > 20 {
		t.Fatalf("100,000 cached stats made %d calls", calls)
	}
	if st := b.Stats().Cache; st.Hits < 100_000 {
		t.Fatalf("%d hits", st.Hits)
	}
}

// TestScenario55CachedIsNeverStale: B has cached a name, attributes, a missing
// name and a block list. A changes each, in every way there is; after A's call
// B never answers the old one.
func TestScenario55CachedIsNeverStale(t *testing.T) {
	nn := env.Start(t)
	ctx := t.Context()
	a := nn.Client(t)
	b, wire := nn.Wired(t, caching)
	must(t, a.MkdirAll(ctx, "/d/e", 0o755))
	must(t, a.WriteFile(ctx, "/d/e/f", []byte("one")))
	must(t, a.WriteFile(ctx, "/d/e/g", []byte("other")))
	must(t, a.Symlink(ctx, "/d/e/f", "/link"))
	lease := grant(t, a, time.Hour)
	attachAll := func() error {
		for _, name := range []string{"one", "two"} {
			if err := a.WriteFile(ctx, "/moved/e/"+name, []byte("x"), client.WithLease(lease)); err != nil {
				return err
			}
		}
		return nil
	}

	missing := func(path string) func() error {
		return func() error {
			if _, err := b.Stat(ctx, path); fserror.KindOf(err) != fserror.NotFound {
				return fmt.Errorf("stat %s: %w, want not found", path, err)
			}
			return nil
		}
	}
	length := func(path string, want int64) func() error {
		return func() error {
			if i, err := b.Stat(ctx, path); err != nil || i.Length != want {
				return fmt.Errorf("stat %s: %+v, %w; want length %d", path, i, err, want)
			}
			return nil
		}
	}
	content := func(path, want string) func() error {
		return func() error {
			if got, err := b.ReadFile(ctx, path); err != nil || string(got) != want {
				return fmt.Errorf("read %s: %q, %w; want %q", path, got, err, want)
			}
			return nil
		}
	}
	all := func(checks ...func() error) func() error {
		return func() error {
			for _, check := range checks {
				if err := check(); err != nil {
					return err
				}
			}
			return nil
		}
	}
	for _, step := range []struct {
		name   string
		cached []string
		change func() error
		after  func() error
	}{
		{"chmod", []string{"/d/e/f"}, func() error { return a.Chmod(ctx, "/d/e/f", 0o600) }, func() error {
			if i, err := b.Stat(ctx, "/d/e/f"); err != nil || i.Mode().Perm() != 0o600 {
				return fmt.Errorf("%v, %w", i, err)
			}
			return nil
		}},
		{"a new name", []string{"/d/e/new", "/d/e"}, func() error { return a.WriteFile(ctx, "/d/e/new", []byte("12345")) }, all(length("/d/e/new", 5), func() error {
			if i, err := b.Stat(ctx, "/d/e"); err != nil || i.Entries != 3 {
				return fmt.Errorf("%+v, %w", i, err)
			}
			return nil
		})},
		{"overwrite", []string{"/d/e/f", "/link"}, func() error {
			return a.WriteFile(ctx, "/d/e/f", []byte("longer"), client.WithOverwrite())
		}, all(length("/d/e/f", 6), length("/link", 6), content("/link", "longer"))},
		{"append and close", []string{"/d/e/f"}, func() error { return appendText(ctx, a, "/d/e/f", "!") }, all(length("/d/e/f", 7), content("/d/e/f", "longer!"))},
		{"truncate", []string{"/d/e/f"}, func() error { return a.Truncate(ctx, "/d/e/f", 2) }, all(length("/d/e/f", 2), content("/d/e/f", "lo"))},
		{"rename", []string{"/d/e/f", "/d/e/h"}, func() error { return a.Rename(ctx, "/d/e/f", "/d/e/h", false) }, all(missing("/d/e/f"), length("/d/e/h", 2), missing("/link"))},
		{"rename over", []string{"/d/e/h", "/d/e/g"}, func() error { return a.Rename(ctx, "/d/e/h", "/d/e/g", true) }, all(missing("/d/e/h"), length("/d/e/g", 2), content("/d/e/g", "lo"))},
		{"rename of a directory above", []string{"/d/e/g", "/moved/e/g"}, func() error { return a.Rename(ctx, "/d", "/moved", false) }, all(missing("/d/e/g"), length("/moved/e/g", 2))},
		{"a link that leads elsewhere", []string{"/link"}, func() error {
			if err := a.Remove(ctx, "/link"); err != nil {
				return err
			}
			return a.Symlink(ctx, "/moved/e/new", "/link")
		}, length("/link", 5)},
		{"concat", []string{"/moved/e/g", "/moved/e/new"}, func() error { return a.Concat(ctx, "/moved/e/g", "/moved/e/new") }, all(length("/moved/e/g", 7), missing("/moved/e/new"))},
		{"what is attached is made", []string{"/moved/e", "/moved/e/one"}, attachAll, all(length("/moved/e/one", 1), length("/moved/e/two", 1))},
		{"the end of a lease", []string{"/moved/e/one", "/moved/e/two", "/moved/e"}, func() error { return a.Leases().Revoke(ctx, lease) }, all(missing("/moved/e/one"), missing("/moved/e/two"), func() error {
			if i, err := b.Stat(ctx, "/moved/e"); err != nil || i.Entries != 1 {
				return fmt.Errorf("%+v, %w", i, err)
			}
			return nil
		})},
		{"rm", []string{"/moved/e/g"}, func() error { return a.Remove(ctx, "/moved/e/g") }, missing("/moved/e/g")},
		{"rm -r", []string{"/moved/e", "/moved"}, func() error { return a.RemoveAll(ctx, "/moved") }, all(missing("/moved"), missing("/moved/e"))},
	} {
		for _, path := range step.cached {
			warm(t, b, wire, path)
			_, _ = b.ReadFile(ctx, path) // that it is cached is all
		}
		if err := step.change(); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		if err := step.after(); err != nil {
			t.Fatalf("after %s: %v", step.name, err)
		}
	}
}

func appendText(ctx context.Context, a *client.FS, path, text string) error {
	w, err := a.Append(ctx, path)
	if err != nil {
		return err
	}
	if _, err := w.Write([]byte(text)); err != nil {
		return err
	}
	return w.Close()
}

// TestScenario55OwnChangesAreSeen: what a client has cached it sees changed by
// its own calls, at once.
func TestScenario55OwnChangesAreSeen(t *testing.T) {
	nn := env.Start(t)
	b, wire := nn.Wired(t, caching)
	ctx := t.Context()
	for i := range 200 {
		path := fmt.Sprintf("/f%d", i%3)
		_, err := b.Stat(ctx, path)
		if i < 3 {
			wantKind(t, err, fserror.NotFound)
		}
		if i%10 == 0 {
			warm(t, b, wire, path)
		}
		must(t, b.WriteFile(ctx, path, make([]byte, i+1), client.WithOverwrite()))
		if got := lengthOf(t, b, path); got != int64(i+1) {
			t.Fatalf("length %d after a write of %d", got, i+1)
		}
	}
	// A reply that is lost may have changed something all the same.
	warm(t, b, wire, "/f0")
	wire.LoseReply("SetAttr")
	must(t, b.Chmod(ctx, "/f0", 0o640))
	i, err := b.Stat(ctx, "/f0")
	must(t, err)
	if i.Mode().Perm() != fs.FileMode(0o640) {
		t.Fatalf("mode %v after chmod 640", i.Mode())
	}
}

// TestScenario55OwnChangeSeenElsewhere: one goroutine of B changes what B has
// cached, and the line to B is slow. Once anybody has seen the change, no other
// goroutine of B answers what was before it, though the call has not returned.
func TestScenario55OwnChangeSeenElsewhere(t *testing.T) {
	nn, _ := frozen(t)
	ctx := t.Context()
	a := nn.Client(t)
	b, wire := nn.Wired(t, caching)
	must(t, a.WriteFile(ctx, "/f", nil))
	must(t, a.Chmod(ctx, "/f", 0o600))
	warm(t, b, wire, "/f")
	wire.Hold(env.ToClient)
	changed := make(chan error, 1)
	go func() { changed <- b.Chmod(ctx, "/f", 0o640) }()
	env.Eventually(t, "the change waits, or is seen", func() bool {
		return metric(t, nn, "leasefs_cache_waits_total") > 0 || stat(t, a, "/f").Mode().Perm() == 0o640
	})
	if stat(t, a, "/f").Mode().Perm() == 0o640 {
		if got := stat(t, b, "/f").Mode().Perm(); got != 0o640 {
			t.Fatalf("mode %o is answered, and another has seen 640", got)
		}
	}
	wire.Release()
	must(t, <-changed)
	if got := stat(t, b, "/f").Mode().Perm(); got != 0o640 {
		t.Fatalf("mode %o after chmod 640", got)
	}
}

// TestScenario55ReaderIsGone: B has cached and its line is cut. A's call waits
// for the term, and then continues; B answers nothing old afterwards.
func TestScenario55ReaderIsGone(t *testing.T) {
	nn := env.Start(t, shortTerm)
	ctx := t.Context()
	a := nn.Client(t)
	b, wire := nn.Wired(t, caching)
	must(t, a.WriteFile(ctx, "/f", []byte("x")))
	warm(t, b, wire, "/f")
	wire.Cut()
	must(t, a.WriteFile(ctx, "/f", []byte("longer"), client.WithOverwrite()))
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	if i, err := b.Stat(short, "/f"); err == nil && i.Length != 6 {
		t.Fatalf("the old length %d after the change", i.Length)
	}
	wire.Mend()
	if got := lengthOf(t, b, "/f"); got != 6 {
		t.Fatalf("length %d", got)
	}
}

// TestWhoLeavesIsNotWaitedFor: a client that is closed keeps nothing, and answers
// nothing from what it kept. A change of that waits for nobody.
func TestWhoLeavesIsNotWaitedFor(t *testing.T) {
	nn := env.Start(t, func(c *namenode.Config) { c.CacheTerm = time.Hour })
	ctx := t.Context()
	a := nn.Client(t)
	told := make(chan client.Revocation, 64)
	b, wire := nn.Wired(t, caching, func(c *client.Config) { c.OnRevoke = func(r client.Revocation) { told <- r } })
	must(t, a.WriteFile(ctx, "/f", []byte("x")))
	warm(t, b, wire, "/f")
	for len(told) > 0 {
		<-told
	}
	must(t, b.Close())
	if len(told) == 0 || !(<-told).All {
		t.Fatal("who keeps something for the client was not told to drop it")
	}
	if _, err := b.Stat(ctx, "/f"); fserror.KindOf(err) != fserror.Closed {
		t.Fatalf("answered after the end: %v", err)
	}
	must(t, a.Chmod(ctx, "/f", 0o600))
	if n := metric(t, nn, "leasefs_cache_waits_total"); n != 0 {
		t.Fatalf("%v waits for one that has left", n)
	}
	env.Eventually(t, "it is forgotten", func() bool { return metric(t, nn, "leasefs_cache_sessions") == 0 })
}

// TestScenario55aOvertakenReply: a reply is on its way while what it says is
// revoked. It is used, and not cached. A parent that is renamed or made
// unreadable: the cached path no longer answers.
func TestScenario55aOvertakenReply(t *testing.T) {
	nn := env.Start(t)
	ctx := t.Context()
	a := nn.Client(t)
	b, wire := nn.Wired(t, caching)
	must(t, a.WriteFile(ctx, "/d/f", []byte("x"), client.WithParents()))
	must(t, a.WriteFile(ctx, "/warm", nil))
	warm(t, b, wire, "/warm")
	wire.Set(func(method string, _ any, send func() error) error {
		err := send()
		if method == "Stat" {
			wire.Set(nil)
			must(t, a.WriteFile(ctx, "/d/f", []byte("longer"), client.WithOverwrite()))
		}
		return err
	})
	if got := lengthOf(t, b, "/d/f"); got != 1 {
		t.Fatalf("length %d in the reply that was on its way", got)
	}
	if got := lengthOf(t, b, "/d/f"); got != 6 {
		t.Fatalf("length %d: the overtaken reply was cached", got)
	}

	c, cwire := nn.Wired(t, caching, func(c *client.Config) { c.User = "ann" })
	warm(t, c, cwire, "/d/f")
	must(t, a.Chmod(ctx, "/d", 0o700))
	_, err := c.Stat(ctx, "/d/f")
	wantKind(t, err, fserror.Permission)
	must(t, a.Chmod(ctx, "/d", 0o755))
	warm(t, c, cwire, "/d/f")
	must(t, a.Rename(ctx, "/d", "/e", false))
	_, err = c.Stat(ctx, "/d/f")
	wantKind(t, err, fserror.NotFound)
}

// TestScenario56DataWithoutLease: while a revocation is outstanding a third
// reader gets the data, and no lease on it.
func TestScenario56DataWithoutLease(t *testing.T) {
	nn, clk := frozen(t, shortTerm)
	ctx := t.Context()
	a := nn.Client(t)
	b, bwire := nn.Wired(t, caching)
	c, cwire := nn.Wired(t, caching)
	must(t, a.WriteFile(ctx, "/f", []byte("x")))
	must(t, a.WriteFile(ctx, "/g", nil))
	warm(t, b, bwire, "/f")
	warm(t, c, cwire, "/g")
	bwire.Hold(env.ToNamenode) // neither acknowledgements nor renewals come through
	changed := make(chan error, 1)
	go func() { changed <- a.WriteFile(ctx, "/f", []byte("longer"), client.WithOverwrite()) }()
	env.Eventually(t, "the change waits for b", func() bool { return metric(t, nn, "leasefs_cache_revocations_total") > 0 })
	for range 3 {
		before := cwire.Count("Stat")
		if got := lengthOf(t, c, "/f"); got != 1 {
			t.Fatalf("length %d while the change waits", got)
		}
		if cwire.Count("Stat") != before+1 {
			t.Fatal("answered from the cache while the change waits")
		}
	}
	select {
	case err := <-changed:
		t.Fatalf("the change did not wait: %v", err)
	default:
	}
	clk.Advance(overTerm)
	must(t, <-changed)
	if got := lengthOf(t, c, "/f"); got != 6 {
		t.Fatalf("length %d after the change", got)
	}
}

// TestScenario57Restart: what the namenode's former life lent is waited for:
// until its holder has come back, or for a term.
func TestScenario57Restart(t *testing.T) {
	nn, clk := frozen(t, shortTerm)
	ctx := t.Context()
	a := nn.Client(t)
	b, bwire := nn.Wired(t, caching)
	must(t, a.WriteFile(ctx, "/f", []byte("x")))
	warm(t, b, bwire, "/f")
	bwire.Cut()
	nn.Restart(t)
	changed := make(chan error, 1)
	go func() { changed <- a.WriteFile(ctx, "/f", []byte("longer"), client.WithOverwrite()) }()
	env.Eventually(t, "the change waits", func() bool { return metric(t, nn, "leasefs_cache_waits_total") > 0 })
	if got := lengthOf(t, a, "/f"); got != 1 {
		t.Fatalf("length %d while the change waits", got)
	}
	clk.Advance(overTerm)
	must(t, <-changed)
	bwire.Mend()
	if got := lengthOf(t, b, "/f"); got != 6 {
		t.Fatalf("length %d after the change", got)
	}

	// It comes back: nothing is waited for.
	warm(t, b, bwire, "/f")
	nn.Restart(t)
	must(t, a.WriteFile(ctx, "/f", []byte("again"), client.WithOverwrite()))
	if got := lengthOf(t, b, "/f"); got != 5 {
		t.Fatalf("length %d after the change", got)
	}
}

// TestScenario56Penalty: who does not acknowledge costs one term, and then gets
// nothing for a while, so it costs nothing more. All of it shows in the metrics.
func TestScenario56Penalty(t *testing.T) {
	nn, clk := frozen(t, shortTerm)
	ctx := t.Context()
	a := nn.Client(t)
	b, wire := nn.Wired(t, caching)
	figure := func(name string) float64 { return metric(t, nn, "leasefs_cache_"+name) }
	want := func(when, name string, want float64) {
		t.Helper()
		if got := figure(name); got != want {
			t.Fatalf("%s leasefs_cache_%s is %v, want %v", when, name, got, want)
		}
	}
	must(t, a.WriteFile(ctx, "/f", []byte("x")))
	warm(t, b, wire, "/f")
	want("one caches:", "sessions", 1)
	if figure("grants_total") < 1 || figure("keys") < 3 {
		t.Fatalf("%v grants of %v keys", figure("grants_total"), figure("keys"))
	}
	want("nothing is changed:", "revocations_total", 0)
	want("nothing is changed:", "wait_seconds_count", 0)

	// One that answers costs a moment.
	must(t, a.Chmod(ctx, "/f", 0o600))
	want("one answered:", "revocations_total", 1)
	want("one answered:", "waits_total", 1)
	want("one answered:", "wait_seconds_count", 1)
	want("one answered:", "waits_by_term_total", 0)
	warm(t, b, wire, "/f")

	wire.Hold(env.ToNamenode)
	changed := make(chan error, 1)
	go func() { changed <- a.Chmod(ctx, "/f", 0o640) }()
	env.Eventually(t, "the change waits for b", func() bool { return figure("waits_total") == 2 })
	clk.Advance(overTerm)
	must(t, <-changed)
	want("one did not answer:", "waits_by_term_total", 1)
	want("one did not answer:", "lost_total", 1)
	if seconds := figure("wait_seconds_sum"); seconds < overTerm.Seconds() {
		t.Fatalf("%v s of waiting", seconds)
	}

	wire.Release()
	env.Eventually(t, "b has dropped all", func() bool { return b.Stats().Cache.Entries == 0 })
	refused := figure("refused_total")
	for i := range fs.FileMode(5) { // b reads all the time, and nobody waits for it
		before := wire.Count("Stat")
		if got := stat(t, b, "/f").Mode().Perm(); i > 0 && got != 0o600+i-1 {
			t.Fatalf("mode %o", got)
		}
		if wire.Count("Stat") != before+1 {
			t.Fatal("answered from the cache in the penalty")
		}
		must(t, a.Chmod(ctx, "/f", 0o600+i))
		clk.Advance(cacheTerm)
	}
	want("in the penalty:", "waits_total", 2)
	if figure("refused_total") < refused+5 {
		t.Fatal("refusals are not counted")
	}
	clk.Advance(10 * cacheTerm)
	warm(t, b, wire, "/f")
	if st := b.Stats().Cache; st.Hits < 3 || st.Misses < 5 || st.Revocations < 3 || st.Stored < 3 {
		t.Fatalf("the client's figures: %+v", st)
	}
}

// TestLateHello: the Hello of a stream that its client has given up since comes
// after that of the next. It must not pass for the session's stream: all that
// the client has cached would count as dropped.
func TestLateHello(t *testing.T) {
	nn := env.Start(t)
	r := nn.Raw(t, "c")
	hello := func(number uint64) error {
		s, err := r.NN.Session(t.Context())
		must(t, err)
		must(t, s.Send(&pb.SessionRequest{Kind: &pb.SessionRequest_Hello{Hello: &pb.Hello{Caller: r.Who, Cache: true, Stream: number}}}))
		_, err = s.Recv()
		return wire.FromStatus(err)
	}
	must(t, hello(2))
	wantKind(t, hello(1), fserror.Unavailable)
	must(t, hello(3))
}

// TestOpenFilesAreNotCached: their length changes with each flush.
func TestOpenFilesAreNotCached(t *testing.T) {
	nn := env.Start(t)
	ctx := t.Context()
	a := nn.Client(t)
	b, wire := nn.Wired(t, caching)
	must(t, a.WriteFile(ctx, "/f", nil))
	warm(t, b, wire, "/f")
	w, err := a.Append(ctx, "/f")
	must(t, err)
	for i := range 5 {
		_, err = w.Write([]byte("x"))
		must(t, err)
		must(t, w.Flush(t.Context()))
		if got := lengthOf(t, b, "/f"); got != int64(i+1) {
			t.Fatalf("length %d after %d flushed bytes", got, i+1)
		}
	}
	must(t, w.Close())
	warm(t, b, wire, "/f")
}

// TestCacheOff: a namenode that lends nothing.
func TestCacheOff(t *testing.T) {
	nn := env.Start(t, func(c *namenode.Config) { c.CacheTerm = -1 })
	b, wire := nn.Wired(t, caching)
	must(t, b.WriteFile(t.Context(), "/f", nil))
	for range 3 {
		before := wire.Count("Stat")
		_ = lengthOf(t, b, "/f")
		if wire.Count("Stat") != before+1 {
			t.Fatal("answered from a cache that is off")
		}
	}
}

// TestLeaseEndsForWhoCaches: when a lease with many files ends, each reader that has cached
// them gives up three things only: the lease, the entries of the directory and the right to
// make files there. From then on it finds none of the files.
func TestLeaseEndsForWhoCaches(t *testing.T) {
	t.Parallel()
	const files = 200
	nn := env.Start(t, func(c *namenode.Config) { c.ReapRate = 10 })
	ctx := t.Context()
	a := nn.Client(t)
	b, wire := nn.Wired(t, caching)
	must(t, a.MkdirAll(ctx, "/d", 0o755))
	lease := grant(t, a, time.Hour)
	attachMany(t, a, "/d", "f", files, lease)
	path := func(i int) string { return fmt.Sprintf("/d/f%03d", i) }
	warm(t, b, wire, "/d")
	_, err := b.ReadDir(ctx, "/d") // most are kept from the listing
	must(t, err)
	for i := range files {
		warm(t, b, wire, path(i))
	}
	before := metric(t, nn, "leasefs_cache_revocations_total")
	must(t, a.Leases().Revoke(ctx, lease))
	for i := range files {
		gone(t, b, path(i))
	}
	if entries := entries(t, b, "/d"); entries != 0 {
		t.Errorf("the reader sees %d entries", entries)
	}
	if n := metric(t, nn, "leasefs_cache_revocations_total") - before; n > 3 {
		t.Errorf("%v revocations", n)
	}
	// A name can be reused at once.
	must(t, a.WriteFile(ctx, path(7), []byte("new")))
	if got := lengthOf(t, b, path(7)); got != 3 {
		t.Errorf("the new file has %d bytes", got)
	}
}
