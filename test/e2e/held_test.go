package e2e_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/leasefs/leasefs/test/env/size"
)

// heldLine is the shape of the line that a second writer gets, from the command
// line contract.
func heldLine(op, path, holder string, pid int) *regexp.Regexp {
	const d = `(?:\d+h)?(?:\d+m)?\d+(?:\.\d)?(?:s|ms)`
	return regexp.MustCompile(fmt.Sprintf(
		`^leasefs: %s %s: held by %s \(host \S+, pid %d\) for %s, idle %s; can be taken in %s \(leasefs lease recover --force %s takes it now\)\n$`,
		op, path, holder, pid, d, d, d, path))
}

func TestSecondWriterIsTold(t *testing.T) {
	t.Parallel()
	ctx := deadline(t, time.Minute)
	n := startNamenode(ctx, t)
	n.run(ctx, "mkdir", "/logs")
	a := n.begin(ctx, nil, "--client", "ingest-3", "append", "--create", "--flush", "line", "--ack", "/logs/a")
	a.feed("one\n")
	a.acksUpTo(ctx, 4)

	for _, args := range [][]string{{"append", "/logs/a"}, {"create", "--overwrite", "/logs/a"}} {
		line := n.fails(ctx, 5, "must not get in\n", args...)
		if want := heldLine(args[0], "/logs/a", "ingest-3", a.cmd.Process.Pid); !want.MatchString(line) {
			t.Errorf("%q does not match\n%s", line, want)
		}
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	line := n.fails(ctx, 5, "", "append", "/logs/a")
	if !strings.Contains(line, "(host "+host+",") {
		t.Errorf("%q does not name the host %s", line, host)
	}

	e := jsonError(t, n.fails(ctx, 5, "", "--json", "append", "/logs/a"))
	keys := slices.Sorted(maps.Keys(e))
	if want := []string{"holder", "idle_ms", "kind", "length", "message", "path", "retry_after_ms", "takeable_in_ms"}; !slices.Equal(keys, want) {
		t.Errorf("keys %v, want %v", keys, want)
	}
	idle, _ := e["idle_ms"].(float64)
	left, _ := e["takeable_in_ms"].(float64)
	if e["kind"] != "HELD" || e["path"] != "/logs/a" || e["holder"] != "ingest-3" || e["retry_after_ms"] != nil || e["length"] != nil ||
		idle < 0 || left <= 0 || idle+left < 59_000 || idle+left > 61_000 {
		t.Errorf("%v", e)
	}
	if text, _ := e["message"].(string); !heldLine("append", "/logs/a", "ingest-3", a.cmd.Process.Pid).MatchString("leasefs: " + text + "\n") {
		t.Errorf("message %q", text)
	}

	// --wait gets the file when the first ends, and not before.
	b := n.begin(ctx, reader("two\n"), "--client", "ingest-4", "append", "--wait", "50s", "--ack", "/logs/a")
	a.feed("still mine\n")
	a.acksUpTo(ctx, 15)
	if b.ended() {
		t.Fatalf("the second writer did not wait: %s", b.err)
	}
	a.eof()
	a.ends(ctx, 0)
	closed := time.Now()
	b.ends(ctx, 0)
	t.Logf("the waiting writer ended %v after the first", time.Since(closed).Round(time.Millisecond))
	if got := n.run(ctx, "cat", "/logs/a"); got != "one\nstill mine\ntwo\n" {
		t.Errorf("%q", got)
	}

	// A wait that is over in vain.
	c := n.begin(ctx, nil, "--client", "ingest-5", "append", "--ack", "/logs/a")
	c.feed("three\n")
	c.acksUpTo(ctx, 25)
	n.fails(ctx, 5, "", "append", "--wait", "100ms", "/logs/a")

	// A waiter that is interrupted waits no more, and takes nothing.
	d := n.begin(ctx, reader("never\n"), "append", "--wait", "50s", "/logs/a")
	eventually(ctx, t, "d is connected", func() bool { return strings.Contains(n.run(ctx, "status", "--json"), `"sessions":2`) })
	d.signal(syscall.SIGINT)
	d.ends(ctx, 130)
	c.eof()
	c.ends(ctx, 0)
	if got := n.run(ctx, "cat", "/logs/a"); got != "one\nstill mine\ntwo\nthree\n" {
		t.Errorf("%q", got)
	}
}

// feedUntilGone writes numbered lines until the writer is gone.
func feedUntilGone(w *process) (fed *strings.Builder, done chan struct{}) {
	fed, done = new(strings.Builder), make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			line := fmt.Sprintf("line %d of the first writer\n", i)
			fed.WriteString(line)
			if _, err := w.stdin.Write([]byte(line)); err != nil {
				return
			}
		}
	}()
	return fed, done
}

func TestKilledWriterIsReplaced(t *testing.T) {
	t.Parallel()
	ctx := deadline(t, 3*time.Minute)
	const soft = 20 * time.Second // a writer that a busy machine holds up for less is not dead
	n := startNamenode(ctx, t, "--soft-limit", soft.String())
	var all []time.Duration
	for i := range size.Of(2, 5) {
		path := fmt.Sprintf("/log%d", i)
		a := n.begin(ctx, nil, "--client", "first", "create", "--flush", "line", "--ack", path)
		fed, done := feedUntilGone(a)
		a.acksUpTo(ctx, 10_000)
		b := n.begin(ctx, nil, "--client", "second", "append", "--wait", "1m", "--flush", "line", "--ack", path)
		b.feed("the second\n")
		eventually(ctx, t, "b waits", func() bool { return strings.Contains(n.run(ctx, "status", "--json"), `"sessions":2`) })
		a.kill()
		killed := time.Now()
		<-done
		b.acksUpTo(ctx, a.acked()+1)
		took := time.Since(killed)
		all = append(all, took)
		b.eof()
		b.ends(ctx, 0)
		// Not before the dead one's lease allows: it wrote all the time, and each
		// write renews. That it is not never, b's limit says.
		if took < soft/4 {
			t.Errorf("replaced after %v, the soft limit is %v", took, soft)
		}
		got := n.run(ctx, "cat", path)
		first, ok := strings.CutSuffix(got, "the second\n")
		if !ok || int64(len(first)) < a.acked() || !strings.HasPrefix(fed.String(), first) || !strings.HasSuffix(first, "\n") {
			t.Errorf("%d bytes were acknowledged to the first writer, %d are there: %q", a.acked(), len(first), tailOf(got))
		}
	}
	slices.Sort(all)
	t.Logf("soft limit %v; from kill -9 to the second writer's first durable line: %v", soft, all)
}

// A killed client that comes back under its name gets its file at once.
func TestKilledWriterComesBack(t *testing.T) {
	t.Parallel()
	ctx := deadline(t, time.Minute)
	n := startNamenode(ctx, t)
	a := n.begin(ctx, nil, "--client", "ingest", "create", "--ack", "/log")
	a.feed("one\n")
	a.acksUpTo(ctx, 4)
	line := n.fails(ctx, 5, "", "--client", "ingest", "append", "/log")
	if !strings.Contains(line, "held by ingest") {
		t.Errorf("%q", line)
	}
	a.kill()
	began := time.Now()
	// The connection's end may take a moment to be seen.
	n.write(ctx, "two\n", "--client", "ingest", "append", "--wait", "40s", "--at", "4", "/log") // the soft limit is 60 s
	t.Logf("had it back in %v", time.Since(began).Round(time.Millisecond))
	if got := n.run(ctx, "cat", "/log"); got != "one\ntwo\n" {
		t.Errorf("%q", got)
	}
}

func TestStoppedWriterIsFenced(t *testing.T) {
	t.Parallel()
	ctx := deadline(t, time.Minute)
	n := startNamenode(ctx, t, "--soft-limit", "1s")
	for _, tc := range []struct {
		name   string
		closed bool // by the new holder, before the old one wakes
	}{{"new holder still writes", false}, {"new holder is done", true}} {
		path := "/" + strings.ReplaceAll(tc.name, " ", "-")
		old := n.begin(ctx, nil, "--client", "sleeper", "create", "--flush", "line", "--ack", path)
		old.feed("early\n")
		old.acksUpTo(ctx, 6)
		old.stop(ctx)
		old.feed("late: must not get in\n")
		next := n.begin(ctx, nil, "--client", "successor", "append", "--wait", "30s", "--flush", "line", "--ack", path)
		next.feed("next\n")
		next.acksUpTo(ctx, 11)
		if tc.closed {
			next.eof()
			next.ends(ctx, 0)
		}
		old.signal(syscall.SIGCONT)
		old.ends(ctx, 7)
		line := old.err.String()
		oneLine(t, line)
		if !strings.HasPrefix(line, "leasefs: create "+path+": ") || !strings.Contains(line, "successor") {
			t.Errorf("%s: does not name command, path and new holder: %q", tc.name, line)
		}
		if old.acked() != 6 {
			t.Errorf("%s: the old writer was told of %v", tc.name, old.acks())
		}
		want := "early\nnext\n"
		if !tc.closed {
			next.feed("more\n")
			next.acksUpTo(ctx, 16)
			next.eof()
			next.ends(ctx, 0)
			want += "more\n"
		}
		if got := n.run(ctx, "cat", path); got != want {
			t.Errorf("%s: %q", tc.name, got)
		}
	}
}

// A writer whose file is recovered, deleted or replaced is told so, and changes
// nothing any more.
func TestFencedBy(t *testing.T) {
	t.Parallel()
	ctx := deadline(t, time.Minute)
	n := startNamenode(ctx, t)
	for _, tc := range []struct {
		name string
		do   func(ctx context.Context, path string)
		want string
	}{
		{"recover", func(ctx context.Context, path string) { n.run(ctx, "lease", "recover", "--force", path) }, "early\n"},
		{"steal", func(ctx context.Context, path string) {
			n.write(ctx, "new\n", "create", "--overwrite", "--steal", path)
		}, "new\n"},
		{"delete", func(ctx context.Context, path string) {
			n.run(ctx, "rm", path)
			n.write(ctx, "", "create", path)
		}, ""},
	} {
		path := "/" + tc.name
		old := n.begin(ctx, nil, "--client", "old", "create", "--flush", "line", "--ack", path)
		old.feed("early\n")
		old.acksUpTo(ctx, 6)
		old.stop(ctx)
		old.feed("late\n")
		tc.do(ctx, path)
		old.signal(syscall.SIGCONT)
		old.ends(ctx, 7)
		oneLine(t, old.err.String())
		if got := n.run(ctx, "cat", path); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
}

// A writer that has nothing to write is told at once, not with its next renewal,
// which is about half a soft limit away, and so longer than the test waits.
func TestIdleWriterIsToldAtOnce(t *testing.T) {
	t.Parallel()
	ctx := deadline(t, time.Minute)
	n := startNamenode(ctx, t, "--soft-limit", "20m")
	w := n.begin(ctx, nil, "create", "--flush", "line", "--ack", "/f")
	w.feed("x\n")
	w.acksUpTo(ctx, 2)
	n.run(ctx, "lease", "recover", "--force", "/f")
	w.ends(ctx, 7)
	oneLine(t, w.err.String())
}
