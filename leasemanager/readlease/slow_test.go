package readlease

import (
	"testing"
	"time"
)

// slowly has a session that holds a key acknowledge a change of it after some time.
func slowly(t *testing.T, p *peer, after time.Duration, pass func(time.Duration)) {
	t.Helper()
	if renewOn(p.t, p.id) == 0 {
		t.Fatal("it has no term")
	}
	wantGrant(t, p, true, attrs, name)
	c, other := p.t.Revoke([]Key{attrs}), p.t.Revoke([]Key{name})
	pass(after)
	wantPending(t, c, true)
	p.ackAll()
	wantPending(t, c, false)
	c.Done()
	other.Done()
}

// A session that again and again acknowledges late, if always in its term, is lent nothing for
// a while; what it acknowledged in time it need not drop.
func TestSlowAcknowledgements(t *testing.T) {
	tab, c := fresh(t)
	p := join(t, tab, 1)
	late := tab.cfg.Term - 1
	for range slowMost {
		slowly(t, p, late, c.Advance)
	}
	if renewOn(tab, p.id) != 0 {
		t.Error("it is lent to as if nothing were")
	}
	again := &peer{t: tab, id: SessionID{2}, of: p.of}
	again.connect()
	if again.st.Renew() != 0 {
		t.Error("it is lent to as another session")
	}
	if other := join(t, tab, 3); other.st.Renew() == 0 {
		t.Error("another is lent nothing")
	}
	c.Advance(tab.cfg.Penalty)
	if renewOn(tab, p.id) != tab.cfg.Term {
		t.Error("it is lent nothing when its time is over")
	}
}

// Who stalls now and then, or acknowledges in good time, is lent to.
func TestHonestAcknowledgements(t *testing.T) {
	tab, c := fresh(t)
	p := join(t, tab, 1)
	for range 20 {
		slowly(t, p, tab.cfg.Term/slowPart, c.Advance)
	}
	for range 20 {
		for range slowMost - 1 {
			slowly(t, p, tab.cfg.Term-1, c.Advance) // two revocations, and one stall
		}
		c.Advance(tab.cfg.Penalty)
	}
	slowly(t, p, 0, c.Advance)
}
