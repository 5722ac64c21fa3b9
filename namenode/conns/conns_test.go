package conns

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/credentials/insecure"

	"github.com/leasefs/leasefs/test/env/frames"
)

// socket is a connection from an address, without a network.
type socket struct {
	net.Conn
	from   string
	closed bool
}

func (s *socket) RemoteAddr() net.Addr { return addr(s.from) }
func (s *socket) Close() error         { s.closed = true; return nil }

type addr string

func (a addr) Network() string { return "tcp" }
func (a addr) String() string  { return string(a) }

func admit(t *testing.T, table *Table, from string) (*socket, *Conn) {
	t.Helper()
	s := &socket{from: from}
	return s, table.admit(s)
}

// When all places are taken, idle connections end, the longest idle first, and
// those with something under way stay.
func TestIdleEndFirst(t *testing.T) {
	table := New(16, 1<<20)
	var all []*socket
	var busy []*Conn
	for i := range 16 {
		s, c := admit(t, table, fmt.Sprintf("127.0.0.1:%d", i))
		if c == nil {
			t.Fatal("no room for", i)
		}
		if i < 4 {
			c.MarkBusy()
			c.MarkBusy()
			c.MarkIdle()
			busy = append(busy, c)
		}
		all = append(all, s)
	}
	busy[3].MarkIdle() // idle from now on, so the last to go
	for i := range 12 {
		if _, c := admit(t, table, "127.0.0.1:99"); c == nil {
			t.Fatal("no room for one more")
		}
		if !all[4+i].closed || i < 11 && all[5+i].closed {
			t.Fatalf("%d: not the one that was idle for longest", i)
		}
	}
	for i, s := range all[:3] {
		if s.closed {
			t.Errorf("%d had something under way", i)
		}
	}
	if all[3].closed {
		t.Error("the last to become idle went first")
	}
	if s := table.Stats(); s.Open != 16 || s.Ended != 12 {
		t.Errorf("%+v", s)
	}
}

// An address that has many ends its own, and takes nobody's.
func TestGreedyAddress(t *testing.T) {
	table := New(128, 1<<20)
	modest, c := admit(t, table, "10.0.0.1:1")
	if c == nil {
		t.Fatal("no room")
	}
	var last *Conn
	for i := range 1000 {
		// From changing addresses of one network, as IPv6 gives a machine.
		if _, last = admit(t, table, fmt.Sprintf("[2001:db8::%x]:1", i+1)); last == nil {
			t.Fatal("idle ones of its own make no room")
		}
		last.MarkBusy()
		if i < 50 {
			last.MarkIdle()
		}
		if i == 144 {
			break // three quarters of the places are taken
		}
	}
	if _, c := admit(t, table, "[2001:db8::ffff]:1"); c != nil {
		t.Error("there is room for one that has three quarters")
	}
	if modest.closed {
		t.Error("another's connection was ended for it")
	}
	for i := range 10 {
		if _, c := admit(t, table, fmt.Sprintf("10.0.1.%d:1", i)); c == nil {
			t.Error("no room for one that has nothing")
		}
	}
	if s := table.Stats(); s.Refused != 1 || s.Open != 106 {
		t.Errorf("%+v", s)
	}
}

// The machine's own connections take no more than others' where they share as others do.
func TestShareLocally(t *testing.T) {
	table := New(128, 1<<20)
	table.ShareLocally()
	for i := range 96 { // three quarters
		_, c := admit(t, table, fmt.Sprintf("127.0.0.1:%d", i))
		if c == nil {
			t.Fatal("no room for", i)
		}
		c.MarkBusy()
	}
	if _, c := admit(t, table, "127.0.0.1:99"); c != nil {
		t.Error("there is room for one that has three quarters")
	}
	if _, c := admit(t, table, "10.0.0.1:1"); c == nil {
		t.Error("no room for one that has nothing")
	}
}

// wire is a connection whose other side sends what the test writes.
func wire(t *testing.T, table *Table) (*Conn, func(p []byte), net.Conn) {
	t.Helper()
	here, there := net.Pipe()
	c := table.admit(here)
	conn, _, err := table.Creds(insecure.NewCredentials()).ServerHandshake(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = conn.Close(), there.Close() })
	buf := make([]byte, 64<<10)
	go func() { _, _ = io.Copy(io.Discard, there) }()
	return c, func(p []byte) {
		t.Helper()
		go func() { _, _ = there.Write(p) }()
		if _, err := io.ReadFull(conn, buf[:len(p)]); err != nil {
			t.Fatal(err)
		}
	}, conn
}

// Whatever the pieces in which bytes come, exactly those of incomplete messages
// are counted, and a request is under way from its first message to its end.
func TestMeter(t *testing.T) {
	data := func(id uint32, p []byte) []byte { return frames.Encode(frames.Data, 0, id, p) }
	headers := func(id uint32) []byte { return frames.Encode(frames.Headers, 4, id, make([]byte, 30)) }
	whole := append(frames.Prefix(100), make([]byte, 100)...)
	padded := append(append([]byte{7}, whole...), make([]byte, 7)...)
	const frame = 128 // what one costs
	type step struct {
		in, out    []byte
		unfinished int64
		requests   int
	}
	steps := []step{
		{in: append([]byte(preface), frames.Encode(4, 0, 0, nil)...)},
		{in: headers(1)},
		{in: data(1, whole[:3]), unfinished: 3 + frame},
		{in: data(1, whole[3:50]), unfinished: 50 + 2*frame},
		{in: headers(3), unfinished: 50 + 2*frame},
		{in: data(3, append(slices.Clone(whole), whole[:20]...)), unfinished: 70 + 2*frame, requests: 1}, // a stream of messages
		{in: data(1, whole[50:]), unfinished: 20, requests: 2},
		{out: frames.Encode(frames.Headers, 4, 1, []byte("answer")), unfinished: 20, requests: 2},
		{out: data(1, []byte("answer")), unfinished: 20, requests: 2},
		{out: frames.Encode(frames.Headers, 5, 1, []byte("end")), unfinished: 20, requests: 1},
		{in: data(1, whole), unfinished: 20, requests: 1}, // of a stream that has ended
		{in: data(3, whole[20:]), requests: 1},
		{in: headers(3), requests: 1}, // trailers
		{in: frames.Encode(frames.Reset, 0, 3, make([]byte, 4))},
		{in: headers(5)},
		{in: frames.Encode(frames.Data, 8, 5, padded), requests: 1},
		{in: data(5, frames.Prefix(1<<30)), unfinished: 5 + frame, requests: 1},
		{out: frames.Encode(frames.Reset, 0, 5, make([]byte, 4))},
		{in: headers(7)},
		{in: data(7, frames.Prefix(0)), requests: 1},
		{in: headers(9), requests: 1},
		{in: data(9, make([]byte, 1)), unfinished: 1 + frame, requests: 1},
	}
	for seed := range uint64(50) {
		random := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // a test's
		table := New(16, 1<<20)
		c, send, conn := wire(t, table)
		for i, s := range steps {
			for p := s.in; len(p) > 0; {
				n := 1 + random.IntN(min(len(p), 40))
				send(p[:n])
				p = p[n:]
			}
			if _, err := conn.Write(s.out); err != nil {
				t.Fatal(err)
			}
			table.mu.Lock()
			bytes, requests := c.held[unfinished], c.requests
			table.mu.Unlock()
			if table.Stats().Unfinished != bytes || bytes != s.unfinished || requests != s.requests {
				t.Fatalf("seed %d, step %d: %d bytes unfinished (%d in all), want %d; %d requests, want %d",
					seed, i, bytes, table.Stats().Unfinished, s.unfinished, requests, s.requests)
			}
		}
		_ = c.Close()
		if s := table.Stats(); s.Open != 0 || s.Unfinished != 0 {
			t.Fatalf("after the end: %+v", s)
		}
	}
}

// Over the budget, the connection that has most of it ends.
func TestBudget(t *testing.T) {
	table := New(16, 1000)
	greedy, send, _ := wire(t, table)
	begin := append([]byte(preface), frames.Encode(frames.Headers, 4, 1, nil)...)
	send(append(begin, frames.Encode(frames.Data, 0, 1, append(frames.Prefix(5000), make([]byte, 700)...))...))
	other, send, _ := wire(t, table)
	send(append(begin, frames.Encode(frames.Data, 0, 1, append(frames.Prefix(500), make([]byte, 200)...))...))
	table.mu.Lock()
	defer table.mu.Unlock()
	if !greedy.closed || other.closed || table.stats.Overloaded != 1 || table.held[unfinished] != 205+frameCost {
		t.Errorf("greedy ended %t, the other %t; %+v, %d bytes", greedy.closed, other.closed, table.stats, table.held)
	}
}

// Over the budget, the address that has most on all its connections loses one, its largest, and
// who has most on one alone does not.
func TestBudgetOfManyConnections(t *testing.T) {
	for k := range kinds {
		table := New(64, 1000)
		_, one := admit(t, table, "192.0.2.1:1")
		var many []*Conn
		for i := range 4 {
			_, c := admit(t, table, fmt.Sprint("192.0.2.2:", i+1))
			many = append(many, c)
			table.count(c, k, int64(150+i))
		}
		if most := table.count(one, k, 390); most != nil {
			t.Fatalf("kind %d: one is to end within the budget", k)
		}
		if most := table.count(one, k, 10); most != many[3] {
			t.Errorf("kind %d: the largest connection of the greedy one does not end", k)
		}
	}
}

// A connection that is being ended for its messages is ended once, and nobody else
// for what it had.
func TestBudgetWhileOneEnds(t *testing.T) {
	table := New(16, 1000)
	greedy, _, _ := wire(t, table)
	other, _, _ := wire(t, table)
	if most := table.count(greedy, unfinished, 1001); most != greedy {
		t.Fatalf("%p is to end, want %p", most, greedy)
	}
	for _, c := range []*Conn{greedy, other, greedy} {
		if most := table.count(c, unfinished, 500); most != nil {
			t.Errorf("another is to end meanwhile: %p of %p and %p", most, greedy, other)
		}
	}
	_ = greedy.Close()
	if s := table.Stats(); s.Overloaded != 1 || s.Unfinished != 500 {
		t.Errorf("%+v", s)
	}
}

// endless is a listener whose clients are always there.
type endless struct {
	net.Listener
	accepted atomic.Int64
}

func (e *endless) Accept() (net.Conn, error) {
	e.accepted.Add(1)
	return &socket{from: "10.0.0.1:1"}, nil
}

// Of those whose first request is still to come only so many are accepted at once. One that
// has made it, has ended, or takes too long for it gives its place to another.
func TestArriving(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := new(endless)
		l := New(1<<20, 1<<20).Listener(all)
		accepted := make(chan *Conn)
		go func() {
			defer close(accepted)
			for range 2*maxArriving + 3 {
				c, err := l.Accept()
				if err != nil {
					t.Error(err)
				}
				accepted <- c.(*Conn)
			}
		}()
		var conns []*Conn
		for range maxArriving {
			conns = append(conns, <-accepted)
		}
		more := func(want int) {
			t.Helper()
			synctest.Wait()
			if got := int(all.accepted.Load()); got != want {
				t.Fatalf("%d were accepted, want %d", got, want)
			}
		}
		more(maxArriving)
		conns[0].MarkBusy()
		more(maxArriving + 1)
		<-accepted
		conns[0].MarkIdle()
		conns[0].MarkBusy() // its second request
		_ = conns[0].Close()
		more(maxArriving + 1)
		_ = conns[1].Close()
		more(maxArriving + 2)
		<-accepted
		time.Sleep(arrivesWithin) //nolint:forbidigo // by the bubble's clock
		for range accepted {
		}
		more(2*maxArriving + 3)
	})
}
