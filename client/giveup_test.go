package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/namecall"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// stuck is a block store that takes requests and does not answer, but for those
// that pass lets through.
type stuck struct {
	http.RoundTripper
	pass func(r *http.Request) bool
	at   chan struct{} // has an element for each that it holds
}

func (s *stuck) RoundTrip(r *http.Request) (*http.Response, error) {
	if s.pass != nil && s.pass(r) {
		return s.RoundTripper.RoundTrip(r)
	}
	s.at <- struct{}{}
	<-r.Context().Done()
	return nil, r.Context().Err()
}

func newStuck(f *fake) (*stuck, func(*Config)) {
	s := &stuck{RoundTripper: f, at: make(chan struct{}, 100)}
	return s, func(c *Config) { c.HTTPClient = &http.Client{Transport: s}; c.Timeout = time.Minute }
}

// refuse makes the namenode unreachable for some calls.
func (f *fake) refuse(methods ...string) {
	f.set(func() {
		f.before = func(method string, _ any) error {
			for _, m := range methods {
				if m == method {
					return fserror.New(fserror.Unavailable, "", "", "gone")
				}
			}
			return nil
		}
	})
}

// quick fails the test if fn takes about as long as the Timeout, which is a minute.
func quick(t *testing.T, fn func() error) error {
	t.Helper()
	began := time.Now()
	err := fn()
	if d := time.Since(began); d > 40*time.Second {
		t.Errorf("it took %s", d)
	}
	return err
}

// A flush whose reply was lost is not over because a repetition is refused: the
// same bytes go at the same place until one is answered.
func TestLostFlushThenRefused(t *testing.T) {
	for _, refusal := range []*fserror.Error{
		{Kind: fserror.NoSpace, Message: "the disk is full"},
		{Kind: fserror.Retry, Reason: namecall.TailBudget},
		{Kind: fserror.Retry, Message: "safe mode"},
	} {
		t.Run(refusal.Error(), func(t *testing.T) {
			f := newFake()
			fs := start(t, f, func(c *Config) { c.Timeout = 300 * time.Millisecond })
			w := mustCreate(t, fs, "/a")
			_, err := w.Write([]byte("one"))
			check(t, err)
			f.set(func() {
				f.after = func(method string, _ any) error {
					if method != "AppendTail" {
						return nil
					}
					f.set(func() {
						f.after = nil
						f.before = func(method string, _ any) error {
							if method == "AppendTail" {
								return refusal
							}
							return nil
						}
					})
					return lostReply
				}
			})
			if err := w.Flush(t.Context()); err == nil {
				t.Fatal("a flush that nobody confirmed succeeded")
			}
			_, err = w.Write([]byte("two"))
			check(t, err)
			if err := w.Flush(t.Context()); err == nil {
				t.Fatal("a flush that was refused succeeded")
			}
			f.set(func() { f.before = nil })
			check(t, w.Flush(t.Context()))
			check(t, w.Close())
			if got := string(f.content("/a")); got != "onetwo" {
				t.Fatalf("content %q", got)
			}
		})
	}
}

// Closing that is given up still ends the file at what was flushed.
func TestCloseGivenUpEndsTheFile(t *testing.T) {
	f := newFake()
	s, cfg := newStuck(f)
	fs := start(t, f, cfg)
	w := mustCreate(t, fs, "/a")
	_, err := w.Write([]byte("flushed"))
	check(t, err)
	check(t, w.Flush(t.Context()))
	_, err = w.Write(noise(100 << 10))
	check(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-s.at
		cancel()
	}()
	wantKind(t, quick(t, func() error { return w.CloseContext(ctx) }), fserror.Canceled)
	if f.isOpen("/a") || string(f.content("/a")) != "flushed" || !errors.Is(context.Cause(w.Context()), fserror.Closed) {
		t.Fatalf("open %v, %d bytes, %v", f.isOpen("/a"), len(f.content("/a")), context.Cause(w.Context()))
	}
}

// With no namenode, giving up takes seconds, not the Timeout, and Context says
// that nobody confirmed it.
func TestGivingUpIsBounded(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(context.Context, *Writer) error{
		"close": func(ctx context.Context, w *Writer) error { return w.CloseContext(ctx) },
		"abort": func(ctx context.Context, w *Writer) error { return w.AbortContext(ctx) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake()
			fs := start(t, f, func(c *Config) { c.Timeout = time.Minute })
			w := mustCreate(t, fs, "/a")
			_, err := w.Write([]byte("x"))
			check(t, err)
			f.refuse("Close", "GetFile", "Recover")
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if err := quick(t, func() error { return end(ctx, w) }); err == nil {
				t.Error("nobody confirmed it, and it succeeded")
			}
			if cause := context.Cause(w.Context()); cause == nil || errors.Is(cause, fserror.Closed) {
				t.Errorf("cause %v", cause)
			}
		})
	}
}

// A Write that waits for the block store ends with its context.
func TestWriteContext(t *testing.T) {
	f := newFake()
	s, cfg := newStuck(f)
	fs := start(t, f, cfg, func(c *Config) { c.WriteAhead = 1 })
	w := mustCreate(t, fs, "/a")
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-s.at
		await(t, "the Write waits for room", func() bool { return w.Length() == 2*256<<10 })
		cancel()
	}()
	n, err := w.WriteContext(ctx, noise(3<<20))
	wantKind(t, err, fserror.Canceled)
	if n != 2*256<<10 {
		t.Errorf("%d bytes were taken", n)
	}
	check(t, w.Abort())
}

// A Writer has one block under way, and more while Config.Ahead has room for them: each is
// given back once, whether its block was stored or given up.
func TestAhead(t *testing.T) {
	f := newFake()
	s, cfg := newStuck(f)
	var room, taken, given atomic.Int64
	ahead := func(c *Config) {
		c.WriteAhead = 3
		c.Ahead = func() func() {
			if room.Add(-1) < 0 {
				room.Add(1)
				return nil
			}
			taken.Add(1)
			return func() { room.Add(1); given.Add(1) }
		}
	}
	fs := start(t, f, cfg, ahead)
	for _, more := range []int64{0, 1, 5} {
		room.Store(more)
		taken.Store(0)
		given.Store(0)
		w := mustCreate(t, fs, fmt.Sprintf("/stuck%d", more))
		ctx, cancel := context.WithCancel(t.Context())
		want := (2 + min(more, 2)) * 256 << 10 // the last one is full, and not under way
		go func() {
			<-s.at
			await(t, "the Write waits for room", func() bool { return w.Length() == want })
			cancel()
		}()
		if n, err := w.WriteContext(ctx, noise(3<<20)); int64(n) != want {
			t.Errorf("with room for %d more, %d bytes were taken, want %d: %v", more, n, want, err)
		}
		check(t, w.Abort())
		if taken.Load() != min(more, 2) || given.Load() != taken.Load() {
			t.Errorf("of room for %d, %d was taken and %d given back", more, taken.Load(), given.Load())
		}
	}

	room.Store(1)
	taken.Store(0)
	given.Store(0)
	fs = start(t, newFake(), ahead)
	w := mustCreate(t, fs, "/a")
	_, err := w.Write(noise(3 << 20))
	check(t, err)
	check(t, w.Close())
	if given.Load() != taken.Load() || room.Load() != 1 {
		t.Errorf("%d was taken and %d given back", taken.Load(), given.Load())
	}
}

// FS.Close waits for a Close of a Writer that is under way.
func TestCloseWaitsForAWriterBeingClosed(t *testing.T) {
	f := newFake()
	fs := start(t, f)
	w := mustCreate(t, fs, "/a")
	_, err := w.Write([]byte("x"))
	check(t, err)
	closing, goOn := make(chan struct{}), make(chan struct{})
	f.set(func() {
		f.before = func(method string, _ any) error {
			if method == "Close" {
				close(closing)
				<-goOn
			}
			return nil
		}
	})
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := w.Close(); err != nil {
			t.Errorf("the writer: %v", err)
		}
	})
	<-closing
	ended := make(chan struct{})
	wg.Go(func() {
		defer close(ended)
		if err := fs.Close(); err != nil {
			t.Errorf("the client: %v", err)
		}
	})
	select {
	case <-ended:
		t.Error("the client was closed before its writer")
	case <-time.After(200 * time.Millisecond):
	}
	close(goOn)
	wg.Wait()
	if f.isOpen("/a") || string(f.content("/a")) != "x" {
		t.Error("the file is not closed, or not whole")
	}
}

// FS.Close does not wait for a Close that ends with the file still open, to be asked for again, and
// tells of it.
func TestCloseEndsAKeptWriter(t *testing.T) {
	f := newFake()
	s, cfg := newStuck(f)
	fs := start(t, f, cfg)
	w := mustCreate(t, fs, "/a")
	_, err := w.Write(noise(100 << 10))
	check(t, err)
	ctx, giveUp := context.WithCancelCause(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { wantKind(t, lowLevel{fs}.CloseOrKeep(ctx, w), fserror.Deadline) })
	<-s.at
	ended := make(chan struct{})
	wg.Go(func() {
		defer close(ended)
		if err := fs.Close(); err == nil {
			t.Error("the client was closed without a word of the file that it left open")
		}
	})
	for fs.mayOpen("", "") == nil {
		runtime.Gosched()
	}
	giveUp(context.DeadlineExceeded)
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Fatal("it waits for a Close that nobody makes any more")
	}
	wg.Wait()
}

type trip func(*http.Request) (*http.Response, error)

func (f trip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A block that a reader waits for is not broken off because another reader of
// the same Reader needs room.
func TestReadersDoNotBreakOffEachOther(t *testing.T) {
	f := newFake()
	want := noise(10 * 256 << 10)
	first, goOn := make(chan struct{}), make(chan struct{})
	var block atomic.Pointer[string] // the first block's URL, once it is to be held
	s := &stuck{RoundTripper: f, pass: func(r *http.Request) bool {
		if p := block.Load(); p != nil && r.URL.Path == *p && block.CompareAndSwap(p, nil) {
			close(first)
			select {
			case <-goOn:
			case <-r.Context().Done():
			}
		}
		return true
	}}
	fs := start(t, f, func(c *Config) { c.HTTPClient, c.ReadAhead = &http.Client{Transport: s}, 1 })
	check(t, fs.WriteFile(t.Context(), "/a", want))
	f.set(func() {
		url := fmt.Sprint("/get/", f.files["/a"].blocks[0].Seq)
		block.Store(&url)
	})
	r := mustOpen(t, fs, "/a")
	got := make([]byte, 256<<10)
	done := make(chan error, 1)
	go func() {
		_, err := r.readAt(t.Context(), got, 0, true)
		done <- err
	}()
	<-first
	p := make([]byte, 256<<10)
	for i := 4; i < 8; i++ {
		_, err := r.readAt(t.Context(), p, int64(i*len(p)), true)
		check(t, err)
	}
	close(goOn)
	if err := <-done; err != nil || !bytes.Equal(got, want[:len(got)]) {
		t.Fatal(err)
	}
}

// A file that was truncated and begun again is told of at once, not when it has
// outgrown what was read of it.
func TestWaitBeyondTellsOfATruncation(t *testing.T) {
	f := newFake()
	fs := start(t, f)
	check(t, fs.WriteFile(t.Context(), "/a", []byte("abcdef")))
	r := mustOpen(t, fs, "/a")
	f.set(func() {
		file := f.files["/a"]
		file.tail, file.open = []byte("x"), &pb.WriterId{Inode: file.inode, Epoch: 99}
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	n, open, err := r.WaitBeyond(ctx, 6)
	if err != nil || n != 1 || !open {
		t.Fatalf("length %d, open %v, %v", n, open, err)
	}
	// Who asks for more than was ever there waits for it.
	waited, stop := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer stop()
	_, _, err = r.WaitBeyond(waited, 1<<40)
	wantKind(t, err, fserror.Deadline)
	f.fence("/a")
	f.set(func() { f.changed.Broadcast() })
}
