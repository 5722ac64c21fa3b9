package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/keepalive"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// await polls a condition that another goroutine brings about.
func await(t *testing.T, what string, cond func() bool) {
	t.Helper()
	over := time.After(time.Minute)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-over:
			t.Fatalf("waited in vain until %s", what)
		}
	}
}

// Scenario 48: renewals are refused past the soft, then past the hard limit.
func TestScenario48RenewalsRefused(t *testing.T) {
	f := newFake()
	f.renewEvery = 20 * time.Millisecond
	f.hard = 2 * time.Second // of the fake clock; sets how often the watchdog looks
	f.soft = time.Second
	f.renew = func(*pb.RenewLeaseRequest, *pb.RenewLeaseResponse) bool { return false }
	clk := new(clock.Fake)
	fs := start(t, f, func(c *Config) { c.Clock = clk })
	silent := mustCreate(t, fs, "/silent")
	active := mustCreate(t, fs, "/active")
	for _, w := range []*Writer{silent, active} {
		_, err := w.Write([]byte("a"))
		check(t, err)
		check(t, w.Flush(t.Context()))
	}
	clk.Advance(1100 * time.Millisecond)
	await(t, "the lease is in jeopardy", func() bool { return fs.Stats().Jeopardies == 1 })
	_, err := active.Write([]byte("b"))
	check(t, err)
	check(t, active.Flush(t.Context())) // a call of the writer renews it
	if silent.Context().Err() != nil {
		t.Fatal("lost before the hard limit")
	}
	clk.Advance(850 * time.Millisecond) // 1.95 s in all: the limit is 2 s less 5 %
	<-silent.Context().Done()
	if !errors.Is(context.Cause(silent.Context()), fserror.LeaseLost) {
		t.Fatal(context.Cause(silent.Context()))
	}
	_, err = silent.Write([]byte("c"))
	wantKind(t, err, fserror.LeaseLost)
	wantKind(t, silent.Flush(t.Context()), fserror.LeaseLost)
	wantKind(t, silent.Close(), fserror.LeaseLost)
	check(t, active.Close())
	check(t, fs.WriteFile(t.Context(), "/new", nil))
	_, err = fs.ReadFile(t.Context(), "/silent")
	check(t, err)
}

// The holder's clock is the one that ran further: here, the wall.
func TestSuspendedHolderLosesItsLease(t *testing.T) {
	f := newFake()
	f.hard = time.Hour
	clk := new(clock.Fake)
	fs := start(t, f, func(c *Config) { c.Clock = clk })
	w := mustCreate(t, fs, "/a")
	_, err := w.Write([]byte("a"))
	check(t, err)
	clk.ShiftWall(2 * time.Hour)
	// The watchdog looks once a second; a flush does not wait for it.
	wantKind(t, w.Flush(t.Context()), fserror.LeaseLost)
	if f.count("AppendTail") != 0 {
		t.Fatal("bytes were sent on a lease that is over")
	}
}

// Scenario 49: a renewal that is not answered is repeated and aborts nothing.
func TestScenario49RenewalTimesOutOnce(t *testing.T) {
	f := newFake()
	f.renewEvery = 10 * time.Millisecond
	f.soft = 400 * time.Millisecond
	f.hard = time.Minute
	dropped := false
	f.renew = func(*pb.RenewLeaseRequest, *pb.RenewLeaseResponse) bool {
		ok := dropped
		dropped = true
		return ok
	}
	fs := start(t, f)
	w := mustCreate(t, fs, "/a")
	await(t, "a renewal failed and others did not", func() bool {
		s := fs.Stats()
		return s.RenewalFailures >= 1 && s.Renewals >= 3
	})
	_, err := w.Write([]byte("x"))
	check(t, err)
	check(t, w.Close())
}

// A renewal's answer names lost files: only those are lost, at once.
func TestRenewalTellsLostFiles(t *testing.T) {
	f := newFake()
	f.renewEvery = 10 * time.Millisecond
	fs := start(t, f)
	lost, unknown, kept := mustCreate(t, fs, "/lost"), mustCreate(t, fs, "/unknown"), mustCreate(t, fs, "/kept")
	f.set(func() {
		f.renew = func(_ *pb.RenewLeaseRequest, resp *pb.RenewLeaseResponse) bool {
			resp.Lost = []*pb.LostFile{{Inode: lost.Inode(), Epoch: lost.Token(), Reason: "taken over", NewHolder: &pb.HolderInfo{Client: "ingest-4", Host: "b"}}}
			resp.Unknown = []*pb.OpenRef{{Inode: unknown.Inode(), Epoch: unknown.Token()}, {Inode: kept.Inode(), Epoch: 1}}
			return true
		}
	})
	<-lost.Context().Done()
	<-unknown.Context().Done()
	_, err := lost.Write([]byte("x"))
	wantKind(t, err, fserror.LeaseLost)
	if s := err.Error(); !strings.Contains(s, "ingest-4") || !strings.Contains(s, "taken over") || !strings.Contains(s, "/lost") {
		t.Fatal(s)
	}
	wantKind(t, unknown.Close(), fserror.LeaseLost)
	check(t, kept.Close())
}

// Scenario 53: a thousand open files, one message a period, the set only when
// it changed.
func TestScenario53OneRenewalForAll(t *testing.T) {
	f := newFake()
	f.renewEvery = time.Hour // until we say otherwise
	fs := start(t, f)
	for i := range 1000 {
		mustCreate(t, fs, fmt.Sprint("/f", i))
	}
	f.set(func() { f.renewEvery = 20 * time.Millisecond })
	fs.session.RenewNow()
	await(t, "five renewals came", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return len(f.renewals) >= 5
	})
	f.set(func() {
		for i, r := range f.renewals[:5] {
			if r.HasSet != (i == 0) || i == 0 && len(r.Open) != 1000 {
				t.Errorf("renewal %d: has set %v, %d files", i, r.HasSet, len(r.Open))
			}
		}
		f.renew = func(r *pb.RenewLeaseRequest, resp *pb.RenewLeaseResponse) bool {
			resp.WantSet = !r.HasSet
			return true
		}
		f.renewals = nil
	})
	await(t, "the set came again", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, r := range f.renewals {
			if r.HasSet && len(r.Open) == 1000 {
				return true
			}
		}
		return false
	})
	f.set(func() { f.renew = nil })
	if f.count("RenewLease") != 0 {
		t.Fatal("renewals went past the stream")
	}
}

// Scenario 50: renewals fail while files are closed; no deadlock, no goroutine
// left (TestMain).
func TestScenario50RenewalFailsWhileClosing(t *testing.T) {
	f := newFake()
	f.renewEvery = time.Millisecond
	n := 0
	f.renew = func(r *pb.RenewLeaseRequest, resp *pb.RenewLeaseResponse) bool {
		if n++; n%3 == 0 {
			// Claims to know nothing: closing files must not mind.
			resp.Unknown = r.Open
		}
		return n%5 != 0
	}
	f.soft = 2 * time.Millisecond
	fs := start(t, f)
	for i := range 200 {
		w := mustCreate(t, fs, fmt.Sprint("/f", i))
		_, werr := w.Write([]byte("x"))
		err := w.Close()
		if err != nil && !errors.Is(err, fserror.LeaseLost) {
			t.Fatal(err)
		}
		if werr != nil && !errors.Is(werr, fserror.LeaseLost) {
			t.Fatal(werr)
		}
	}
}

// A session stream that breaks is opened again, and lists the open set.
func TestSessionComesBack(t *testing.T) {
	f := newFake()
	n := new(network)
	stop := n.serve("nn", f)
	var log bytes.Buffer
	fs := connect(t, n, f, func(c *Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	w := mustCreate(t, fs, "/a")
	stop()
	done := make(chan error, 1)
	go func() {
		_, err := w.Write([]byte("over the gap"))
		done <- errors.Join(err, w.Flush(context.WithoutCancel(t.Context())))
	}()
	t.Cleanup(n.serve("nn", f))
	check(t, <-done)
	await(t, "the set is listed", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, r := range f.renewals {
			if r.HasSet && len(r.Open) == 1 {
				return true
			}
		}
		return false
	})
	check(t, w.Close())
	check(t, fs.Close())
}

// Scenario 41: refused by a standby, which names the active; then again by an
// unknown one.
func TestScenario41Standby(t *testing.T) {
	n := new(network)
	standby, active := newFake(), newFake()
	t.Cleanup(n.serve("sb", standby))
	t.Cleanup(n.serve("nn", active))
	standby.before = func(string, any) error { return &fserror.Error{Kind: fserror.NotActive, Active: "nn"} }
	fs := connect(t, n, active, func(c *Config) { c.Namenodes = []string{"sb"} })
	check(t, fs.WriteFile(t.Context(), "/a", []byte("x")))
	if string(active.content("/a")) != "x" {
		t.Fatal("the active has no file")
	}
	// They change roles; the same call continues at the other.
	active.set(func() {
		active.before = func(string, any) error { return &fserror.Error{Kind: fserror.NotActive} }
	})
	standby.set(func() { standby.before = nil })
	check(t, fs.WriteFile(t.Context(), "/b", []byte("y")))
	if string(standby.content("/b")) != "y" {
		t.Fatal("the new active has no file")
	}
	st, err := fs.Status(t.Context())
	check(t, err)
	if len(st) != 1 || st[0].Address != "sb" {
		t.Fatalf("%+v", st)
	}
}

func TestNobodyAnswers(t *testing.T) {
	n := new(network)
	_, err := New(t.Context(), Config{Namenodes: []string{"a:1", "b:2"}, Timeout: 50 * time.Millisecond, DialOptions: []grpc.DialOption{grpc.WithContextDialer(n.dial)}})
	wantKind(t, err, fserror.Unavailable)
	if s := err.Error(); !strings.Contains(s, "a:1, b:2") || fserror.ReasonOf(err) != fserror.ReasonNoNamenode {
		t.Fatal(s)
	}
	f := newFake()
	stop := n.serve("nn", f)
	fs := connect(t, n, f, func(c *Config) { c.Timeout = 50 * time.Millisecond })
	stop()
	err = fs.Mkdir(t.Context(), "/a", 0o755)
	wantKind(t, err, fserror.Unavailable)
	_, err = fs.Stat(t.Context(), "relative")
	wantKind(t, err, fserror.InvalidPath)
}

// The reply is lost for good: the error says so.
func TestUnknownOutcome(t *testing.T) {
	f := newFake()
	f.after = func(string, any) error { return lostReply }
	fs := start(t, f, func(c *Config) { c.Timeout = 50 * time.Millisecond })
	err := fs.Mkdir(t.Context(), "/a", 0o755)
	wantKind(t, err, fserror.Unavailable)
	if !strings.Contains(err.Error(), "not known") {
		t.Fatal(err)
	}
	_, err = fs.Stat(t.Context(), "/a")
	if strings.Contains(err.Error(), "not known") {
		t.Fatal("a read has no outcome to worry about: ", err)
	}
}

// Retry is waited for, within the budget; then it is the caller's.
func TestRetryAfter(t *testing.T) {
	f := newFake()
	n := 0
	f.before = func(method string, _ any) error {
		if n++; method == "Mkdir" && n < 4 {
			return &fserror.Error{Kind: fserror.Retry, Message: "busy", RetryAfter: time.Millisecond}
		}
		return nil
	}
	fs := start(t, f)
	check(t, fs.Mkdir(t.Context(), "/a", 0o755))
	f.set(func() {
		f.before = func(method string, _ any) error {
			return &fserror.Error{Kind: fserror.Retry, Message: "safe mode", RetryAfter: time.Hour}
		}
	})
	wantKind(t, fs.Mkdir(t.Context(), "/b", 0o755), fserror.Retry)
}

func TestCancelledCall(t *testing.T) {
	f := newFake()
	held := make(chan struct{})
	f.before = func(method string, _ any) error {
		if method == "Mkdir" {
			<-held
		}
		return nil
	}
	fs := start(t, f)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- fs.Mkdir(ctx, "/a", 0o755) }()
	await(t, "the call is there", func() bool { return f.count("Mkdir") == 1 })
	cancel()
	wantKind(t, <-done, fserror.Canceled)
	close(held)
}

// A namenode comes back with a lower hard limit: a writer that has been silent
// for longer than that, but not for the old limit, renews before it counts.
func TestLowerLimitsEndNoLiveWriter(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.soft, f.hard = time.Hour, time.Hour
	clk := new(clock.Fake)
	fs := start(t, f, func(c *Config) { c.Clock = clk })
	w := mustCreate(t, fs, "/a")
	f.set(func() {
		f.renew = func(*pb.RenewLeaseRequest, *pb.RenewLeaseResponse) bool { return false }
	})
	clk.Advance(10 * time.Minute)
	f.set(func() {
		f.soft, f.hard = 30*time.Second, time.Minute
	})
	fs.session.Stream().Break()
	await(t, "the namenode with the lower limit has welcomed the session", func() bool { return fs.Stats().Sessions == 2 })
	fs.session.Watch()
	if w.Context().Err() != nil {
		t.Fatal(context.Cause(w.Context()))
	}
	f.set(func() {
		f.renew = func(_ *pb.RenewLeaseRequest, resp *pb.RenewLeaseResponse) bool {
			resp.SoftLimitMs, resp.HardLimitMs = 30_000, 60_000
			return true
		}
	})
	fs.session.RenewNow()
	await(t, "the new limit counts", func() bool { return fs.Info().HardLimit == time.Minute })
	fs.session.Watch()
	check(t, w.Close())
}

// What is sent again in a new call, after the replies to an earlier one were lost,
// renews nothing here: the record that renewed may be as old as the earlier call.
func TestWhatIsSentAgainRenewsNothing(t *testing.T) {
	for method, size := range map[string]int{
		"AppendTail": 10,
		"Commit":     100 << 10, // more than a tail may have
	} {
		t.Run(method, func(t *testing.T) {
			f := newFake()
			f.soft, f.hard = time.Hour, time.Hour
			f.renew = func(*pb.RenewLeaseRequest, *pb.RenewLeaseResponse) bool { return false }
			f.after = func(m string, _ any) error {
				if m == method {
					return lostReply
				}
				return nil
			}
			clk := new(clock.Fake)
			fs := start(t, f, func(c *Config) { c.Clock, c.Timeout = clk, 50*time.Millisecond })
			w := mustCreate(t, fs, "/a")
			_, err := w.Write(noise(size))
			check(t, err)
			wantKind(t, w.Flush(t.Context()), fserror.Unavailable)
			clk.Advance(40 * time.Minute)
			f.set(func() { f.after = nil })
			check(t, w.Flush(t.Context()))
			clk.Advance(20 * time.Minute) // an hour since the record can have been made
			if _, err = w.Write([]byte("more")); err == nil {
				err = w.Flush(t.Context())
			}
			wantKind(t, err, fserror.LeaseLost)
		})
	}
}

// A keep-alive that its caller gives up says so in one line, with the kind of what
// ended the context.
func TestKeepAliveGivenUpByItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.silent, f.leases[7] = true, true
		fs := start(t, f)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := fs.Leases().KeepAlive(ctx, 7)
		wantKind(t, err, fserror.Deadline)
		if got := err.Error(); strings.Count(got, keepalive.Op) != 1 {
			t.Error(got)
		}
	})
}

// WriteFrom gives up with its context while a keep-alive of its temporary lease is
// not answered; a lease that Hold keeps alive outlives that context.
func TestWriteFromGivesUpAKeepAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.silent = true
		fs := start(t, f)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		_, err := fs.WriteFrom(ctx, "/f", strings.NewReader("x"))
		wantKind(t, err, fserror.Deadline)
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("it gave up after %s, not after 1s", took)
		}
		f.mu.Lock()
		f.silent, f.leases[7] = false, true
		f.mu.Unlock()
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		k, err := fs.Leases().Hold(ctx, 7)
		check(t, err)
		<-time.After(5 * time.Minute)
		if err := context.Cause(k.Context()); err != nil || k.Remaining() <= 0 {
			t.Errorf("held beyond its context: %v, %s remain", err, k.Remaining())
		}
		k.Stop()
	})
}

// A keep-alive that the namenode leaves unanswered is given up for another one that
// is active, and tried there. Nobody has canceled it.
func TestKeepAliveGoesToTheActive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := new(network)
		silent, active := newFake(), newFake()
		silent.silent, active.role = true, "active"
		for address, f := range map[string]*fake{"nn": silent, "nn2": active} {
			f.leases[7] = true
			t.Cleanup(n.serve(address, f))
		}
		fs := connect(t, n, silent, func(c *Config) { c.Namenodes = []string{"nn", "nn2"} })
		k, err := fs.Leases().KeepAlive(t.Context(), 7)
		check(t, err)
		if err := k.Context().Err(); err != nil {
			t.Fatal(err)
		}
		k.Stop()
	})
}
