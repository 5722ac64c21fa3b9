package namespace

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode/namespace/tables"
)

// passModel is what the model knows of passes: all that were made and not cancelled.
type passModel map[uint64]tables.Pass

// NewPass makes a pass, with a call that may be repeated.
func (m *machine) NewPass(t *rapid.T) {
	p := tables.Pass{
		Sum:  [32]byte{byte(rapid.IntRange(1, 40).Draw(t, "sum")), 31: 1},
		User: rapid.SampledFrom([]string{"u1", "u2", ""}).Draw(t, "user"), Renewer: "u2",
		TTL: rapid.SampledFrom([]int64{0, 1, 20, 60_000, tables.MaxPassTTL, tables.MaxPassTTL + 1}).Draw(t, "ttl"),
	}
	if rapid.Bool().Draw(t, "known") {
		p.Known, p.Groups = true, []string{"g1", "g2"}[:rapid.IntRange(0, 2).Draw(t, "groups")]
	}
	want := fserror.Kind(0)
	switch known := m.tree.Passes(nil).Find(p.Sum); {
	case p.User == "" || p.TTL < 1 || p.TTL > tables.MaxPassTTL:
		want = fserror.InvalidArgument
	case known != nil:
		want = fserror.Exists
		if _, ok := m.passes[known.ID]; !ok {
			t.Fatalf("pass %d is there", known.ID)
		}
	}
	if !expect(t, "pass", m.tree.Passes(nil).MayIssue(&p, m.now), want) {
		return
	}
	m.seq++
	call := CallID{Session: SessionID{7}, Seq: m.seq, Hash: m.seq}
	res, err := m.apply(call, &OpPass{Pass: p})
	p.ID, p.Issued, p.Until = res.TxID, m.now, m.now+p.TTL
	got, known, cerr := m.tree.CallResult(call)
	if err != nil || cerr != nil || !known || got.TxID != p.ID || got.Length != p.Until || got.BlocksLength != p.Issued {
		t.Fatalf("pass: %+v, %v; as a result %+v %t %v", res, err, got, known, cerr)
	}
	m.passes[p.ID] = p
}

// ChangePass renews or cancels one.
func (m *machine) ChangePass(t *rapid.T) {
	ids := append(slices.Sorted(maps.Keys(m.passes)), 1<<40)
	id := rapid.SampledFrom(ids).Draw(t, "pass")
	user := rapid.SampledFrom([]string{"u1", "u2", "u3"}).Draw(t, "user")
	cancel, super := rapid.IntRange(0, 3).Draw(t, "cancel") == 0, rapid.IntRange(0, 5).Draw(t, "super") == 0
	p := m.passes[id]
	sum := p.Sum
	if rapid.Bool().Draw(t, "by id") {
		sum = [32]byte{}
	} else {
		id = 0
	}
	there := m.tree.Passes(nil).Find(p.Sum) != nil
	want := fserror.Kind(0)
	switch {
	case !there && p.Until > m.now:
		t.Fatalf("pass %d is forgotten", p.ID)
	case !there || user != p.User && user != p.Renewer && !super:
		want = fserror.NotFound
	case cancel:
	case p.Until <= m.now:
		want = fserror.InvalidArgument
	case user != p.Renewer:
		want = fserror.Permission
	}
	got, err := m.tree.Passes(nil).MayChange(id, sum, user, super, cancel, m.now)
	if !expect(t, "pass change", err, want) {
		return
	}
	if _, err := m.apply(CallID{}, &OpPassChange{ID: got.ID, Cancel: cancel}); err != nil {
		t.Fatal(err)
	}
	p.Until = min(m.now+p.TTL, p.Issued+tables.MaxPassLife)
	if m.passes[got.ID] = p; cancel {
		delete(m.passes, got.ID)
	}
}

// checkPasses compares all passes with the model: those that have expired may be forgotten.
func (m *machine) checkPasses(t *rapid.T) {
	seen := 0
	m.tree.Passes(nil).List("", 0, func(p *tables.Pass) bool {
		want := m.passes[p.ID]
		if seen++; p.Until != want.Until || p.Issued != want.Issued || p.User != want.User || p.Known != want.Known || !slices.Equal(p.Groups, want.Groups) {
			t.Fatalf("pass %+v, should be %+v", p, want)
		}
		return true
	})
	for _, p := range m.passes {
		if p.Until > m.now && m.tree.Passes(nil).Find(p.Sum) == nil {
			t.Fatalf("pass %d is forgotten before its time", p.ID)
		}
	}
	if seen != m.tree.Counts().Passes {
		t.Fatalf("%d passes, counted as %d", seen, m.tree.Counts().Passes)
	}
}

// A pass is renewed for its time and never beyond its life; those that have expired make
// room for others; and nobody takes the room of all.
func TestPasses(t *testing.T) {
	r := newRig(t)
	issue := func(n int, user string) error {
		p := tables.Pass{Sum: [32]byte{byte(n), byte(n >> 8), byte(n >> 16), 1}, User: user, Renewer: user, TTL: tables.MaxPassTTL}
		if err := r.tree.Passes(nil).MayIssue(&p, r.now); err != nil {
			return err
		}
		r.must(t, &OpPass{Pass: p})
		return nil
	}
	if err := issue(0, "ann"); err != nil {
		t.Fatal(err)
	}
	first := *r.tree.Passes(nil).Find([32]byte{3: 1})
	for range 9 {
		r.now += tables.MaxPassTTL - 10
		p, err := r.tree.Passes(nil).MayChange(first.ID, [32]byte{}, "ann", false, false, r.now)
		if err != nil {
			break
		}
		if p.Until > first.Ends() {
			t.Fatalf("it is good until %d, and ends at %d", p.Until, first.Ends())
		}
		r.must(t, &OpPassChange{ID: p.ID})
	}
	if p := r.tree.Passes(nil).Find(first.Sum); p == nil || p.Until != first.Ends() || r.now < p.Until {
		t.Errorf("renewed until %+v, of a life until %d", p, first.Ends())
	}
	if err := issue(1, "bob"); err != nil || r.tree.Passes(nil).Find(first.Sum) != nil {
		t.Errorf("%v, or an expired one is kept", err)
	}
	n := 2
	fill := func(user string) (made int) {
		for issue(n, user) == nil {
			n++
			made++
		}
		wantKind(t, issue(n, user), fserror.Retry)
		return made
	}
	if made, most := fill("ann"), tables.MaxUserPassBytes/(tables.PassBytes+2*len("ann")); made != most {
		t.Errorf("one user got %d, not %d", made, most)
	}
	long := tables.Pass{Sum: [32]byte{2}, User: "dave", Renewer: "dave", Known: true, Groups: []string{strings.Repeat("g", 4000)}, TTL: tables.MaxPassTTL}
	made := 0
	for ; r.tree.Passes(nil).MayIssue(&long, r.now) == nil; made++ {
		r.must(t, &OpPass{Pass: long})
		long.Sum[1], long.Sum[2] = byte(made), byte(made>>8)+1
	}
	if most := tables.MaxUserPassBytes / (tables.PassBytes + 4000); made > most {
		t.Errorf("a user with a long list of groups got %d, more than %d", made, most)
	}
	for user := 0; user < 14; user++ { // three quarters of all are taken then
		fill("greedy" + string(rune('a'+user)))
	}
	if err := issue(n, "carol"); err != nil {
		t.Errorf("who has none gets none: %v", err)
	}
	n++
	if made := fill("carol"); made > 200 {
		t.Errorf("of the last quarter a user got %d", made)
	}
	sound(t, r.tree)
	roundTrip(t, r.tree)
	r.now += tables.MaxPassTTL
	for i := range 4 {
		if err := issue(n+1+i, "ann"); err != nil {
			t.Errorf("expired ones are in the way: %v", err)
		}
	}
	r.refused(t, &OpPassChange{ID: 1 << 40})
	r.refused(t, &OpPass{Pass: tables.Pass{User: "ann", Renewer: "ann", TTL: 1, Groups: []string{""}, Known: true}})
}
