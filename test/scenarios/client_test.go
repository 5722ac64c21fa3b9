package scenarios_test

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/fserror"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
	"github.com/leasefs/leasefs/test/env"
)

// Two processes of one client name, both at their first call: neither gets the
// other's answer, and neither fences the other by connecting.
func TestScenario48aTwoProcessesOfOneName(t *testing.T) {
	t.Parallel()
	n, _ := frozen(t)
	one, two := n.Raw(t, "A"), n.Raw(t, "A")
	defer one.Connect()()
	w1 := one.Create("/1") // call 1 of one session
	must(t, one.Flush(w1, 0, "one"))
	defer two.Connect()()
	w2 := two.Create("/2") // call 1 of the other
	if w1.GetInode() == w2.GetInode() || w1.GetEpoch() == w2.GetEpoch() {
		t.Fatalf("both processes got %v and %v", w1, w2)
	}
	must(t, two.Flush(w2, 0, "two"))
	must(t, one.Flush(w1, 3, " more"))

	// The same first request of two new processes: one makes it, the other is
	// told that it is there, not that it made it.
	three, four := n.Raw(t, "A"), n.Raw(t, "A")
	defer three.Connect()()
	defer four.Connect()()
	req := func(r *env.Raw) error {
		_, err := r.NN.Mkdir(t.Context(), &pb.MkdirRequest{Call: r.Call(), Caller: r.Who, At: pb.At("/d")})
		return err
	}
	must(t, req(three))
	wantKind(t, req(four), fserror.Exists)

	must(t, one.Close(w1, 8))
	must(t, two.Close(w2, 3))
	b := n.Client(t)
	wantContent(t, b, "/1", "one more")
	wantContent(t, b, "/2", "two")
}

// A process appends at an expected length, and dies before it hears that its
// close happened. It is run again: told that the length is another, so the
// bytes are there once.
func TestScenario48bAppendAtALength(t *testing.T) {
	t.Parallel()
	for _, lost := range []string{"Append", "Close"} {
		t.Run(lost, func(t *testing.T) {
			t.Parallel()
			n := env.Start(t)
			b := n.Client(t, env.Named("B"))
			must(t, b.WriteFile(t.Context(), "/f", []byte("0123456789")))
			run := func(appendAt int64, wire func(*env.Wire)) error {
				a, w := n.Wired(t, env.Named("A"))
				wire(w)
				out, err := a.Append(t.Context(), "/f", client.WithExpectedLength(appendAt))
				if err != nil {
					return err
				}
				if _, err := out.Write([]byte("once")); err != nil {
					return err
				}
				return out.Close()
			}
			// The library itself sends it again: no harm either.
			must(t, run(10, func(w *env.Wire) { w.LoseReply(lost) }))
			wantContent(t, b, "/f", "0123456789once")
			e := asKind(t, run(10, func(*env.Wire) {}), fserror.NotAtEnd)
			if e.Length != 14 {
				t.Fatalf("%v: says length %d, want 14", e, e.Length)
			}
			wantContent(t, b, "/f", "0123456789once")
			must(t, run(14, func(*env.Wire) {}))
			wantContent(t, b, "/f", "0123456789onceonce")
		})
	}
}

// Renewals are refused past the soft limit, not past the hard one: writes go
// on. Past the hard limit this writer fails with the cause; reads and new files
// of the same client work.
func TestScenario48RenewalsRefused(t *testing.T) {
	t.Parallel()
	n, clk := frozen(t)
	a, wire := n.Wired(t, env.Named("A"))
	w, idle := create(t, a, "/f"), create(t, a, "/idle")
	wire.Lose("Renew", "RenewLease")
	flush(t, w, "one ")
	clk.Advance(5 * time.Minute)
	flush(t, w, "two ") // renews by itself
	clk.Advance(18 * time.Minute)
	flush(t, w, "three")
	if idle.Context().Err() == nil {
		_ = waitLost(t, idle) // 23 minutes without a word
	}
	clk.Advance(pastHard)
	_, err := w.Write([]byte("x"))
	if err == nil { // the watchdog had not looked yet: the flush does
		err = w.Flush(t.Context())
	}
	wantLost(t, err, "", "")
	wantLost(t, waitLost(t, w), "", "")
	wantLost(t, w.Close(), "", "")
	wantLost(t, idle.Close(), "", "")

	wantContent(t, a, "/f", "one two three")
	w2 := create(t, a, "/g")
	flush(t, w2, "new")
	must(t, w2.Close())
	wantContent(t, a, "/g", "new")
	if s := a.Stats(); s.LostLeases != 2 {
		t.Fatalf("%d leases lost, want 2", s.LostLeases)
	}
}

// One renewal gets no answer: nothing is aborted, and it is sent again until
// one is answered.
func TestScenario49ARenewalTimesOut(t *testing.T) {
	t.Parallel()
	n := env.Start(t, env.Limits(time.Second, time.Minute))
	a, wire := n.Wired(t, env.Named("A"))
	w := create(t, a, "/f")
	flush(t, w, "before")
	earlier := a.Stats()
	var seen atomic.Int32
	lost := make(chan struct{})
	wire.Set(func(method string, _ any, send func() error) error {
		if (method == "Renew" || method == "RenewLease") && seen.Add(1) == 1 {
			close(lost)
			return nil // the stream takes it and says nothing
		}
		return send()
	})
	<-lost
	flush(t, w, ", meanwhile")
	env.Eventually(t, "a later one is answered", func() bool {
		if w.Context().Err() != nil {
			t.Fatalf("the writer was given up: %v", waitLost(t, w))
		}
		s := a.Stats() // on a busy machine others may fail, too
		return s.RenewalFailures > earlier.RenewalFailures && s.Renewals > earlier.Renewals
	})
	if s := a.Stats(); s.LostLeases != 0 {
		t.Fatalf("%+v, want no lease lost", s)
	}
	flush(t, w, ", after")
	must(t, w.Close())
	wantContent(t, a, "/f", "before, meanwhile, after")
}

// Renewals fail while a close is in flight: the close ends as if nothing were.
func TestScenario50RenewalFailsDuringClose(t *testing.T) {
	t.Parallel()
	n := env.Start(t, env.Limits(shortSoft, time.Minute))
	a, wire := n.Wired(t, env.Named("A"))
	other := create(t, a, "/other")
	w := create(t, a, "/f")
	write(t, w, "content")
	inFlight, failed := make(chan struct{}), make(chan struct{})
	begun := sync.OnceFunc(func() { close(inFlight) }) // on a busy machine it may be sent again
	var fails atomic.Int32
	wire.Set(func(method string, _ any, send func() error) error {
		switch method {
		case "Close":
			err := send() // done by the namenode, its answer on the way
			begun()
			<-failed
			return err
		case "Renew", "RenewLease":
			select {
			case <-inFlight:
				if fails.Add(1) == 3 {
					close(failed)
				}
				return env.ErrLost
			default:
			}
		}
		return send()
	})
	must(t, w.Close())
	wire.Set(nil)
	wantContent(t, a, "/f", "content")
	flush(t, other, "goes on")
	must(t, other.Close())
	if s := a.Stats(); s.LostLeases != 0 {
		t.Fatalf("%d leases lost", s.LostLeases)
	}
}

// A thousand files opened and closed, some of them fenced, given up or left,
// by clients that come and go: no goroutine is left. (Not parallel, so that no
// other test's are counted.)
func TestScenario50NoGoroutineLeft(t *testing.T) {
	ignore := goleak.IgnoreCurrent()
	n := env.Start(t)
	baseline := 0
	for round := range 5 {
		a, wire := n.Wired(t, env.Named("A"))
		b := n.Client(t, env.Named("B"))
		for i := range 100 {
			p := fmt.Sprintf("/%d/%d", round, i)
			w := create(t, a, p)
			write(t, w, "x")
			switch i % 5 {
			case 0:
				must(t, w.Abort())
			case 1:
				_, err := b.Recover(t.Context(), p, true)
				must(t, err)
				wantLost(t, w.Close(), "", "")
			case 2:
				must(t, w.Detach())
			case 3:
				must(t, w.Close())
				r, err := a.Open(t.Context(), p)
				must(t, err)
				must(t, r.Close())
			}
		}
		wire.Lose("Renew", "RenewLease")
		must(t, a.Close())
		must(t, b.Close())
		if round == 0 {
			baseline = runtime.NumGoroutine()
		}
	}
	// The namenode's own are the same after five pairs of clients as after one.
	env.Eventually(t, fmt.Sprintf("as few goroutines as after the first clients, %d", baseline), func() bool {
		return runtime.NumGoroutine() <= baseline+20
	})
	n.Stop(t)
	goleak.VerifyNone(t, ignore)
}

// A client that is closed with open files closes them, all that was written
// in them; one that is killed leaves them open until the limits.
func TestScenario51ClosedAndKilled(t *testing.T) {
	t.Parallel()
	n, clk := frozen(t)
	a, b := n.Client(t, env.Named("A")), n.Client(t, env.Named("B"))
	killed, wire := n.Wired(t, env.Named("K"))
	for i := range 10 {
		write(t, create(t, a, fmt.Sprint("/a/", i)), "written")
		flush(t, create(t, killed, fmt.Sprint("/k/", i)), "flushed")
	}
	must(t, a.Close())
	wire.Cut()
	wantLeased(t, b, "A")
	for i := range 10 {
		wantOpen(t, b, fmt.Sprint("/a/", i), "")
		wantContent(t, b, fmt.Sprint("/a/", i), "written")
		wantOpen(t, b, fmt.Sprint("/k/", i), "K")
	}
	clk.Advance(time.Minute)
	_, err := b.Append(t.Context(), "/k/0")
	wantHeld(t, err, "K")
	clk.Advance(time.Second)
	w := appendTo(t, b, "/k/0")
	if w.Length() != 7 {
		t.Fatalf("length %d, want 7", w.Length())
	}
	must(t, w.Close())
	wantOpen(t, b, "/k/1", "K")
}

// A close fails: it is retried until the client's time is over; then the file is closed
// as soon as the namenode answers, so it does not stay open.
func TestScenario52CloseFails(t *testing.T) {
	t.Parallel()
	n := env.Start(t)
	a, wire := n.Wired(t, env.Named("A"), func(c *client.Config) { c.Timeout = 8 * time.Second })
	b := n.Client(t, env.Named("B"))
	w := create(t, a, "/f")
	flush(t, w, "flushed")
	write(t, w, " not")
	wire.Lose("Close")
	if err := w.Close(); !errors.Is(err, fserror.Unavailable) {
		t.Fatalf("close: %v, want UNAVAILABLE", err)
	}
	if tries := wire.Count("Close"); tries < 3 {
		t.Fatalf("the close was tried %d times", tries)
	}
	wire.Set(nil)
	waitClosed(t, b, "/f")
	wantContent(t, b, "/f", "flushed")

	// Refused once, then let through: nothing is lost.
	wire.LoseReply("Close")
	w = create(t, a, "/g")
	write(t, w, "all of it")
	must(t, w.Close())
	wantContent(t, b, "/g", "all of it")
	wantLeased(t, b, "A")
}

// A thousand open files cost one renewal call a period, and their names are
// sent once.
func TestScenario53OneRenewalForAllFiles(t *testing.T) {
	t.Parallel()
	const files = 1000
	soft := time.Second
	n, _ := frozen(t, env.Limits(soft, 20*time.Second)) // renewals go by the real clock
	a, wire := n.Wired(t, env.Named("A"))
	g := make(chan int, files)
	for i := range files {
		g <- i
	}
	close(g)
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for i := range g {
				if _, err := a.Create(t.Context(), fmt.Sprint("/", i)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()

	const periods = 3
	var mu sync.Mutex
	var began, ended time.Time
	listed, empty := 0, 0
	done := make(chan struct{})
	other := make(chan string, 1)
	wire.Set(func(method string, req any, send func() error) error {
		mu.Lock()
		defer mu.Unlock()
		if method != "Renew" {
			select {
			case other <- method:
			default:
			}
			return send()
		}
		r := req.(*pb.SessionRequest).GetRenew()
		switch {
		case r.GetHasSet():
			listed = len(r.GetOpen())
			empty = 0
		default:
			empty++
		}
		switch empty {
		case 1:
			began = time.Now()
		case 1 + periods:
			if ended.IsZero() {
				ended = time.Now()
				close(done)
			}
		}
		return send()
	})
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("no renewals")
	}
	mu.Lock()
	defer mu.Unlock()
	if listed != files && listed != 0 { // 0: the set was sent before we looked
		t.Errorf("a set of %d files was sent, want %d", listed, files)
	}
	// The period is half the soft limit, less a fifth by the namenode's jitter
	// and 15 % by the client's.
	if least := time.Duration(float64(periods) * float64(soft) / 2 * 0.8 * 0.85); ended.Sub(began) < least-50*time.Millisecond {
		t.Errorf("%d renewals within %s, want one each %s at most", periods, ended.Sub(began), soft/2)
	}
	select {
	case m := <-other:
		// Unless a busy machine made a renewal fail.
		if a.Stats().RenewalFailures == 0 {
			t.Errorf("besides the renewals a %s was sent", m)
		}
	default:
	}
	b := n.Client(t, env.Named("B"))
	if l := leases(t, b, "A"); len(l) != 1 || l[0].FileCount != files || l[0].SoftExpired {
		t.Errorf("A has the leases %+v, want one over %d files, alive", l, files)
	}
	wire.Set(nil)
}

// Ten thousand open files: a renewal is one message of a few dozen bytes. Their
// names are sent once, and again when one more is open.
func TestScenario53RenewalIsSmall(t *testing.T) {
	t.Parallel()
	const files = 10_000
	n, _ := frozen(t, env.Limits(400*time.Millisecond, 20*time.Minute)) // a renewal each 200 ms of the real clock
	a, wire := n.Wired(t, env.Named("A"))
	renewals := make(chan *pb.RenewLeaseRequest, 1000)
	wire.Set(func(method string, req any, send func() error) error {
		if method == "Renew" {
			renewals <- proto.CloneOf(req.(*pb.SessionRequest).GetRenew())
		}
		return send()
	})
	next := func() *pb.RenewLeaseRequest {
		t.Helper()
		select {
		case r := <-renewals:
			return r
		case <-time.After(2 * time.Minute):
			t.Fatal("no renewal")
			return nil
		}
	}
	open := make(chan string, files)
	for i := range files {
		open <- fmt.Sprint("/", i)
	}
	close(open)
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() {
			for path := range open {
				w, err := a.Create(t.Context(), path)
				if err != nil {
					t.Error(err)
					return
				}
				t.Cleanup(func() { _ = w.Detach() }) // else Close closes each
			}
		})
	}
	wg.Wait()
	// The set as it is now, sent once, then three periods without it.
	quiet := func(want int) {
		t.Helper()
		sets := 0
		for small := 0; small < 3; {
			r := next()
			if !r.GetHasSet() {
				if size := proto.Size(r); len(r.GetOpen()) != 0 || size > 200 {
					t.Fatalf("a renewal of %d files without their set has %d bytes", want, size)
				}
				small += sets // those before the whole set were sent while files were opened
				continue
			}
			// Unless a busy machine made a renewal fail.
			if small > 0 && a.Stats().RenewalFailures == 0 {
				t.Fatalf("the set of %d files was sent again, and nothing had changed", len(r.GetOpen()))
			}
			if len(r.GetOpen()) == want {
				sets++
				if size := proto.Size(r); size > 16*want {
					t.Fatalf("the set of %d files has %d bytes", want, size)
				}
			}
		}
		if sets != 1 && a.Stats().RenewalFailures == 0 {
			t.Fatalf("the whole set was sent %d times, want once", sets)
		}
	}
	quiet(files)
	w := create(t, a, "/one-more")
	quiet(files + 1)
	must(t, w.Close())
	quiet(files)
	b := n.Client(t, env.Named("B"))
	if l := leases(t, b, "A"); len(l) != 1 || l[0].FileCount != files {
		t.Fatalf("A has the leases %+v", l)
	}
	wire.Set(nil)
}
