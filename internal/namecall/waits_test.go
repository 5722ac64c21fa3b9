package namecall

import (
	"context"
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
