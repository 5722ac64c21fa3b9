package local

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/leasefs/leasefs/internal/blockstore"
)

// begin sends the headers of a PUT and the first bytes of its object, no more.
func begin(t *testing.T, s *Store, signed blockstore.Signed, first []byte) {
	t.Helper()
	base := s.cfg.BaseURL()
	c, err := net.Dial("tcp", strings.TrimPrefix(base, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	var head strings.Builder
	fmt.Fprintf(&head, "PUT %s HTTP/1.1\r\nHost: x\r\n", strings.TrimPrefix(signed.URL, base))
	for name, values := range signed.Header {
		fmt.Fprintf(&head, "%s: %s\r\n", name, values[0])
	}
	if _, err := io.WriteString(c, head.String()+"\r\n"+string(first)); err != nil {
		t.Fatal(err)
	}
}

// PUTs that bring nothing, too little, or the same block many times do not keep
// others out.
func TestSilentPuts(t *testing.T) {
	const most, all = 8, 40
	obj, crc := object(200_000, 1)
	for _, c := range []struct {
		name  string
		seq   func(i uint64) uint64
		first []byte
		held  int    // places that they take
		busy  uint64 // are told to try again
	}{
		{"headers only", func(uint64) uint64 { return 1 }, nil, 0, 0},
		{"one block", func(uint64) uint64 { return 1 }, obj[:1], most * 3 / 4, all - most*3/4},
		{"one byte of each block", func(i uint64) uint64 { return 1 + i }, obj[:1], most * 3 / 4, all - most*3/4},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, fake, h := harness(t, Config{Dir: t.TempDir(), MaxPuts: most})
			s.slots.patience = time.Minute // for a machine that stalls
			sign := func(seq uint64) blockstore.Signed {
				signed, err := s.SignPut(blockstore.Key{Term: 1, Seq: seq}, int64(len(obj)), crc, h.Now().Add(time.Minute))
				if err != nil {
					t.Fatal(err)
				}
				return signed
			}
			for i := range uint64(all) {
				begin(t, s, sign(c.seq(i)), c.first)
			}
			// One that comes only later would be as young as another's.
			awaitStats(t, s, func(st Stats) bool { return st.PutsInFlight == c.held && st.Rejected[ReasonBusy] == c.busy })
			fake.Advance(2 * time.Second)
			for i := range uint64(3) {
				if status, kind := send(t, h.Client, sign(100+i), obj); status != http.StatusOK {
					t.Fatalf("another's PUT: %d %s", status, kind)
				}
			}
		})
	}
}

// A PUT that is as fast as it should be keeps its place, also after others began.
func TestFastPutStays(t *testing.T) {
	now := time.Duration(0)
	s := newSlots(1, func() time.Duration { return now })
	fast, ok := s.take(blockstore.Key{Seq: 1}, "a", func() { t.Error("cut off") })
	if !ok {
		t.Fatal("no place")
	}
	for range 5 {
		now += 2 * time.Second
		fast.got.Add(2 * blockstore.PutRate)
		if _, ok := s.take(blockstore.Key{Seq: 2}, "b", nil); ok {
			t.Fatal("two in one place")
		}
	}
	s.give(fast)
	slow, ok := s.take(blockstore.Key{Seq: 2}, "b", func() { now++ })
	if !ok {
		t.Fatal("no place after the end")
	}
	now += time.Second
	slow.got.Add(blockstore.PutRate / 2)
	if _, ok := s.take(blockstore.Key{Seq: 3}, "c", nil); !ok || len(s.puts) != 1 || !s.give(slow) {
		t.Error("a slow one kept its place")
	}
}

// The addresses of one IPv6 network take one share of the PUTs.
func TestSourceOf(t *testing.T) {
	for remote, want := range map[string]string{
		"10.0.0.7:80": "10.0.0.7", "[::ffff:10.0.0.7]:80": "10.0.0.7", "[2001:db8:1:2:3::4]:80": "2001:db8:1:2::/64",
		"[2001:db8:1:2:ff::1]:81": "2001:db8:1:2::/64", "[fe80::1%eth0]:80": "fe80::/64", "@": "@",
	} {
		if got := sourceOf(remote); got != want {
			t.Errorf("%s counts as %s, want %s", remote, got, want)
		}
	}
}
