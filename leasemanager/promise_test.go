package leasemanager

import (
	"strings"
	"testing"
	"time"
)

// What an answered renewal promises holds, whenever the namenode crashes after
// it: the journal may have an age from the silence before. The record of a writer
// has the journal forget that.
func TestAnsweredRenewalsOutliveACrash(t *testing.T) {
	const ttl = time.Minute
	for _, silence := range []time.Duration{10 * time.Second, 47 * time.Second, 59 * time.Second} {
		for _, cause := range []string{"crash", "crash with a lapsed file", "write", "write to a lapsed file"} {
			step := time.Second
			if strings.HasPrefix(cause, "write") {
				step = 5 * time.Second
			}
			for after := time.Duration(0); after <= 40*time.Second; after += step {
				r := newReigns(t)
				r.files[Ref{1, 1}], r.files[Ref{2, 2}] = client("a", 1), client("a", 1)
				r.granted[7] = Granted{Holder: client("g", 9), ID: 7, TTL: ttl}
				r.activate()
				version := uint64(1)
				renew := func() (RenewResult, time.Duration) {
					res := r.m.Renew(Renewal{Session: sid(1), HasSet: true, Open: []Ref{{1, 1}, {2, 2}}, Version: version})
					lives, _ := r.m.KeepAlive(7)
					return res, lives
				}
				r.run(100*time.Second, func() { renew() })
				if res, lives := renew(); res.Soft != soft || res.Hard != hard || res.Next != every || lives != ttl {
					t.Fatalf("%+v, %v", res, lives)
				}
				r.run(silence, nil)
				if strings.HasSuffix(cause, "a lapsed file") { // the holder's own age, and that of a file that it listed no more
					r.m.Renew(Renewal{Session: sid(1), HasSet: true, Open: []Ref{{1, 1}}, Version: 2})
					r.m.KeepAlive(7)
					version = 3
					r.run(silence, nil)
				}
				res, lives := renew()
				if strings.HasPrefix(cause, "write") { // its record promises the whole limits
					r.write(sid(1), 1)
					r.write(sid(1), 2)
					res.Soft, res.Hard = soft, hard
				}
				renewed := r.now
				r.run(after, nil)
				r.activate()
				for r.now-renewed < res.Soft {
					for _, inode := range []uint64{1, 2} {
						if v, _ := r.m.MayTake(inode, client("b", 2)); v != Held {
							t.Fatalf("silent for %v, %s after %v: file %d is %v %v after a renewal that promised %v", silence, cause, after, inode, v, r.now-renewed, res.Soft)
						}
					}
					r.run(time.Second, nil)
				}
				r.run(hard+soft, nil)
				if at := r.ended[AgeKey{Granted: 7}] - renewed; at < lives {
					t.Fatalf("silent for %v, %s after %v: ended %v after a keep-alive that promised %v", silence, cause, after, at, lives)
				}
				for _, key := range []AgeKey{{Inode: 1}, {Inode: 2}} {
					if at := r.ended[key] - renewed; at < res.Hard {
						t.Fatalf("silent for %v, %s after %v: %+v ended %v after a renewal that promised %v", silence, cause, after, key, at, res.Hard)
					}
				}
			}
		}
	}
}

// A renewal after a long silence promises less and asks for another soon; the
// next ones promise the whole limits, once a record without the age is durable,
// and not while it is only planned.
func TestPromisesAreWholeAgainSoon(t *testing.T) {
	m, c := fresh(t)
	a := client("a", 1)
	m.Open(a, 1, 1)
	m.Grant(a, 5, soft)
	confirm(t, m, a, 1, Ref{1, 1})
	c.Advance(47 * time.Second)
	ages := m.CheckAges(10)
	if len(ages) != 2 {
		t.Fatalf("%+v", ages)
	}
	renew := func() (RenewResult, time.Duration) {
		lives, _ := m.KeepAlive(5)
		return m.Renew(Renewal{Session: a.Session, Version: 1}), lives
	}
	lowered := func(when string) {
		t.Helper()
		if res, lives := renew(); res.Soft != every || res.Hard != hard-47*time.Second || res.Next != every/10 || lives != soft/3 {
			t.Errorf("%s: %+v, %v", when, res, lives)
		}
	}
	if hold := m.AgesJournalled(ages); len(hold) != 2 {
		t.Fatalf("%+v", hold)
	}
	lowered("before the record is durable")
	m.AgesDurable(ages)
	lowered("after the record")
	c.Advance(DefaultAgeEvery)
	renew()
	ages = wantAges(t, m, Age{AgeKey: AgeKey{Granted: 5}}, Age{AgeKey: AgeKey{Session: a.Session}})
	m.AgesJournalled(ages)
	lowered("while the record is not durable")
	m.AgesDurable(ages)
	if res, lives := renew(); res.Soft != soft || res.Hard != hard || res.Next != every || lives != soft {
		t.Errorf("%+v, %v", res, lives)
	}

	// A record that could not be written counts until the next look.
	c.Advance(47 * time.Second)
	if ages = m.CheckAges(10); len(ages) != 2 {
		t.Fatalf("%+v", ages)
	}
	lowered("after a record that failed")
	c.Advance(DefaultAgeEvery)
	renew()
	wantAges(t, m)
	if res, lives := renew(); res.Soft != soft || lives != soft || len(m.owed) > 0 {
		t.Errorf("%+v, %v, %v", res, lives, m.owed)
	}
}
