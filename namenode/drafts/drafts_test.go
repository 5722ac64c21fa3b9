package drafts

import (
	"fmt"
	"testing"
	"time"

	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/namenode/engine"
	"github.com/leasefs/leasefs/namenode/namespace"
)

// TestTable: a name is of one session, a number of one name, and neither
// counts for longer than it should.
func TestTable(t *testing.T) {
	tab := New(nil, nil, 0)
	a, b := namespace.SessionID{1}, namespace.SessionID{2}
	tell := func(by namespace.SessionID, name string, number namespace.InodeID, now time.Duration) {
		tab.tell(draft{Draft: Draft{5, name, number}, holder: namespace.Holder{Session: by}, since: now, until: now + 10}, now)
	}
	want := func(name string, by namespace.SessionID, now time.Duration, holder namespace.SessionID) {
		t.Helper()
		d, ok := tab.find(5, name, by, now)
		if ok != (holder != namespace.SessionID{}) || d.holder.Session != holder {
			t.Fatalf("%q at %d: %v, %v", name, now, ok, d)
		}
	}
	count := func(n int64) {
		t.Helper()
		if tab.told.Load() != n || len(tab.byNumber) != int(n) {
			t.Fatalf("%d told, %d numbers; want %d", tab.told.Load(), len(tab.byNumber), n)
		}
	}
	none := namespace.SessionID{}
	tell(a, "x", 7, 0)
	tell(b, "x", 8, 1)
	want("x", none, 2, a)
	want("x", a, 2, none)
	want("", b, 2, a)
	count(1)
	tell(a, "y", 7, 3)
	want("x", none, 4, none)
	want("y", none, 4, a)
	count(1)
	want("y", none, 13, none)
	tell(b, "y", 8, 13)
	want("y", none, 14, b)
	count(1)
	tx := &engine.Tx{Tree: namespace.New()}
	made := func(by namespace.SessionID, op namespace.Op) {
		tab.Applied(tx, namespace.Entry{Call: namespace.CallID{Session: by}, Op: op})
	}
	file := namespace.OpCreate{Parent: 5, Name: "y"}
	made(a, &file)
	made(b, &namespace.OpCreate{Parent: 5, Name: "x"})
	made(b, &namespace.OpSetAttr{Inode: 5})
	count(1)
	made(b, &file)
	count(0)
	tell(b, "y", 8, 14)
	made(b, &namespace.OpCreateAs{OpCreate: file})
	count(0)
	tell(a, "x", 7, 0)
	tell(b, "y", 8, 0)
	tab.Leave(a)
	want("x", none, 1, none)
	want("y", none, 1, b)
	tab.Leave(b)
	count(0)
	for i := range maxDrafts + 1 {
		tell(a, fmt.Sprint(i), namespace.InodeID(i+10), 20)
	}
	count(maxDrafts)
	tab.sweep(time.Minute)
	count(0)
	if len(tab.byDir) > 0 {
		t.Fatal(tab.byDir)
	}
	if !tab.mayReserve(a, true, 0) || tab.mayReserve(a, true, reserveEvery-1) || !tab.mayReserve(b, true, 1) || !tab.mayReserve(a, true, reserveEvery) {
		t.Fatal("numbers are set aside too often, or not often enough")
	}
	if tab.mayReserve(a, false, unusedEvery) || !tab.mayReserve(a, false, reserveEvery+unusedEvery) {
		t.Fatal("numbers are set aside too often, or not often enough, for who has not used those before")
	}
	for i := range 2 * maxReserved {
		tab.mayReserve(namespace.SessionID{byte(i), byte(i >> 8), byte(i >> 16), 1}, true, time.Duration(i+1000)*reserveEvery)
	}
	if len(tab.reserved) > maxReserved {
		t.Fatalf("%d sessions are remembered", len(tab.reserved))
	}
}

// TestTransactionsAreRefused: a name that a session has told of is held against a
// transaction, whatever part of it makes or removes that.
func TestTransactionsAreRefused(t *testing.T) {
	tab := New(nil, new(clock.Fake), 0)
	tx := &engine.Tx{Tree: namespace.New()}
	a, b := namespace.SessionID{1}, namespace.SessionID{2}
	tab.tell(draft{Draft: Draft{5, "x", 7}, holder: namespace.Holder{Session: a}, until: 10}, 0)
	harmless := &namespace.OpMkdir{Parent: 5, Names: []string{"z"}}
	for name, c := range map[string]struct {
		part    namespace.Op
		by      namespace.SessionID
		refused bool
	}{
		"makes it":                     {&namespace.OpCreate{Parent: 5, Name: "x", Closed: true}, b, true},
		"makes another":                {&namespace.OpCreate{Parent: 5, Name: "y", Closed: true}, b, false},
		"moves there":                  {&namespace.OpRename{FromParent: 1, FromName: "f", ToParent: 5, ToName: "x"}, b, true},
		"removes its directory":        {&namespace.OpDelete{Parent: 1, Name: "d", Inode: 5}, b, true},
		"makes it itself":              {&namespace.OpCreate{Parent: 5, Name: "x", Closed: true}, a, false},
		"makes it itself, as a folder": {&namespace.OpMkdir{Parent: 5, Names: []string{"x"}}, a, true},
	} {
		err := tab.Refuse(tx, c.by, &namespace.OpTxn{Parts: []namespace.Op{harmless, c.part}})
		if Refused(err) != c.refused || err != nil && !c.refused {
			t.Errorf("%s: %v", name, err)
		}
		if alone := tab.Refuse(tx, c.by, c.part); (alone == nil) != (err == nil) {
			t.Errorf("%s: alone %v", name, alone)
		}
	}
}
