package readlease

import "testing"

// Who lost a lease gets none under another id before the penalty is over. Others
// do, and so do the owner's other sessions, until another one loses its lease, too.
func TestANewIDIsNoWayAroundThePenalty(t *testing.T) {
	tab, clk := fresh(t)
	of := func(owner string, n byte) *peer {
		p := &peer{t: tab, id: SessionID{n}, of: owner}
		p.connect()
		return p
	}
	lent := func(p *peer) bool { return p.st.Renew() > 0 && tab.Grant(p.id, []Key{attrs}) }
	silent := func(p *peer) {
		t.Helper()
		if !lent(p) {
			t.Fatalf("nothing is lent to %d", p.id[0])
		}
		c := tab.Revoke([]Key{attrs})
		clk.Advance(tab.grantorsTerm())
		if c.Pending() {
			t.Fatal("its term is over")
		}
		c.Done()
	}
	one, two := of("a", 1), of("a", 2)
	silent(one)
	if lent(of("a", 3)) {
		t.Error("a new session of who was silent is lent to")
	}
	if !lent(of("b", 4)) {
		t.Error("a new session of another is not lent to")
	}
	two.st.Disconnect()
	two.connect()
	if !lent(two) {
		t.Error("a session that was there before is not lent to")
	}
	three := of("b", 5)
	silent(two)
	if lent(of("a", 6)) || !lent(three) {
		t.Error("two silent ones of one owner are not told from others")
	}
	four := of("a", 7)
	four.st.Disconnect()
	if ids := tab.Gone(10); len(ids) == 0 || !tab.Forget(four.id) {
		t.Errorf("who never had a lease is remembered: %v are gone", ids)
	}
	clk.Advance(tab.cfg.Penalty)
	if !lent(of("a", 8)) {
		t.Error("not lent to after the penalty")
	}
}

// Nothing is kept of owners that have no session, and no penalty any more.
func TestOwnersAreForgotten(t *testing.T) {
	tab, clk := fresh(t)
	p := join(t, tab, 1)
	tab.Grant(p.id, []Key{attrs})
	p.st.Disconnect()
	c := tab.Revoke([]Key{attrs})
	clk.Advance(tab.grantorsTerm())
	c.Pending()
	c.Done()
	for range 2 {
		clk.Advance(tab.cfg.Penalty)
		for _, id := range tab.Gone(10) {
			tab.Forget(id)
		}
	}
	tab.Gone(10)
	if len(tab.owners.all) != 0 {
		t.Fatalf("%d owners are remembered", len(tab.owners.all))
	}
}
