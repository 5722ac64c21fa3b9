package sessions

import (
	"strings"
	"testing"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/leasemanager/readlease"
	"github.com/leasefs/leasefs/namenode/namespace"
)

func lostFile(txid uint64, by namespace.SessionID) namespace.Result {
	return namespace.Result{
		TxID:   txid,
		Opened: &namespace.OpenFile{Holder: namespace.Holder{Client: "taker"}},
		Closed: []namespace.ClosedFile{{Inode: 7, Epoch: txid, Session: by, Reason: namespace.ReasonTakenOver}},
	}
}

// A session is told on its latest stream, and what that one does not take is left out.
func TestLines(t *testing.T) {
	var tab Table
	id := namespace.SessionID{1}
	connected := 0
	begin := func(number uint64) *Line { return tab.Begin(id, number, func() { connected++ }) }
	old := begin(2)
	if begin(1) != nil || connected != 1 {
		t.Fatal("an earlier stream is current")
	}
	l := begin(3)
	old.End(func() { t.Error("the end of an old stream disconnects") })
	for i := range uint64(maxLosses + 1) {
		tab.Applied(lostFile(i+1, id))
		tab.Applied(lostFile(i+1, namespace.SessionID{2}))
	}
	if n := len(l.Losses()); n != maxLosses || len(old.Losses()) != 0 {
		t.Fatalf("%d losses wait, and %d on the old stream", n, len(old.Losses()))
	}
	if got := <-l.Losses(); got.TxID != 1 || got.Inode != 7 || got.By.Client != "taker" {
		t.Fatalf("%+v", got)
	}
	tab.Applied(namespace.Result{Closed: []namespace.ClosedFile{{Session: id, Reason: namespace.ReasonClosed}}})
	if n := len(l.Losses()); n != maxLosses-1 {
		t.Fatal("it is told what it has closed itself")
	}
	for i := range uint64(maxRevoked) {
		l.Revoke(readlease.Revocation{Seq: i + 1, Keys: make([]readlease.Key, 1)})
	}
	<-l.Revoking()
	l.Revoke(readlease.Revocation{Seq: maxRevoked + 1})
	if got := l.Revoked(); len(got) != 1 || !got[0].All || got[0].Seq != maxRevoked+1 {
		t.Fatalf("%d revocations, the first of %+v", len(got), got[0])
	}
	if <-l.Revoking(); len(l.Revoked()) != 0 {
		t.Fatal("revocations are told twice")
	}
	l.End(func() { connected-- })
	if connected != 1 || len(tab.lines) != 0 {
		t.Fatalf("connected %d times, %d lines", connected, len(tab.lines))
	}
}

// Those who keep a lease alive are told of its end, once; who left is not.
func TestKeepers(t *testing.T) {
	var tab Table
	var all []*Keeper
	for range maxKeepers + 1 {
		k := tab.Keeper()
		k.Follow(5)
		k.Follow(5)
		k.Follow(6)
		all = append(all, k)
	}
	gone := all[0]
	gone.Leave()
	tab.Applied(namespace.Result{TxID: 3, Lease: 5, LeaseEnded: true, Reason: namespace.LeaseRevoked})
	tab.Applied(namespace.Result{TxID: 4, Lease: 6, LeaseEnded: true, Reason: namespace.LeaseRevoked})
	for i, k := range all {
		want := 2
		if k == gone || i == maxKeepers {
			want = 0
		}
		if len(k.Wake()) != min(want, 1) {
			t.Errorf("keeper %d is to be woken %d times", i, len(k.Wake()))
		}
		first, txid := k.Take(1)
		rest, _ := k.Take(9)
		if len(first)+len(rest) != want || want > 0 && (first[0] != Ended{5, namespace.LeaseRevoked} || txid != 4) {
			t.Errorf("keeper %d is told %v, %v up to %d", i, first, rest, txid)
		}
		k.Leave()
	}
	if len(tab.keepers.leases) != 0 {
		t.Error(tab.keepers.leases)
	}
}

// How a file was lost is remembered of the latest.
func TestLost(t *testing.T) {
	var tab Table
	for i := range uint64(maxLost + 2) {
		tab.Applied(lostFile(i+1, namespace.SessionID{}))
	}
	err := fserror.New(fserror.LeaseLost, "", "/f", "lost")
	for epoch, known := range map[uint64]bool{1: false, 2: false, 3: true, maxLost + 2: true} {
		if got := tab.Explain(err, namespace.Writer{Inode: 7, Epoch: epoch}); strings.Contains(got.Error(), "taken over by taker") != known {
			t.Errorf("epoch %d: %v", epoch, got)
		}
	}
	if len(tab.lost.how) != maxLost || len(tab.lost.order) != maxLost {
		t.Errorf("%d and %d are remembered", len(tab.lost.how), len(tab.lost.order))
	}
}
