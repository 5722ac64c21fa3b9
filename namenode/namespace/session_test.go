package namespace

import (
	"errors"
	"testing"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode/namespace/tables"
)

func TestCallResults(t *testing.T) {
	r := newRig(t)
	call := func(seq, acked uint64) CallID {
		return CallID{Session: SessionID{5}, Seq: seq, Acked: acked, Hash: seq * 100}
	}
	apply := func(id CallID, op Op) Result {
		t.Helper()
		res, err := r.apply(id, op)
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	known := func(id CallID) bool {
		t.Helper()
		_, ok, err := r.tree.CallResult(id)
		if err != nil {
			t.Fatal(err)
		}
		return ok
	}
	if known(call(1, 0)) {
		t.Fatal("known before it came")
	}
	made := apply(call(2, 0), &OpMkdir{Parent: RootID, Names: []string{"two"}, Mode: 0o755})
	apply(call(1, 0), &OpMkdir{Parent: RootID, Names: []string{"one"}, Mode: 0o755})
	res, ok, err := r.tree.CallResult(call(2, 0))
	if err != nil || !ok || res.Inode != made.Inode || res.TxID != made.TxID || res.Op != opType(new(OpMkdir)) {
		t.Fatalf("%+v %v %v", res, ok, err)
	}
	if known(CallID{}) || known(call(3, 0)) {
		t.Fatal("knows what never came")
	}

	// The same number for another request; the same record again.
	other := call(2, 0)
	other.Hash++
	_, _, err = r.tree.CallResult(other)
	wantKind(t, err, fserror.InvalidArgument)
	if _, err := r.apply(call(2, 0), &OpSafeMode{}); err == nil {
		t.Fatal("a call was applied twice")
	}

	// An open by take-over keeps token and flag.
	w := r.open(t, "/f", "a")
	opened := apply(call(3, 0), &OpOpen{Inode: w.Inode, Holder: Holder{Session: SessionID{5}}, Token: Token{9}})
	res, ok, err = r.tree.CallResult(call(3, 0))
	if err != nil || !ok || res.Token != (Token{9}) || !res.Flag || opened.Opened.Epoch != res.TxID {
		t.Fatalf("%+v %v %v", res, ok, err)
	}

	// Acknowledged ones are forgotten with the next record, and refused then.
	if !known(call(1, 2)) {
		t.Fatal("forgotten before a record said so")
	}
	apply(call(4, 2), &OpSafeMode{})
	_, _, err = r.tree.CallResult(call(2, 0))
	wantKind(t, err, fserror.InvalidArgument)
	if !known(call(3, 2)) || !known(call(4, 2)) {
		t.Fatal("forgot too much")
	}

	// All of it is in images, journal and clones.
	clone := r.tree.Clone()
	apply(call(5, 4), &OpSafeMode{})
	if _, ok, _ := clone.CallResult(call(3, 2)); !ok {
		t.Fatal("a clone forgot")
	}
	back := roundTrip(t, r.tree)
	if _, ok, err := back.CallResult(call(5, 4)); !ok || err != nil {
		t.Fatal("not in the image")
	}
	same(t, r.tree, replay(t, r.journal))
	sound(t, r.tree)

	// It expires by journal time; other sessions stay.
	r.now += tables.SessionTTL - 1000
	apply(CallID{Session: SessionID{6}, Seq: 1}, &OpSafeMode{})
	if r.tree.Counts().Sessions != 2 {
		t.Fatal("expired too early")
	}
	r.now += 40_000
	apply(CallID{}, &OpSafeMode{})
	if known(call(5, 0)) || r.tree.Counts().Sessions != 1 {
		t.Fatal("did not expire")
	}
	sound(t, r.tree)
	same(t, r.tree, replay(t, r.journal))
}

func TestCallLimits(t *testing.T) {
	r := newRig(t)
	id := CallID{Session: SessionID{1}}
	for range tables.MaxUnacked {
		id.Seq++
		if _, _, err := r.tree.CallResult(id); err != nil {
			t.Fatal(err)
		}
		if _, err := r.apply(id, &OpSafeMode{}); err != nil {
			t.Fatal(err)
		}
	}
	id.Seq++
	_, _, err := r.tree.CallResult(id)
	wantKind(t, err, fserror.Retry)
	var e *fserror.Error
	if errors.As(err, &e); e.RetryAfter == 0 {
		t.Fatal("no time to wait is given")
	}
	// A request that acknowledges one may continue; a repetition is answered.
	id.Acked = 1
	if _, _, err := r.tree.CallResult(id); err != nil {
		t.Fatal(err)
	}
	if _, ok, err := r.tree.CallResult(CallID{Session: SessionID{1}, Seq: 7}); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if _, err := r.apply(id, &OpSafeMode{}); err != nil {
		t.Fatal(err)
	}
	roundTrip(t, r.tree)
}

// The oldest call is carried out however late it comes: until it is answered none of
// the later ones can be acknowledged.
func TestTheOldestCallIsTaken(t *testing.T) {
	r := newRig(t)
	late := CallID{Session: SessionID{1}, Seq: 1}
	for seq := range uint64(tables.MaxUnacked - 1) {
		if _, err := r.apply(CallID{Session: SessionID{1}, Seq: seq + 2}, &OpSafeMode{}); err != nil {
			t.Fatal(err)
		}
	}
	next := CallID{Session: SessionID{1}, Seq: tables.MaxUnacked + 1}
	_, _, err := r.tree.CallResult(next)
	wantKind(t, err, fserror.Retry)
	if _, _, err := r.tree.CallResult(late); err != nil {
		t.Fatalf("the oldest call: %v", err)
	}
	if _, err := r.apply(late, &OpSafeMode{}); err != nil {
		t.Fatal(err)
	}
	next.Acked = 1
	if _, _, err := r.tree.CallResult(next); err != nil {
		t.Fatalf("once it is answered: %v", err)
	}
}

// A session is expired a few at a time, but all are in the end.
func TestSessionExpiryIsSliced(t *testing.T) {
	r := newRig(t)
	const n, slice = 100, 8 // slice: what one record lets expire
	for i := range n {
		if _, err := r.apply(CallID{Session: SessionID{byte(i), 1}, Seq: 1}, &OpSafeMode{}); err != nil {
			t.Fatal(err)
		}
	}
	r.now += 2 * tables.SessionTTL
	for left := n; left > 0; left -= slice {
		r.must(t, &OpSafeMode{})
		if have := r.tree.Counts().Sessions; have != max(0, left-slice) {
			t.Fatalf("%d sessions are left of %d", have, left)
		}
	}
}
