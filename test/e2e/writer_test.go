package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/test/env/size"
)

func TestKeepOpenAndClose(t *testing.T) {
	t.Parallel()
	ctx := deadline(t, time.Minute)
	n := startNamenode(ctx, t)
	if got := n.write(ctx, "half", "--client", "job-7", "create", "--keep-open", "--ack", "/part"); got != "4\n" {
		t.Errorf("acknowledged %q", got)
	}
	if got := n.run(ctx, "stat", "--json", "/part"); !strings.Contains(got, `"open":true,"holder":"job-7"`) {
		t.Errorf("%s", got)
	}
	for _, args := range [][]string{{"close", "/part"}, {"append", "/part"}} {
		line := n.fails(ctx, 5, "x", append([]string{"--client", "job-8"}, args...)...)
		if !strings.HasPrefix(line, "leasefs: "+args[0]+" /part: held by job-7 (host ") {
			t.Errorf("%q", line)
		}
	}
	// The same client name of another user is another client.
	n.fails(ctx, 8, "", "--user", "somebody", "--client", "job-7", "close", "/part")
	n.run(ctx, "chmod", "0666", "/part")
	n.fails(ctx, 5, "", "--user", "somebody", "--client", "job-7", "close", "/part")
	if got := n.run(ctx, "--client", "job-7", "close", "/part"); got != "4\n" {
		t.Errorf("close printed %q", got)
	}
	if got := n.run(ctx, "stat", "--json", "/part"); !strings.Contains(got, `"open":false,"holder":null`) {
		t.Errorf("%s", got)
	}
	// Closing what is closed already is no error.
	if got := n.run(ctx, "--client", "job-7", "close", "/part"); got != "4\n" {
		t.Errorf("close printed %q", got)
	}
	n.fails(ctx, 3, "", "--client", "job-7", "close", "/nothing")

	// Left open again, the same name may also write on, wherever it was.
	n.write(ctx, " and", "--client", "job-7", "append", "--keep-open", "/part")
	n.crash(ctx)
	// A namenode that has just started waits a moment for the holder to come back.
	n.write(ctx, " half", "--client", "job-7", "append", "--wait", "30s", "--at", "8", "/part")
	if got := n.run(ctx, "cat", "/part"); got != "half and half" {
		t.Errorf("%q", got)
	}
}

func TestAppendAt(t *testing.T) {
	t.Parallel()
	ctx := deadline(t, time.Minute)
	n := startNamenode(ctx, t)
	n.write(ctx, "12345", "create", "/f")
	for _, at := range []string{"0", "4", "6", "1000000000000"} {
		line := n.fails(ctx, 1, "x", "append", "--at", at, "/f")
		if !strings.Contains(line, "/f") || !strings.Contains(line, "5") || !strings.Contains(line, at) {
			t.Errorf("--at %s: does not name path and both lengths: %q", at, line)
		}
	}
	if e := jsonError(t, n.fails(ctx, 1, "x", "--json", "append", "--at", "4", "/f")); e["kind"] != "NOT_AT_END" || e["path"] != "/f" {
		t.Errorf("%v", e)
	}
	n.write(ctx, "67", "append", "--at", "5", "/f")
	n.fails(ctx, 3, "x", "append", "--at", "0", "/g")
	n.fails(ctx, 1, "x", "append", "--create", "--at", "1", "/g")
	n.write(ctx, "x", "append", "--create", "--at", "0", "/g")
	if got := n.run(ctx, "cat", "/f", "/g"); got != "1234567x" {
		t.Errorf("%q", got)
	}
	if got := n.run(ctx, "find", "/", "--open"); got != "" {
		t.Errorf("left open: %s", got)
	}
}

// killedWriting feeds a writer, and kills it once something of that is durable;
// false if it ended before that by itself.
func killedWriting(ctx context.Context, w *process, text string) bool {
	w.t.Helper()
	go func() { _, _ = io.WriteString(w.stdin, text) }() // the kill breaks it
	eventually(ctx, w.t, "something is acknowledged", func() bool { return w.ended() || w.acked() > 0 })
	if w.ended() {
		return false
	}
	w.kill()
	return true
}

// A writer that is killed again and again, and begins again with its whole input,
// writes each byte once. So does one that keeps to the numbers that were printed:
// when one is missing the error has it.
func TestAppendExactlyOnce(t *testing.T) {
	t.Parallel()
	ctx := deadline(t, 4*time.Minute)
	n := startNamenode(ctx, t)
	var b strings.Builder
	for i := range 40_000 {
		fmt.Fprintf(&b, "line %d\n", i)
	}
	input := b.String()
	const kills = 12
	t.Run("resume", func(t *testing.T) {
		t.Parallel()
		for i := 0; ; i++ {
			// Some of the input comes, then the process dies at some moment of its flushes.
			w := n.begin(ctx, nil, "--client", "job-1", "append", "--create", "--resume", "--compare", "--ack", "--flush", "line", "--wait", "1m", "/resumed")
			if i == kills {
				w.feed(input)
				w.eof()
				w.ends(ctx, 0)
				break
			}
			if !killedWriting(ctx, w, input[:len(input)*(i+1)/(kills+1)]) {
				t.Fatalf("it ended: %s", w.err.String())
			}
		}
		if got := n.run(ctx, "cat", "/resumed"); got != input {
			t.Errorf("%d bytes were written, %d are there, or others", len(input), len(got))
		}
		e := jsonError(t, n.fails(ctx, 1, "line 0\nline 2\n", "--json", "append", "--resume", "--compare", "/resumed"))
		if e["kind"] != "NOT_AT_END" || e["path"] != "/resumed" || e["length"] != float64(len(input)) {
			t.Errorf("another input: %v", e)
		}
		n.fails(ctx, 1, "line 0\n", "append", "--resume", "/resumed")
		n.fails(ctx, 2, "", "append", "--resume", "--at", "5", "/resumed")
		n.fails(ctx, 2, "", "append", "--compare", "/resumed")
	})
	t.Run("at", func(t *testing.T) {
		t.Parallel()
		at, behind := int64(0), 0
		for i := 0; ; i++ {
			w := n.begin(ctx, nil, "--json", "--client", "job-2", "append", "--create", "--at", strconv.FormatInt(at, 10), "--ack", "--flush", "line", "--wait", "1m", "/at")
			if i < kills {
				if killedWriting(ctx, w, input[at:max(at+1, int64(len(input)*(i+1)/(kills+1)))]) {
					at = max(at, w.acked())
					continue
				}
			} else {
				_, _ = io.WriteString(w.stdin, input[at:]) // it may be refused
				_ = w.stdin.Close()
			}
			if w.wait(ctx) == 0 {
				break
			}
			e := jsonError(t, w.err.String())
			length, ok := e["length"].(float64)
			if e["kind"] != "NOT_AT_END" || !ok || int64(length) <= at {
				t.Fatalf("%v", e)
			}
			at, behind = int64(length), behind+1
		}
		t.Logf("in %d of %d crashes a number was missing", behind, kills)
		if got := n.run(ctx, "cat", "/at"); got != input {
			t.Errorf("%d bytes were written, %d are there, or others", len(input), len(got))
		}
	})
}

func TestTailFollows(t *testing.T) {
	t.Parallel()
	ctx := deadline(t, time.Minute)
	n := startNamenode(ctx, t)
	w := n.begin(ctx, nil, "append", "--create", "--flush", "line", "--ack", "/log")
	w.feed("first\n")
	w.acksUpTo(ctx, 6)
	f := n.begin(ctx, reader(""), "tail", "-f", "/log")
	want := "first\n"
	follow := func(line string) {
		t.Helper()
		want += line
		f.prints(ctx, f.out, line, func(s string) bool { return len(s) >= len(want) })
		if got := f.out.String(); got != want {
			t.Fatalf("tail -f printed %q, want %q", got, want)
		}
	}
	follow("")
	for i := range 20 {
		line := "line " + strconv.Itoa(i) + "\n"
		w.feed(line)
		follow(line)
	}
	// Not a line yet, so not flushed, so not seen.
	w.feed("half a")
	w.feed(" line\n")
	follow("half a line\n")
	// Over a rename, a new writer, and a killed namenode.
	n.run(ctx, "mv", "/log", "/log.1")
	w.feed("renamed\n")
	follow("renamed\n")
	w.eof()
	w.ends(ctx, 0)
	n.write(ctx, "another writer\n", "append", "/log.1")
	follow("another writer\n")
	n.crash(ctx)
	n.write(ctx, "after the crash\n", "append", "/log.1")
	follow("after the crash\n")
	if f.ended() {
		t.Fatalf("tail -f ended by itself: %s", f.err)
	}
	f.signal(syscall.SIGINT)
	f.ends(ctx, 130)
	if got := f.out.String(); got != want {
		t.Errorf("%q", got)
	}

	last := n.begin(ctx, nil, "append", "--flush", "line", "--ack", "/log.1")
	last.feed("one before the last\n")
	last.acksUpTo(ctx, 1)
	f = n.begin(ctx, reader(""), "tail", "-f", "-n", "1", "--until-closed", "/log.1")
	f.prints(ctx, f.out, "one before the last", func(s string) bool { return s == "one before the last\n" })
	last.feed("the last\n")
	f.prints(ctx, f.out, "the last", func(s string) bool { return s == "one before the last\nthe last\n" })
	last.eof()
	last.ends(ctx, 0)
	f.ends(ctx, 0)
}

// A reader sees what is flushed and no more: each length that it finds is one
// that was reported to the writer as durable, and what it saw is never taken back,
// whoever is killed.
func TestReadersSeeFlushedBytesOnly(t *testing.T) {
	t.Parallel()
	ctx := deadline(t, size.Of(2*time.Minute, 10*time.Minute))
	n := startNamenode(ctx, t, "--soft-limit", "500ms")
	rnd := rand.New(rand.NewPCG(1, 2))
	for _, tc := range []struct {
		flush string
		chunk int
	}{{"line", 300}, {"25ms", 3000}, {"200ms", 20_000}, {"line", 100_000}} {
		path := "/" + tc.flush + strconv.Itoa(tc.chunk)
		w := n.begin(ctx, nil, "--client", "writer", "create", "--flush", tc.flush, "--ack", path)
		var mu sync.Mutex
		var fed strings.Builder
		// Some writes for each look, or it would be gigabytes on a slow machine.
		turns := make(chan struct{}, 20)
		stop, done := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			tick := time.NewTicker(3 * time.Millisecond)
			defer tick.Stop()
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				case <-turns:
				}
				b := make([]byte, rnd.IntN(tc.chunk))
				for j := range b {
					b[j] = byte('a' + (i+j)%26)
				}
				if i%3 != 0 {
					b = append(b, '\n')
				}
				mu.Lock()
				fed.Write(b)
				mu.Unlock()
				if _, err := w.stdin.Write(b); err != nil {
					return
				}
				<-tick.C
			}
		}()
		more := func() {
			for len(turns) < cap(turns) {
				turns <- struct{}{} // nobody else sends
			}
		}
		more()
		w.acksUpTo(ctx, 1)
		var seen []int64 // lengths
		look := func() {
			t.Helper()
			more()
			r := n.try(ctx, "", "cat", path)
			if r.code != 0 {
				t.Fatalf("cat: %d, %s", r.code, r.err)
			}
			mu.Lock()
			defer mu.Unlock()
			if !strings.HasPrefix(fed.String(), r.out) {
				t.Fatalf("--flush %s: the %d bytes that a reader saw are not what was written", tc.flush, len(r.out))
			}
			seen = append(seen, int64(len(r.out)))
		}
		for range size.Of(10, 100) {
			look()
		}
		n.crash(ctx)
		for range 5 {
			look()
		}
		w.kill()
		close(stop)
		<-done
		look()
		n.run(ctx, "lease", "recover", "--wait", "30s", path)
		look()
		end := seen[len(seen)-1]
		acks := w.acks()
		// The last flush may have happened without its line being printed.
		if end > w.acked() {
			acks = append(acks, end)
		}
		before := int64(0)
		for _, size := range seen {
			if size < before {
				t.Fatalf("--flush %s: after %d bytes a reader saw %d", tc.flush, before, size)
			}
			before = size
			if _, ok := slices.BinarySearch(acks, size); size > 0 && !ok {
				t.Fatalf("--flush %s: a reader saw %d bytes, which no flush made durable (%d flushes)", tc.flush, size, len(acks))
			}
		}
		if before < w.acked() {
			t.Fatalf("--flush %s: %d bytes were acknowledged, %d are there", tc.flush, w.acked(), before)
		}
		t.Logf("--flush %s: %d reads, %d flushes, %d of %d bytes flushed at the kill", tc.flush, len(seen), len(acks), before, fed.Len())
	}
}

// What was never flushed is not seen by anybody, however long it waits.
func TestUnflushedBytesAreNotSeen(t *testing.T) {
	t.Parallel()
	ctx := deadline(t, time.Minute)
	n := startNamenode(ctx, t)
	w := n.begin(ctx, nil, "create", "--flush", "block", "--ack", "/f")
	w.feed(strings.Repeat("x", 100_000))
	eventually(ctx, t, "the file is there", func() bool { return n.try(ctx, "", "stat", "/f").code == 0 })
	l := n.begin(ctx, nil, "create", "--flush", "line", "--ack", "/line")
	l.feed("a line\nand no end")
	l.acksUpTo(ctx, 7)
	for range 20 {
		if got := n.run(ctx, "cat", "/f"); got != "" {
			t.Fatalf("%d bytes seen", len(got))
		}
		if got := n.run(ctx, "cat", "/line"); got != "a line\n" {
			t.Fatalf("%q", got)
		}
	}
	for _, p := range []*process{w, l} {
		p.eof()
		p.ends(ctx, 0)
	}
	if got := n.run(ctx, "cat", "/line", "/f"); got != "a line\nand no end"+strings.Repeat("x", 100_000) {
		t.Errorf("%d bytes", len(got))
	}
}

func TestInterruptedWriter(t *testing.T) {
	t.Parallel()
	ctx := deadline(t, time.Minute)
	n := startNamenode(ctx, t)
	for sig, code := range map[syscall.Signal]int{syscall.SIGINT: 130, syscall.SIGTERM: 143, syscall.SIGHUP: 129} {
		path := "/" + strconv.Itoa(code)
		w := n.begin(ctx, nil, "append", "--create", "--flush", "line", "--ack", path)
		w.feed("flushed\nnot flushed")
		w.acksUpTo(ctx, 8)
		w.signal(sig)
		w.ends(ctx, code)
		oneLine(t, w.err.String())
		if got := w.err.String(); !strings.Contains(got, path) || !strings.Contains(got, "8 bytes") {
			t.Errorf("%v: does not name path and length: %q", sig, got)
		}
		// The lease is free at once: no --wait, another client.
		n.write(ctx, "next\n", "--client", "next", "append", "--at", "8", path)
		if got := n.run(ctx, "cat", path); got != "flushed\nnext\n" {
			t.Errorf("%v: %q", sig, got)
		}
	}
	if got := n.run(ctx, "lease", "ls"); strings.Contains(got, "live") {
		t.Errorf("a lease is left:\n%s", got)
	}
}

// A reader of --ack that goes away ends the writer, and frees the file.
func TestBrokenPipes(t *testing.T) {
	t.Parallel()
	ctx := deadline(t, time.Minute)
	n := startNamenode(ctx, t)
	sh := start(ctx, t, spec{
		argv:  []string{"bash", "-c", `set -o pipefail; (for i in $(seq 100000); do echo "line $i"; done) | "$0" append --create --flush line --ack /log | head -n 1`, leasefs},
		env:   []string{"LEASEFS_NAMENODE=" + n.listen},
		stdin: reader(""),
	})
	if sh.wait(ctx) == 0 {
		t.Error("the writer did not notice")
	}
	n.write(ctx, "next\n", "append", "/log")
	got := n.run(ctx, "cat", "/log")
	if !strings.HasPrefix(got, "line 1\n") || !strings.HasSuffix(got, "\nnext\n") {
		t.Errorf("%q", tailOf(got))
	}
}

// The library in this process against the same namenode: errors keep their kind
// over the wire.
func TestLibraryErrors(t *testing.T) {
	t.Parallel()
	ctx := deadline(t, time.Minute)
	n := startNamenode(ctx, t)
	fsys := n.client(ctx)
	w := n.begin(ctx, nil, "--client", "other", "create", "--flush", "line", "--ack", "/f")
	w.feed("x\n")
	w.acksUpTo(ctx, 2)
	_, err := fsys.Append(ctx, "/f")
	var e *fserror.Error
	if !errors.Is(err, fserror.Held) || !errors.As(err, &e) || e.Holder == nil || e.Holder.Client != "other" || e.Holder.PID != int64(w.cmd.Process.Pid) {
		t.Fatalf("%v", err)
	}
	if _, err := fsys.Recover(ctx, "/f", true); err != nil {
		t.Fatal(err)
	}
	w.ends(ctx, 7)
	own, err := fsys.Append(ctx, "/f")
	if err != nil {
		t.Fatal(err)
	}
	n.run(ctx, "rm", "/f")
	select {
	case <-own.Context().Done():
	case <-ctx.Done():
		t.Fatal("the writer was not told")
	}
	if cause := context.Cause(own.Context()); !errors.Is(cause, fserror.LeaseLost) {
		t.Errorf("%v", cause)
	}
	if err := own.Flush(ctx); err != nil && !errors.Is(err, fserror.LeaseLost) {
		t.Errorf("%v", err)
	}
}
