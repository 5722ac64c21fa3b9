package client

import (
	"testing"
	"testing/synctest"
	"time"
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
