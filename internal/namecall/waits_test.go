package namecall

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasefs/leasefs/internal/fserror"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

var (
	safeMode = &fserror.Error{Kind: fserror.Retry, Message: "the namenode is in safe mode", RetryAfter: 20 * time.Millisecond}
	overload = &fserror.Error{Kind: fserror.Retry, Message: "overloaded", RetryAfter: 20 * time.Millisecond}
)

// namenodes returns those of a configuration that names one.
func namenodes(t *testing.T, change ...func(*Config)) *Namenodes {
	t.Helper()
	cfg := Config{Namenodes: []string{"nn"}, Caller: &pb.Caller{User: "tester"}, Timeout: time.Minute, Attempt: time.Second, Conns: 1}
	for _, f := range change {
		f(&cfg)
	}
	s, err := New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// It is told after a second, though the pause is longer, and of one cause by one
// call in half a minute.
func TestWhenAndHowOftenIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var at []time.Duration
		var last Waiting
		s := namenodes(t, func(c *Config) {
			c.OnWait = func(w Waiting) { at, last = append(at, time.Since(began)), w }
		})
		w := s.Waits("mkdir", "/a")
		ctx := t.Context()
		pause := func(w *Waits, d time.Duration, e *fserror.Error) {
			if !w.Again(ctx, d, e, true) {
				t.Fatal("broken off")
			}
		}
		pause(&w, 400*time.Millisecond, safeMode)
		if len(at) != 0 {
			t.Errorf("told at %s", at)
		}
		pause(&w, 5*time.Second, safeMode)
		if len(at) != 1 || at[0] != time.Second || time.Since(began) != 5400*time.Millisecond {
			t.Errorf("told at %s; slept for %s", at, time.Since(began))
		}
		pause(&w, time.Minute, safeMode) // once a call
		other := s.Waits("mkdir", "/b")
		pause(&other, 2*time.Second, safeMode)
		if len(at) != 2 || at[1] != 66400*time.Millisecond {
			t.Errorf("told at %s", at)
		}
		third := s.Waits("mkdir", "/c")
		pause(&third, 2*time.Second, safeMode) // another call has told
		if len(at) != 2 {
			t.Errorf("told at %s", at)
		}
		// Without an end the causes are bounded.
		odd := s.Waits("mkdir", "/d")
		for i := range 3 * maxWaitCauses {
			pause(&odd, time.Second, &fserror.Error{Kind: fserror.Retry, Message: strings.Repeat("x", i+1)})
		}
		if len(odd.told) > maxWaitCauses || len(s.notes.told) > maxWaitCauses {
			t.Errorf("%d and %d causes are kept", len(odd.told), len(s.notes.told))
		}
		// A deadline is a limit, too.
		bound, end := context.WithTimeout(ctx, 10*time.Second)
		defer end()
		soon := s.Waits("mkdir", "/f")
		if !soon.Again(bound, 2*time.Second, overload, true) || last.Limit != 10*time.Second {
			t.Errorf("told %+v", last)
		}
		// An end of the context ends the pause, told or not.
		short, cancel := context.WithCancel(ctx)
		cancel()
		late := s.Waits("mkdir", "/e")
		if late.Again(short, time.Hour, safeMode, true) {
			t.Error("it slept on")
		}
	})
}

// What makes calls of its own is tried again as long as its failures are
// transient, until its time is over, and tells what it waits for; an end of the
// context or of the Namenodes is its error then.
func TestTry(t *testing.T) {
	away := fserror.New(fserror.Unavailable, "", "", "nobody answers")
	fails := func(n *int, err error, until int) func() error {
		return func() error {
			if *n++; *n > until {
				return nil
			}
			return err
		}
	}
	for _, c := range []struct {
		name    string
		err     error
		until   int // how often it fails
		endless bool
		end     func(context.CancelFunc, *Namenodes)
		want    error
		calls   func(n int) bool
		told    bool
	}{
		{name: "mended", err: away, until: 20, calls: func(n int) bool { return n == 21 }, told: true},
		{name: "for good", err: fserror.New(fserror.Permission, "", "", "no"), until: 9, want: fserror.Permission, calls: func(n int) bool { return n == 1 }},
		{name: "too late", err: safeMode, until: 1 << 20, want: fserror.Retry, calls: func(n int) bool { return n > 60 && n < 140 }, told: true},
		{name: "endless", err: away, until: 500, endless: true, calls: func(n int) bool { return n == 501 }, told: true},
		{name: "canceled", err: away, until: 1 << 20, endless: true, want: fserror.Canceled, calls: func(n int) bool { return n > 10 }, told: true,
			end: func(cancel context.CancelFunc, _ *Namenodes) { cancel() }},
		{name: "closed", err: away, until: 1 << 20, endless: true, want: fserror.Closed, calls: func(n int) bool { return n > 10 }, told: true,
			end: func(_ context.CancelFunc, s *Namenodes) { s.Close() }},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				told := 0
				s := namenodes(t, func(cfg *Config) { cfg.OnWait = func(Waiting) { told++ } })
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if c.end != nil {
					stop := time.AfterFunc(20*time.Second, func() { c.end(cancel, s) })
					defer stop.Stop()
				}
				w := s.Waits("create", "/a")
				if c.endless {
					w = s.Endless("create", "/a")
				}
				n := 0
				if err := w.Try(ctx, fails(&n, c.err, c.until)); !errors.Is(err, c.want) || !c.calls(n) {
					t.Errorf("%v after %d calls", err, n)
				}
				if (told > 0) != c.told {
					t.Errorf("told %d times", told)
				}
			})
		})
	}
}
