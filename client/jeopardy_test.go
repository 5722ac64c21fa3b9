package client

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasefs/leasefs/internal/fserror"
)

// Jeopardy of a lease that is kept alive is told a grace before it can end, and when it
// is kept no longer; not while answers come.
func TestJeopardy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.leases[7] = true
		fs := start(t, f)
		k, err := fs.Leases().KeepAlive(t.Context(), 7)
		check(t, err)
		early, late := k.Jeopardy(30*time.Second), k.Jeopardy(0)
		told := func(c <-chan struct{}) bool {
			select {
			case <-c:
				return true
			default:
				return false
			}
		}
		<-time.After(10 * time.Minute)
		if told(early) || told(late) {
			t.Fatal("in jeopardy while it is kept alive")
		}
		f.mu.Lock()
		f.silent = true
		f.mu.Unlock()
		<-early
		if left := k.Remaining(); left > 30*time.Second || left < 28*time.Second || told(late) {
			t.Errorf("told %s before the end, not 30s; the other one: %v", left, told(late))
		}
		<-late
		if left := k.Remaining(); left > 10*time.Second || left < 8*time.Second {
			t.Errorf("told %s before the end, not 10s", left)
		}
		k.Stop()
		other, err := fs.Leases().Grant(t.Context(), time.Minute, 0)
		check(t, err)
		f.mu.Lock()
		f.silent = false
		f.mu.Unlock()
		k, err = fs.Leases().KeepAlive(t.Context(), other.ID)
		check(t, err)
		c := k.Jeopardy(0)
		k.Stop()
		<-c
	})
}

// Who closes the client keeps nothing alive any more, and whoever relies on it is told.
func TestJeopardyByClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.leases[7] = true
		fs := start(t, f)
		k, err := fs.Leases().KeepAlive(t.Context(), 7)
		check(t, err)
		var all [50]<-chan struct{}
		for i := range all {
			all[i] = k.Jeopardy(0)
		}
		check(t, fs.Close())
		for _, told := range all {
			<-told
		}
		<-k.Jeopardy(0)
	})
}

// A grace that is not left now and then in perfect health is refused: for a lock before it is
// taken; for a lease that is kept alive it is told at once, and not at some time.
func TestTooMuchGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.leases[7] = true
		fs := start(t, f)
		check(t, fs.WriteFile(t.Context(), "/l", nil))
		ttl := fs.session.SoftLimit()
		for _, grace := range []time.Duration{ttl/3 + 1, ttl / 2, ttl, time.Hour} {
			_, err := fs.Lock(t.Context(), "/l", LockOptions{Grace: grace})
			wantKind(t, err, fserror.InvalidArgument)
			for _, what := range []string{"lock /l", ttl.String(), (ttl / 3).String()} {
				if !strings.Contains(err.Error(), what) {
					t.Errorf("%v: does not name %s", err, what)
				}
			}
		}
		l, err := fs.Lock(t.Context(), "/l", LockOptions{Grace: ttl / 3})
		check(t, err)
		k, err := fs.Leases().KeepAlive(t.Context(), 7)
		check(t, err)
		most := k.l.TTL() / 2
		<-k.Jeopardy(most + 1)
		kept := k.Jeopardy(most)
		<-time.After(10 * time.Minute)
		select {
		case <-l.Jeopardy():
			t.Error("a lock is in jeopardy in perfect health")
		case <-kept:
			t.Error("a lease is in jeopardy in perfect health")
		default:
		}
		check(t, l.Unlock(t.Context()))
	})
}
