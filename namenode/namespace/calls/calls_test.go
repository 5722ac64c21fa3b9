package calls

import "testing"

// SetDurable may lag far behind without the queue holding what is done.
func TestTrackerQueue(t *testing.T) {
	var tr Tracker
	tr.Touch(1, Change{Inode: 1})
	if len(tr.Pending()) != 0 {
		t.Fatal("it tracks though it is off")
	}
	tr.On()
	for txid := uint64(1); txid <= 10_000; txid++ {
		tr.Touch(txid, Change{Inode: 1})
		tr.SetDurable(max(txid, 10) - 10)
	}
	if n := len(tr.queue); n > 100 {
		t.Fatalf("the queue holds %d", n)
	}
	if n := len(tr.Pending()); n != 1 {
		t.Fatalf("%d changes are pending", n)
	}
	tr.SetDurable(10_000)
	if len(tr.Pending()) != 0 || len(tr.queue) != tr.head {
		t.Fatalf("%d changes are still tracked", len(tr.Pending()))
	}
}

// One class of the mode decides: the owner's, the group's or that of others.
func TestAllowed(t *testing.T) {
	for _, c := range []struct {
		call *Call
		mode uint16
		want bool
	}{
		{nil, 0, true},
		{&Call{User: "x", Super: true}, 0, true},
		{&Call{User: "owner"}, 0o700, true},
		{&Call{User: "owner", Groups: []string{"group"}}, 0o077, false},
		{&Call{User: "x", Groups: []string{"a", "group"}}, 0o050, true},
		{&Call{User: "x", Groups: []string{"group"}}, 0o705, false},
		{&Call{User: "x"}, 0o005, true},
		{&Call{User: "x"}, 0o004, false},
	} {
		if got := c.call.MayList(Attr{Mode: c.mode, User: "owner", Group: "group"}); got != c.want {
			t.Errorf("%+v, mode %o: %t", c.call, c.mode, got)
		}
	}
}

func TestRefDir(t *testing.T) {
	for _, c := range []struct{ ref, dir Ref }{
		{At("/a/b"), Follow("/a")},
		{At("/a"), Follow("/")},
		{Ref{Base: 7, Path: "a/b", Expect: 9}, Ref{Base: 7, Path: "a", How: FollowLast}},
		{Ref{Base: 7, Path: "a", How: NoLinks}, Ref{Base: 7, How: FollowLast | NoLinks}},
	} {
		if got := c.ref.Dir(); got != c.dir {
			t.Errorf("%+v: %+v", c.ref, got)
		}
	}
}
