package readlease

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

// TestGrantAlone: a key that one session may hold goes from one to the other by
// a change, and no way else.
func TestGrantAlone(t *testing.T) {
	tab, c := fresh(t)
	a, b := join(t, tab, 1), join(t, tab, 2)
	want := func(p *peer, want bool) {
		t.Helper()
		if tab.GrantAlone(p.id, attrs) != want {
			t.Fatalf("granted: %v", !want)
		}
	}
	want(a, true)
	want(a, true)
	want(b, false)
	// A change of the holder's own leaves it the key.
	change := tab.RevokeGiven([]Key{attrs}, &GivenUp{Session: a.id, Stream: a.n, Keys: []Key{attrs}, Held: []Key{attrs}})
	if change.Pending() || len(a.told) > 0 {
		t.Fatalf("told %v", a.told)
	}
	want(a, false) // it is marked
	change.Done()
	want(b, false)
	// One of another takes it away.
	change = tab.Revoke([]Key{attrs})
	if !change.Pending() || len(a.told) != 1 {
		t.Fatalf("told %v", a.told)
	}
	want(a, false)
	want(b, false)
	a.ackAll()
	if change.Pending() {
		t.Fatal("still pending")
	}
	change.Done()
	want(b, true)
	want(a, false)
	// Who has gone holds it for as long as its term.
	b.st.Disconnect()
	want(a, false)
	c.Advance(tab.cfg.Term + tab.cfg.Margin)
	renewOn(tab, a.id)
	for _, id := range tab.Gone(10) {
		tab.Forget(id)
	}
	tab.sweep()
	want(a, true)
	if tab.GrantAlone(SessionID{99}, attrs) {
		t.Fatal("granted to nobody")
	}
	if wrong := tab.check(); len(wrong) > 0 {
		t.Fatal(wrong)
	}
}

// TestHolds: a key is held until its withdrawal is acknowledged, or the session
// begins again.
func TestHolds(t *testing.T) {
	tab, _ := fresh(t)
	a := join(t, tab, 1)
	want := func(want bool) {
		t.Helper()
		if tab.Holds(a.id, attrs) != want {
			t.Fatalf("holds: %v", !want)
		}
	}
	want(false)
	if !tab.GrantAlone(a.id, attrs) {
		t.Fatal("not granted")
	}
	want(true)
	if got := tab.Inodes(attrs.Kind); len(got) != 1 || got[0] != attrs.Inode || len(tab.Inodes(attrs.Kind+1)) > 0 {
		t.Fatal(got)
	}
	change := tab.Revoke([]Key{attrs})
	want(true)
	a.ackAll()
	want(false)
	if got := tab.Inodes(attrs.Kind); len(got) > 0 { // it is marked yet
		t.Fatal(got)
	}
	change.Done()
	if tab.Holds(SessionID{99}, attrs) {
		t.Fatal("nobody holds it")
	}
}
