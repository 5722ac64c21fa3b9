package tables

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/namenode/namespace/codec"
)

// all is one of each table that checks itself.
type all struct {
	results Results
	leases  Leases
	ages    Ages
	cachers Cachers
	garbage Garbage
}

func filled() *all {
	a := empty()
	for s := range byte(3) {
		for seq := range uint64(4) {
			a.results.Remember(CallID{Session: SessionID{s + 1}, Seq: seq + 2, Acked: 1}, int64(s)<<20, CallResult{TxID: seq + 1})
		}
		a.cachers.Put(SessionID{s + 1}, 1000)
	}
	for id := range LeaseID(3) {
		a.leases.Grant(&Lease{ID: id + 1, TTL: 1000, Owner: LeaseOwner{User: "u"}, Name: []string{"n-1", "", "n-3"}[id]})
		a.leases.Attach(id+1, InodeID(10+id), 5, id == 1)
	}
	a.leases.Attach(3, 13, 6, true)
	a.leases.EndLease(3, 7, true, 1)
	a.leases.Grant(&Lease{ID: 3, TTL: 1000, Owner: LeaseOwner{User: "u"}, Name: "n-3"}) // free again
	a.leases.Grant(&Lease{ID: 4, TTL: 1000})
	a.leases.Attach(4, 14, 5, false)
	a.leases.EndLease(4, 5, false, 0)
	a.ages.Put(Age{AgeKey{Lease: 1}, 5})
	a.ages.Put(Age{AgeKey{Session: SessionID{1}}, 6})
	a.cachers.SetAside(SessionID{1}, 20, 20)
	a.cachers.Use(SessionID{1}, 23)
	a.garbage.Add(StoredBlock{blockstore.Key{Term: 1, Seq: 1}, 5}, 1)
	a.garbage.Add(StoredBlock{blockstore.Key{Term: 1, Seq: 2}, 6}, 2)
	return a
}

func always[T any](T) bool { return true }
func never[T any](T) bool  { return false }

// whereAttached is where what filled attaches is.
func whereAttached(id InodeID) (dir InodeID, isDir, can bool) {
	if id == 13 {
		return 6, true, true
	}
	return 5, id == 11, true
}

func (a *all) problems() (found []string) {
	problem := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }
	a.results.Check(problem)
	a.leases.Check(problem, whereAttached)
	a.ages.Check(problem, always)
	a.cachers.Check(problem, 40)
	a.garbage.Check(problem, never)
	return found
}

func (a *all) code(c *codec.Coder) {
	a.results.Code(c)
	a.leases.Code(c, 7, true, whereAttached)
	a.ages.Code(c, always)
	a.cachers.CodeTerms(c)
	a.cachers.CodeNumbers(c, 40)
	a.garbage.Code(c, never)
}

// TestCheckFinds damages each table: its check finds it; and a reader of what is
// written then refuses it, or has repaired it.
func TestCheckFinds(t *testing.T) {
	numbers := func(n numbers) func(*all) { return func(a *all) { a.cachers.ranges.ReplaceOrInsert(n) } }
	for name, damage := range map[string]func(*all){
		"session without age":  func(a *all) { a.results.idle.DeleteMin() },
		"age of no session":    func(a *all) { a.results.idle.ReplaceOrInsert(idleItem{1, SessionID{9}}) },
		"results out of order": func(a *all) { a.results.session(SessionID{1}).results[0].seq = 9 },
		"bytes of garbage":     func(a *all) { a.garbage.bytes++ },
		"garbage by time":      func(a *all) { a.garbage.byTime.DeleteMin() },
		"attached by file":     func(a *all) { a.leases.byFile.DeleteMin() },
		"attached by lease":    func(a *all) { a.leases.files.DeleteMin() },
		"end of a lease":       func(a *all) { a.leases.ended.DeleteMin() },
		"lease without an id":  func(a *all) { a.leases.byKey.ReplaceOrInsert(&Lease{ID: 9, TTL: 1, key: 99}) },
		"lost name":            func(a *all) { a.leases.names.DeleteMin() },
		"name of nobody":       func(a *all) { a.leases.names.ReplaceOrInsert(namedLease{user: "u", name: "n-9", key: 99}) },
		"lost id":              func(a *all) { a.leases.living.DeleteMin() },
		"files of a lease":     func(a *all) { l := *a.leases.Get(1); l.Files++; a.leases.byKey.ReplaceOrInsert(&l) },
		"places of a lease":    func(a *all) { a.leases.places.DeleteMin() },
		"entries in a place":   func(a *all) { p, _ := a.leases.places.Min(); p.Entries++; a.leases.places.ReplaceOrInsert(p) },
		"dead entries":         func(a *all) { a.leases.addDead(5, 1) },
		"dead elsewhere":       func(a *all) { a.leases.addDead(9, 1) },
		"age of nothing":       func(a *all) { a.ages.Put(Age{MS: 1}) },
		"age of two things":    func(a *all) { a.ages.Put(Age{AgeKey{Inode: 1, Lease: 1}, 1}) },
		"age below zero":       func(a *all) { a.ages.Put(Age{AgeKey{Inode: 1}, -1}) },
		"caching for no time":  func(a *all) { a.cachers.terms.ReplaceOrInsert(cacher{session: SessionID{9}}) },
		"numbers beyond":       numbers(numbersOf(2, 1<<40, 5, "")),
		"no numbers":           numbers(numbersOf(2, 4, 0, "")),
		"numbers of nobody":    numbers(numbersOf(9, 4, 1, "")),
		"another's numbers":    numbers(numbersOf(2, 22, 1, "")),
		"numbers, bits short":  numbers(numbersOf(2, 4, 10, "\x01")),
		"numbers, bits beyond": numbers(numbersOf(2, 4, 2, "\x04")),
		"numbers, bits empty":  numbers(numbersOf(2, 4, 2, "\x00")),
	} {
		a := filled()
		if p := a.problems(); len(p) > 0 {
			t.Fatal(p)
		}
		damage(a)
		if len(a.problems()) == 0 {
			t.Errorf("%s: not found", name)
		}
		back, r := empty(), codec.Decoder(a.written())
		if back.code(r); r.OK() && len(back.problems()) > 0 {
			t.Errorf("%s: an image has it", name)
		}
	}
}

func numbersOf(session byte, first InodeID, count uint32, used string) numbers {
	return numbers{SessionID{session}, first, count, used}
}

func empty() *all { return &all{NewResults(), NewLeases(), NewAges(), NewCachers(), NewGarbage()} }

// written is all that the tables have.
func (a *all) written() []byte {
	c := codec.Encoder(nil)
	a.code(c)
	return c.Written()
}

// TestTables: what is written is read again, and clones stay as they are.
func TestTables(t *testing.T) {
	a := filled()
	back, r := empty(), codec.Decoder(a.written())
	if back.code(r); !r.OK() || r.Left() > 0 {
		t.Fatal(r.Why(), r.Left())
	}
	if p := back.problems(); len(p) > 0 || !bytes.Equal(back.written(), a.written()) {
		t.Fatalf("%v %+v", p, back)
	}

	clone := &all{a.results.Clone(), a.leases.Clone(), a.ages.Clone(), a.cachers.Clone(), a.garbage.Clone()}
	for name, change := range map[string]func(*all){
		"results": func(a *all) { a.results.Remember(CallID{Session: SessionID{1}, Seq: 9, Acked: 3}, 1, CallResult{}) },
		"leases":  func(a *all) { a.leases.Detach(10, 5) },
		"ages":    func(a *all) { a.ages.Forget(AgeKey{Lease: 1}) },
		"terms":   func(a *all) { a.cachers.Put(SessionID{2}, 0) },
		"numbers": func(a *all) { a.cachers.Use(SessionID{1}, 24) },
		"garbage": func(a *all) { a.garbage.Remove(blockstore.Key{Term: 1, Seq: 1}) },
	} {
		change(a)
		if bytes.Equal(a.written(), clone.written()) {
			t.Errorf("%s: no difference is seen", name)
		}
		if !bytes.Equal(clone.written(), back.written()) {
			t.Errorf("%s: a clone has changed", name)
		}
		change(clone) // so that the next change is the only difference
		change(back)
	}
}

// TestOwners: names keep their numbers, and a clone does not see new ones.
func TestOwners(t *testing.T) {
	o := NewOwners()
	a := o.Add("a")
	clone := o.Clone()
	b := o.Add("b")
	if o.Add("a") != a || o.Name(a) != "a" || o.Name(b) != "b" || o.Len() != 3 {
		t.Error(a, b, o.Len())
	}
	if _, ok := clone.Number("b"); ok || clone.Len() != 2 {
		t.Error("the clone has a new name")
	}
	for i := range MaxOwners {
		if name := fmt.Sprint(i); o.Fits(name) {
			o.Add(name)
		}
	}
	if o.Len() != MaxOwners+1 || o.Fits("one more") || !o.Fits("a") {
		t.Error(o.Len())
	}
}

// TestReigns: the latest are known, and an image has them.
func TestReigns(t *testing.T) {
	var r Reigns
	for term := range uint64(MaxReigns + 10) {
		r.Begin(term+1, [16]byte{byte(term)})
		r.Committed(term+1, 5)
		r.Committed(term+1, 3)
		r.Committed(term, 9)
	}
	all := r.All()
	if len(all) != MaxReigns || all[0].Term != 11 || all[MaxReigns-1] != (Reign{MaxReigns + 10, [16]byte{MaxReigns + 9}, 5}) {
		t.Fatal(all)
	}
	w := codec.Encoder(nil)
	r.Code(w)
	for _, term := range []uint64{r.Term, r.Term + 1} {
		back := Reigns{Reign: Reign{Term: term}}
		c := codec.Decoder(w.Written())
		if back.Code(c); c.OK() != (term == r.Term) || c.OK() && !slices.Equal(r.All(), back.All()) {
			t.Error(term, c.Why())
		}
	}
	none := Reigns{Reign: Reign{Term: 3}}
	c := codec.Decoder([]byte{0})
	if none.Code(c); c.OK() {
		t.Error("a term without a reign is read")
	}
}

// TestReignsOfOneTermCountFromTheirOwn: the base comes from the nonce alone, is beyond
// the numbers of releases that counted from one, and leaves room to count.
func TestReignsOfOneTermCountFromTheirOwn(t *testing.T) {
	lowest, highest := Reign{Term: 3}, Reign{Term: 3, Nonce: [16]byte{255, 255, 255, 255, 255, 255, 255, 255}}
	if lowest.Base() != 1<<52 || highest.Base() != 1<<53-1<<51-1 {
		t.Errorf("%x to %x", lowest.Base(), highest.Base())
	}
	a, b := Reign{Term: 3, Nonce: [16]byte{1}}, Reign{Term: 3, Nonce: [16]byte{2}}
	if a.Base() == b.Base() {
		t.Errorf("both count from %x", a.Base())
	}
	if again := (Reign{Term: 4, Nonce: a.Nonce, Top: 9}); again.Base() != a.Base() {
		t.Errorf("%x, then %x: what a record or an image says must not move it", a.Base(), again.Base())
	}
}

// TestSpent: three quarters of the last range have to be used, whatever is left of others.
func TestSpent(t *testing.T) {
	c := NewCachers()
	id, other := SessionID{1}, SessionID{2}
	if !c.Spent(id) {
		t.Error("of nothing there is something left")
	}
	c.SetAside(id, 1000, 100)
	c.SetAside(other, 1100, 100)
	for first := range 2 {
		from := InodeID(1000 + 200*first)
		for i := range InodeID(75) {
			if c.Spent(id) {
				t.Fatalf("%d of 100 are used", i)
			}
			c.Use(id, from+i)
			c.Use(id, from+i)
		}
		if !c.Spent(id) || c.Spent(other) {
			t.Errorf("of the range from %d on three quarters are used: %t, of the other's nothing: %t", from, c.Spent(id), c.Spent(other))
		}
		c.SetAside(id, 1200, 100)
	}
}
