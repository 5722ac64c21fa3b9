package share

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

func parse(text string) (*Quotas, error) {
	return ParseQuotas([]byte(text), func(a string) (string, error) {
		if !strings.Contains(a, ".") {
			return "", errors.New("no address: " + a)
		}
		return a, nil
	})
}

func TestQuotas(t *testing.T) {
	q, err := parse("# who\n\nuser * calls=100 watches=5\nuser ann calls=none sessions=2\naddress * connections=10\naddress 10.0.0.7 connections=50\n")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		what, name string
		want       int64
	}{
		{Calls, "user ann", 0}, {Calls, "user bob", 100}, {Watches, "user ann", 5}, {Sessions, "user bob", 0}, {Sessions, "user ann", 2},
		{Connections, "10.0.0.7", 50}, {Connections, "10.0.0.8", 10}, {Connections, "user ann", 0}, {Leases, "user ann", 0},
	} {
		if got := q.Of(c.what, c.name); got != c.want {
			t.Errorf("%s of %s: %d, want %d", c.what, c.name, got, c.want)
		}
		if (*Quotas)(nil).Of(c.what, c.name) != 0 {
			t.Error("no file limits somebody")
		}
	}
	if !q.Limits(Calls) || q.Limits(Leases) || (*Quotas)(nil).Limits(Calls) {
		t.Error("it is not known what is limited")
	}
	for bad, says := range map[string]string{
		"user ann":                          "line 1",
		"\ngroup staff calls=1":             "line 2",
		"user ann calls=0":                  "no number",
		"user ann calls":                    "no number",
		"user ann calls=-1":                 "no number",
		"user ann fish=1":                   "nothing that can be limited",
		"user ann connections=1":            "has an address",
		"address 1.2.3.4 leases=1":          "has a user",
		"address 1.2.3.4 files=1":           "has a user",
		"address nowhere calls=1":           "no address",
		"user a calls=1\nuser a calls=2":    "earlier line",
		"user a calls=1 calls=2":            "earlier line",
		"user a calls=99999999999999999999": "no number",
	} {
		if _, err := parse(bad); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want %q", bad, err, says)
		}
	}
}

// TestQuotasBind: who has as much as his quota says gets no more while there is plenty, is told
// so, and others get theirs; the reserve is not bound by it.
func TestQuotasBind(t *testing.T) {
	l := Of(1000, Watches, func(name string) int64 {
		if name == "user ann" {
			return 2
		}
		return 0
	})
	ann, bob := Taker{Names: []string{"10.0.0.1", "user ann"}}, Taker{Names: []string{"10.0.0.1", "user bob"}}
	for i := range 5 {
		if got := l.Take(1, ann); got != (i < 2) {
			t.Errorf("take %d: %t", i, got)
		}
	}
	if !l.Over(1, ann) || l.Fits(1, ann) || l.Over(1, bob) {
		t.Error("it is not known who has too much")
	}
	if why := l.Why(1, ann); !strings.Contains(why, "user ann has 2 watches, and may have 2") {
		t.Error(why)
	}
	if !l.Take(10, bob) {
		t.Error("another one is refused")
	}
	reserve := ann
	reserve.Reserve = true
	if !l.Take(1, reserve) {
		t.Error("the reserve is bound")
	}
	var told Holding
	for _, h := range l.Greedy() {
		if h.Who == "user ann" {
			told = h
		}
	}
	if told != (Holding{What: Watches, Who: "user ann", Held: 3, Most: 2, Refused: 3}) || l.Refusals() != 3 {
		t.Errorf("%+v, %d", told, l.Refusals())
	}
	few := New(10) // of which nobody can have a quota
	few.Hold(1, ann)
	if held := Held("ann", []*Limit{few, l}); !slices.Equal(held, []Holding{told}) {
		t.Errorf("ann holds %+v", held)
	}
	if held := Held("bob", []*Limit{few, l}); !slices.Equal(held, []Holding{{What: Watches, Who: "user bob", Held: 10}}) {
		t.Errorf("bob holds %+v", held)
	}
	if held := Held("cid", []*Limit{few, l}); len(held) > 0 {
		t.Errorf("who holds nothing and has no quota holds %+v", held)
	}
	l.Give(3, ann)
	if held := Held("ann", []*Limit{l}); !slices.Equal(held, []Holding{{What: Watches, Who: "user ann", Most: 2}}) {
		t.Errorf("who holds nothing and has a quota holds %+v", held)
	}
	for _, h := range l.Greedy() {
		if h.Who == "user ann" {
			t.Errorf("%+v holds nothing any more", h)
		}
	}
	for range 2 {
		l.Slow(Taker{Names: []string{"user cid"}})
	}
	if g := l.Greedy(); !slices.Contains(g, Holding{What: Watches, Who: "user cid", Delayed: 2}) {
		t.Errorf("who was too slow is not told: %+v", g)
	}
	for i := range mostGreedy + 1 {
		l.Slow(Taker{Names: []string{fmt.Sprint("user ", i)}})
	}
	if len(l.slow) != mostGreedy || l.slow[0].name != "user 1" {
		t.Errorf("%+v are remembered", l.slow)
	}
	if len(l.refused) != 1 { // of the address, which holds something
		t.Errorf("%v are remembered", l.refused)
	}
}

// TestRates: who makes more calls than he may waits for his turn, gives up where that is too
// long, and holds up nobody else; a new limit counts at once.
func TestRates(t *testing.T) {
	most := map[string]int64{"user ann": 10}
	r := NewRates(func(name string) int64 { return most[name] })
	now := time.Unix(1000, 0)
	ann, bob := Taker{Names: []string{"10.0.0.1", "user ann"}}, Taker{Names: []string{"10.0.0.1", "user bob"}}
	for i := range 70 {
		wait, over := r.Next(ann, now, 5*time.Second)
		want := max(time.Duration(i-19)*100*time.Millisecond, 0)
		if over != "" || wait.Round(time.Millisecond) != want {
			t.Fatalf("call %d waits %s, want %s; over %q", i, wait, want, over)
		}
	}
	for range 3 { // and refusals add nothing
		if wait, over := r.Next(ann, now, 5*time.Second); over != "user ann" || wait.Round(time.Millisecond) != 5100*time.Millisecond {
			t.Errorf("%s, %q", wait, over)
		}
	}
	if wait, over := r.Next(bob, now, 0); wait != 0 || over != "" {
		t.Errorf("another one waits %s, over %q", wait, over)
	}
	if g := r.Greedy(now); len(g) != 1 || g[0].Who != "user ann" || g[0].Delayed != 50 || g[0].Refused != 3 || g[0].Most != 10 {
		t.Errorf("%+v", g)
	}
	if held := r.Held("ann", now); !slices.Equal(held, r.Greedy(now)) {
		t.Errorf("ann is told of %+v", held)
	}
	if held := append(r.Held("bob", now), r.Held("10.0.0.1", now)...); len(held) > 0 {
		t.Errorf("who has no limit is told of %+v", held)
	}
	if n := r.Refusals(); n != 3 {
		t.Errorf("%d refusals in all", n)
	}
	if wait, over := r.Next(ann, now.Add(7*time.Second), 0); wait != 0 || over != "" {
		t.Errorf("a while later: %s, %q", wait, over)
	}
	most["user ann"] = 0
	if wait, _ := r.Next(ann, now, 0); wait != 0 {
		t.Errorf("without a limit: %s", wait)
	}
}

// TestRatesAreForgotten: names that anybody can think up take no memory for good.
func TestRatesAreForgotten(t *testing.T) {
	r := NewRates(func(string) int64 { return 10 })
	now := time.Unix(1000, 0)
	for i := range 200_000 {
		r.Next(User(string(rune('a'+i%26))+time.Duration(i).String()), now.Add(time.Duration(i)*time.Millisecond), time.Second)
	}
	if n := len(r.of); n > 5000 {
		t.Errorf("%d are remembered", n)
	}
}
