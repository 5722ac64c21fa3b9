package readcache

import "testing"

// TestGiveUp: what is given up for a change of one's own is neither answered nor
// kept until the reply is there, but for what came with it.
func TestGiveUp(t *testing.T) {
	c, _ := fresh(t, func(cfg *Config[string, int]) { cfg.Outlives = func(k string) bool { return k == "filter" } })
	is := func(k string, want bool) {
		t.Helper()
		if _, ok := c.Get(k); ok != want {
			t.Fatalf("%s is kept: %v", k, ok)
		}
	}
	before := c.Ticket()
	c.Put(before, "stat", 1, []Key{attrs, name})
	c.Put(before, "filter", 1, []Key{attrs, attrs})
	c.Put(before, "twice", 1, []Key{attrs, attrs})
	c.Put(before, "other", 1, []Key{name})
	g := c.GiveUp([]Key{attrs})
	is("stat", false)
	is("twice", false)
	is("filter", true)
	is("other", true)
	// Whatever is read while the change is under way may be from before it.
	during := c.Ticket()
	if c.Put(during, "stat", 2, []Key{attrs}) {
		t.Fatal("kept what was given up")
	}
	if !g.Keep("reply", 3, []Key{attrs, name}) {
		t.Fatal("what came with the reply was not kept")
	}
	g.Resume()
	is("reply", true)
	if c.Put(during, "late", 4, []Key{attrs}) {
		t.Fatal("kept what was read before the reply")
	}
	if !c.Put(c.Ticket(), "new", 5, []Key{attrs}) {
		t.Fatal("not kept though read after the reply")
	}
	// Somebody else's change drops it all.
	c.Revoke([]Key{attrs}, false)
	is("filter", false)
	is("reply", false)
}

// TestGiveUpTwo: of two changes of one's own under way neither keeps what the
// other may change.
func TestGiveUpTwo(t *testing.T) {
	c, _ := fresh(t)
	a, b := c.GiveUp([]Key{attrs}), c.GiveUp([]Key{attrs, name})
	if a.Keep("a", 1, []Key{attrs}) {
		t.Fatal("B is still under way")
	}
	a.Resume()
	if b.Keep("b", 1, []Key{attrs}) {
		t.Fatal("A came in between")
	}
	if !b.Keep("name", 1, []Key{name}) {
		t.Fatal("the name is B's alone")
	}
	b.Resume()
	if !c.Put(c.Ticket(), "after", 1, []Key{attrs, name}) {
		t.Fatal("both are over")
	}
}

// TestGiveUpRevoked: a revocation that comes meanwhile is newer than the reply.
func TestGiveUpRevoked(t *testing.T) {
	c, _ := fresh(t)
	g := c.GiveUp([]Key{attrs})
	c.Revoke([]Key{name}, false)
	if g.Keep("a", 1, []Key{attrs, name}) {
		t.Fatal("kept what was revoked")
	}
	g.Resume()
}

// TestGiveUpUnknown: a change whose outcome is not known goes with the stream.
func TestGiveUpUnknown(t *testing.T) {
	c, _ := fresh(t)
	g := c.GiveUp([]Key{attrs})
	c.Disconnected()
	if c.GiveUp([]Key{attrs}) != nil {
		t.Fatal("given up with nobody to tell")
	}
	c.Connected()
	c.Extend(c.Now(), term)
	if !c.Put(c.Ticket(), "new", 1, []Key{attrs}) {
		t.Fatal("a new stream begins without what was under way")
	}
	if g.Keep("late", 1, []Key{attrs}) {
		t.Fatal("a reply of before")
	}
	g.Resume()
	if _, ok := c.Get("new"); !ok {
		t.Fatal("the end of an old change dropped something")
	}
}
