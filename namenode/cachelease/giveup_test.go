package cachelease

import "testing"

// TestGivenUpAhead: who has given up what it is about to change is neither told nor
// waited for; all others are.
func TestGivenUpAhead(t *testing.T) {
	tab, _ := fresh(t)
	a, b := join(t, tab, 1), join(t, tab, 2)
	both := []Key{attrs, name}
	grant := func(p *peer, want bool) {
		t.Helper()
		if tab.Grant(p.id, both) != want {
			t.Fatalf("granted: %v", !want)
		}
	}
	grant(a, true)
	given := &GivenUp{Session: a.id, Stream: a.n, Keys: both, Held: []Key{attrs}}
	c := tab.RevokeGiven(both, given)
	if c.Pending() || len(a.told) != 0 {
		t.Fatalf("pending %v, told %v", c.Pending(), a.told)
	}
	grant(a, false) // it is being changed
	c.Done()
	if n := tab.Stats().Holdings; n != 1 {
		t.Fatalf("%d are held", n)
	}
	// What it held on to is still told of.
	c = tab.Revoke(both)
	if !c.Pending() || len(a.told) != 1 || len(a.told[0].Keys) != 1 || a.told[0].Keys[0] != attrs {
		t.Fatalf("pending %v, told %v", c.Pending(), a.told)
	}
	a.ackAll()
	c.Done()

	// Others are waited for.
	grant(a, true)
	grant(b, true)
	a.told = nil
	c = tab.RevokeGiven(both, given)
	if !c.Pending() || len(a.told) != 0 || len(b.told) != 1 {
		t.Fatalf("pending %v, told %v and %v", c.Pending(), a.told, b.told)
	}
	b.ackAll()
	if c.Pending() || c.More(both) {
		t.Fatal("still pending")
	}
	c.Done()

	// A revocation that is not acknowledged yet is waited for as ever.
	grant(a, true)
	first := tab.Revoke(both)
	second := tab.RevokeGiven(both, given)
	if !second.Pending() {
		t.Fatal("not pending")
	}
	a.ackAll()
	if first.Pending() || second.Pending() {
		t.Fatal("still pending")
	}
	first.Done()
	second.Done()

	// The promise is one of its stream.
	a.connect()
	if renewOn(tab, a.id) == 0 {
		t.Fatal("no term")
	}
	grant(a, true)
	c = tab.RevokeGiven(both, given)
	if !c.Pending() || len(a.told) != 1 {
		t.Fatal("an old promise counted")
	}
	a.ackAll()
	c.Done()
	if wrong := tab.check(); len(wrong) > 0 {
		t.Fatal(wrong)
	}
}
