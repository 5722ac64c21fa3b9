package sessions

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

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
	begin := func(number uint64) *Line { return tab.Connect(id, number, "", func() { connected++ }) }
	old := begin(2)
	if begin(1) != nil || connected != 1 {
		t.Fatal("an earlier stream is current")
	}
	l := begin(3)
	old.Disconnect(func() { t.Error("the end of an old stream disconnects") })
	for i := range uint64(maxLosses + 1) {
		tab.Applied(lostFile(i+1, id))
		tab.Applied(lostFile(i+1, namespace.SessionID{2}))
	}
	var revoked []readlease.Revocation
	var losses []Loss
	var mu sync.Mutex // of both, which are told at once
	told := func() (int, int) { l.tellers.Wait(); return len(revoked), len(losses) }
	l.Begin(func(r []readlease.Revocation, loss *Loss) bool {
		mu.Lock()
		defer mu.Unlock()
		if revoked = append(revoked, r...); loss != nil {
			losses = append(losses, *loss)
		}
		return true
	})
	if r, n := told(); r != 0 || n != maxLosses || len(old.losses) != 0 {
		t.Fatalf("%d losses were told, and %d wait on the old stream", n, len(old.losses))
	}
	if got := losses[0]; got.TxID != 1 || got.Inode != 7 || got.By.Client != "taker" {
		t.Fatalf("%+v", got)
	}
	tab.Applied(namespace.Result{Closed: []namespace.ClosedFile{{Session: id, Reason: namespace.ReasonClosed}}})
	if _, n := told(); n != maxLosses {
		t.Fatal("it is told what it has closed itself")
	}
	tab.Applied(lostFile(99, id))
	l.Revoke(readlease.Revocation{Seq: 7})
	if r, n := told(); r != 1 || n != maxLosses+1 {
		t.Fatalf("%d revocations were told, and %d losses", r, n)
	}
	l.Stop(func() bool { t.Error("nothing is to be interrupted"); return true })
	revoked = nil
	for i := range uint64(maxRevoked + 1) {
		l.Revoke(readlease.Revocation{Seq: i + 1, Keys: make([]readlease.Key, 1)})
	}
	if r, _ := told(); r != 0 {
		t.Fatal("it is told after the stop")
	}
	l.Begin(func(r []readlease.Revocation, _ *Loss) bool { revoked = r; return false })
	if r, _ := told(); r != 1 || !revoked[0].All || revoked[0].Seq != maxRevoked+1 {
		t.Fatalf("%d revocations, the first of %+v", r, revoked[0])
	}
	l.Revoke(readlease.Revocation{Seq: maxRevoked + 2})
	if told(); len(revoked) != 1 || l.revoking {
		t.Fatal("it is told after a failure")
	}
	l.Disconnect(func() { connected-- })
	if connected != 1 || len(tab.lines) != 0 {
		t.Fatalf("connected %d times, %d lines", connected, len(tab.lines))
	}
}

// The end of a stream interrupts what is being sent on it, and waits for that.
func TestLineStops(t *testing.T) {
	l := new(Table).Connect(namespace.SessionID{1}, 1, "", func() {})
	began, interrupted := make(chan bool), make(chan bool)
	l.Begin(func([]readlease.Revocation, *Loss) bool {
		close(began)
		<-interrupted
		return true
	})
	l.Revoke(readlease.Revocation{Seq: 1})
	<-began
	l.Revoke(readlease.Revocation{Seq: 2})
	l.Stop(func() bool { return false }) // it cannot, and so it does not wait
	l.Stop(func() bool { close(interrupted); return true })
	if l.revoking || len(l.revoked) != 1 {
		t.Errorf("revoking %t, %d revocations wait", l.revoking, len(l.revoked))
	}
}

// A revocation waits for no loss, not for one that is being told either, as soon as it is durable.
func TestRevocationsComeFirst(t *testing.T) {
	var tab Table
	id := namespace.SessionID{1}
	l := tab.Connect(id, 1, "", func() {})
	began, durable, revoked := make(chan bool, 3), make(chan bool), make(chan uint64, 1)
	var told []uint64
	l.Begin(func(r []readlease.Revocation, loss *Loss) bool {
		if loss == nil {
			revoked <- r[0].Seq
			return true
		}
		told = append(told, loss.TxID)
		began <- true
		<-durable
		return true
	})
	for txid := range uint64(3) {
		tab.Applied(lostFile(txid+1, id))
	}
	<-began
	l.Revoke(readlease.Revocation{Seq: 100})
	select {
	case <-revoked:
	case <-time.After(time.Minute):
		t.Error("the revocation waits for a loss")
	}
	close(durable)
	l.tellers.Wait()
	if want := []uint64{1, 2, 3}; !slices.Equal(told, want) {
		t.Errorf("told %v, want %v", told, want)
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

// Releases counts the current streams of sessions, and is bounded by what it names.
func TestReleases(t *testing.T) {
	var tab Table
	begin := func(n int, number uint64, release string) *Line {
		return tab.Connect(namespace.SessionID{byte(n), byte(n >> 8)}, number, release, func() {})
	}
	old := begin(1, 1, "v1")
	begin(1, 2, "v2") // it was upgraded
	old.Disconnect(func() {})
	begin(2, 1, "v2")
	begin(3, 1, "")
	begin(4, 1, "v\n2")
	begin(5, 1, strings.Repeat("v", maxRelease+1))
	begin(6, 1, "v1").Disconnect(func() {})
	if got, want := tab.Releases(), map[string]uint64{"v2": 2, "": 3}; !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	for i := range 3 * maxReleases {
		begin(10+i, 1, fmt.Sprint("v", i))
	}
	all, n := tab.Releases(), uint64(0)
	for _, sessions := range all {
		n += sessions
	}
	if len(all) > maxReleases+1 || n != 5+3*maxReleases || all["others"] == 0 {
		t.Errorf("%d of %d names: %v", n, len(all), all)
	}
}
