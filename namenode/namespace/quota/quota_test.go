package quota

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode/namespace/calls"
	"github.com/leasefs/leasefs/namenode/namespace/codec"
	"github.com/leasefs/leasefs/namenode/namespace/slots"
	"github.com/leasefs/leasefs/namenode/namespace/tables"
)

// machine has a tree, its quotas, and nothing but parents and lengths to count by again.
type machine struct {
	s      slots.Table[int64]
	t      Table[int64]
	parent map[tables.InodeID]tables.InodeID
	size   map[tables.InodeID]int64 // of files
	limits map[tables.InodeID]Limits
	next   tables.InodeID
}

func length(_ *slots.Node, x *int64) int64 {
	if x == nil {
		return 0
	}
	return *x
}

func (m *machine) node(id tables.InodeID) (*slots.Node, *int64) {
	n := &slots.Node{Parent: m.parent[id], Type: uint8(calls.TypeDir)}
	n.NameLen = uint8(copy(n.Name[:], fmt.Sprint(id)))
	if size, is := m.size[id]; is {
		n.Type = uint8(calls.TypeFile)
		return n, &size
	}
	return n, nil
}

// move gives an inode another parent; 0: none.
func (m *machine) move(id, to tables.InodeID) {
	from := m.parent[id]
	if from != 0 {
		m.s.Unlink(from, fmt.Sprint(id), id)
	}
	if m.parent[id] = to; to != 0 {
		n, x := m.node(id)
		m.s.Put(id, n, x)
		m.s.Link(to, fmt.Sprint(id), id)
	}
	m.t.Moved(&m.s, id, from, to)
}

func (m *machine) below(id, top tables.InodeID) bool {
	for ; id != 0; id = m.parent[id] {
		if id == top {
			return true
		}
	}
	return false
}

// draw returns an inode, a directory if asked for.
func (m *machine) draw(t *rapid.T, label string, dir bool) tables.InodeID {
	var ids []tables.InodeID
	for id := tables.InodeID(calls.RootID); id < m.next; id++ {
		_, there := m.parent[id]
		if _, file := m.size[id]; there && !(dir && file) {
			ids = append(ids, id)
		}
	}
	return rapid.SampledFrom(ids).Draw(t, label)
}

func (m *machine) Make(t *rapid.T) {
	dir := m.draw(t, "dir", true)
	id := m.next
	m.next++
	if rapid.Bool().Draw(t, "file") {
		m.size[id] = rapid.Int64Range(0, 9).Draw(t, "size")
	}
	m.move(id, dir)
}

func (m *machine) Resize(t *rapid.T) {
	id := m.draw(t, "file", false)
	old, file := m.size[id]
	if !file {
		t.Skip("a directory")
	}
	m.size[id] = rapid.Int64Range(0, 9).Draw(t, "size")
	n, x := m.node(id)
	m.s.Put(id, n, x)
	m.t.Grew(&m.s, m.parent[id], m.size[id]-old)
}

func (m *machine) Move(t *rapid.T) {
	id, to := m.draw(t, "what", false), m.draw(t, "to", true)
	if m.below(to, id) {
		t.Skip("into itself")
	}
	m.agree(t, id, to)
	m.move(id, to)
}

// agree makes sure that a move, in whose place something else goes, is refused just when it would be
// if it was counted to its end.
func (m *machine) agree(t *rapid.T, id, to tables.InodeID) {
	refused := func(g Growth) bool {
		for instead := tables.InodeID(calls.RootID); instead < m.next; instead++ {
			if parent, there := m.parent[instead]; there && parent == to && !m.below(id, instead) {
				m.t.Grows(&m.s, instead, to, 0, &g)
				break
			}
		}
		m.t.Grows(&m.s, id, m.parent[id], to, &g)
		return m.t.Fits(g, func(tables.InodeID) string { return "" }) != nil
	}
	if whole, part := refused(Growth{}), refused(Growth{Alone: true}); whole != part {
		t.Fatalf("%d is refused in %d: %v if it is counted to its end, else %v", id, to, whole, part)
	}
}

func (m *machine) Remove(t *rapid.T) {
	top := m.draw(t, "what", false)
	if top == calls.RootID {
		t.Skip("the root")
	}
	m.move(top, 0)
	gone := []tables.InodeID{}
	for id, parent := range m.parent {
		if !m.below(id, top) {
			continue
		}
		if gone = append(gone, id); id != top {
			m.s.Unlink(parent, fmt.Sprint(id), id)
		}
	}
	for _, id := range gone {
		m.s.Drop(id)
		m.t.Drop(id)
		delete(m.parent, id)
		delete(m.size, id)
		delete(m.limits, id)
	}
}

func (m *machine) Set(t *rapid.T) {
	dir := m.draw(t, "dir", true)
	l := Limits{rapid.Int64Range(None, 5).Draw(t, "names"), rapid.Int64Range(None, 5).Draw(t, "bytes")}
	m.t.Set(&m.s, dir, l)
	if m.limits[dir] = l; l.Free() {
		delete(m.limits, dir)
	}
}

// Check counts by parents alone, and reads what is written.
func (m *machine) Check(t *rapid.T) {
	if m.t.Len() != len(m.limits) {
		t.Fatalf("there are %d quotas, not %d", m.t.Len(), len(m.limits))
	}
	for dir, l := range m.limits {
		want := Entry{Dir: dir, Limits: l}
		for id := range m.parent {
			if m.below(id, dir) {
				want.Use = want.Plus(Use{1, m.size[id]}, 1)
			}
		}
		if have, ok := m.t.Get(dir); !ok || have != want {
			t.Fatalf("quota %+v (%v), want %+v", have, ok, want)
		}
	}
	isDir := func(id tables.InodeID) bool { n, _ := m.s.Get(id); return n != nil && n.Type == uint8(calls.TypeDir) }
	fail := func(format string, args ...any) { t.Fatalf(format, args...) }
	m.t.Check(fail, &m.s, isDir)
	w := codec.Encoder(nil)
	m.t.Code(w)
	back, r := NewTable(length), codec.Decoder(w.Written())
	if back.Code(r); !r.OK() || r.Left() > 0 || back.Len() != m.t.Len() {
		t.Fatalf("read again: %s, %d bytes left", r.Why(), r.Left())
	}
	if dir, is := back.Link(&m.s, isDir); is {
		t.Fatalf("%d has a quota", dir)
	}
	back.Check(fail, &m.s, isDir)
}

// TestModel holds the counts to a naive count of random trees with nested quotas.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &machine{
			s: slots.New(func(*int64) string { return "" }), t: NewTable(length), next: calls.RootID + 1,
			parent: map[tables.InodeID]tables.InodeID{calls.RootID: 0}, size: map[tables.InodeID]int64{}, limits: map[tables.InodeID]Limits{},
		}
		n, x := m.node(calls.RootID)
		m.s.Put(calls.RootID, n, x)
		t.Repeat(rapid.StateMachineActions(m))
	})
}

// What does not fit is counted no further than to what is too much.
func TestMovesAreCountedUpToTheLimit(t *testing.T) {
	m := &machine{
		s: slots.New(func(*int64) string { return "" }), t: NewTable(length), next: calls.RootID + 1,
		parent: map[tables.InodeID]tables.InodeID{calls.RootID: 0}, size: map[tables.InodeID]int64{}, limits: map[tables.InodeID]Limits{},
	}
	n, x := m.node(calls.RootID)
	m.s.Put(calls.RootID, n, x)
	const limited, full, old, files = 2, 3, 4, 1000
	m.move(limited, calls.RootID)
	m.move(full, calls.RootID)
	m.move(old, limited)
	for i := tables.InodeID(5); i < 10; i++ {
		m.move(i, old)
	}
	for i := tables.InodeID(10); i < 10+files; i++ {
		m.size[i] = 7
		m.move(i, full)
	}
	for _, c := range []struct {
		Limits
		want string
	}{
		{Limits{11, None}, "/q has a quota of 11 names and has 7; this would add 5 or more"},
		{Limits{None, 70}, "/q has a quota of 70 bytes and has 0; this would add 77 or more"},
		{Limits{files + 1, None}, "/q has a quota of 1,001 names and has 7; this would add 995 or more"},
		{Limits{math.MaxInt64, 7 * files}, ""},
		{Limits{files + 2, math.MaxInt64}, ""},
	} {
		m.t.Set(&m.s, limited, c.Limits)
		g := Growth{Alone: true}
		m.t.Grows(&m.s, old, limited, 0, &g) // in whose place it goes
		m.t.Grows(&m.s, full, calls.RootID, limited, &g)
		err := m.t.Fits(g, func(tables.InodeID) string { return "/q" })
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c.Limits, err)
		}
	}
}

// A wrong count, of a directory that is there, is found.
func TestCheckFinds(t *testing.T) {
	s, tab := slots.New(func(*int64) string { return "" }), NewTable(length)
	s.Put(calls.RootID, &slots.Node{Type: uint8(calls.TypeDir)}, nil)
	tab.Set(&s, calls.RootID, Limits{Names: 3, Bytes: None})
	for use, want := range map[Use]int{{1, 0}: 0, {2, 0}: 1, {1, 1}: 1, {0, 0}: 1} {
		e, _ := tab.Get(calls.RootID)
		e.Use = use
		tab.set.ReplaceOrInsert(e)
		found := 0
		tab.Check(func(string, ...any) { found++ }, &s, func(tables.InodeID) bool { return true })
		if found != want {
			t.Errorf("%+v: %d problems, want %d", use, found, want)
		}
	}
}

// A quota of what is no directory is found, in an image and by a check.
func TestMisplaced(t *testing.T) {
	s, tab := slots.New(func(*int64) string { return "" }), NewTable(length)
	s.Put(calls.RootID, &slots.Node{Type: uint8(calls.TypeDir)}, nil)
	s.Put(5, &slots.Node{Type: uint8(calls.TypeFile), Parent: calls.RootID}, nil)
	isDir := func(id tables.InodeID) bool { return id == calls.RootID }
	tab.Set(&s, calls.RootID, Limits{Names: 3, Bytes: None})
	if id, is := tab.Link(&s, isDir); is {
		t.Error(id)
	}
	tab.Set(&s, 5, Limits{Names: 3, Bytes: None})
	if id, is := tab.Link(&s, isDir); !is || id != 5 {
		t.Error(id, is)
	}
	found := 0
	if tab.Check(func(string, ...any) { found++ }, &s, isDir); found != 1 {
		t.Errorf("%d problems", found)
	}
}

// A quota refuses what grows beyond a limit, and nothing else, also at the ends of numbers.
func TestFits(t *testing.T) {
	const most = math.MaxInt64
	for name, c := range map[string]struct {
		Limits
		use, more Use
		want      string
	}{
		"the last name":         {Limits{1000, None}, Use{999, 0}, Use{1, 0}, ""},
		"a name too many":       {Limits{1000, None}, Use{1000, 0}, Use{1, 0}, "/q has a quota of 1,000 names and has 1,000; this would add 1"},
		"names":                 {Limits{1000, None}, Use{998, 0}, Use{3, 0}, "/q has a quota of 1,000 names and has 998; this would add 3"},
		"the last byte":         {Limits{None, 10}, Use{1, 4}, Use{0, 6}, ""},
		"a byte too many":       {Limits{None, 1234567}, Use{1, 1004}, Use{1, 1234567}, "/q has a quota of 1,234,567 bytes and has 1,004; this would add 1,234,567"},
		"none":                  {Limits{None, None}, Use{5, most}, Use{most, most}, ""},
		"over, shrinks":         {Limits{1, 1}, Use{10, 10}, Use{-1, -1}, ""},
		"over, stays":           {Limits{1, 1}, Use{10, 10}, Use{}, ""},
		"over, one more":        {Limits{1, 1}, Use{10, 10}, Use{-1, 1}, "/q has a quota of 1 bytes and has 10; this would add 1"},
		"zero":                  {Limits{0, None}, Use{1, 0}, Use{1, 0}, "/q has a quota of 0 names and has 1; this would add 1"},
		"the most":              {Limits{most, most}, Use{1, 0}, Use{most - 1, most}, ""},
		"more than the most":    {Limits{most, most}, Use{1, 1}, Use{0, most}, "/q has a quota of 9,223,372,036,854,775,807 bytes and has 1; this would add 9,223,372,036,854,775,807"},
		"most over a small one": {Limits{None, 0}, Use{1, most}, Use{0, most}, "/q has a quota of 0 bytes and has 9,223,372,036,854,775,807; this would add 9,223,372,036,854,775,807"},
	} {
		tab := NewTable(length)
		tab.set.ReplaceOrInsert(Entry{Dir: 5, Limits: c.Limits, Use: c.use})
		var g Growth
		e, _ := tab.Get(5)
		g.Add(e, c.more, -1)
		g.Add(e, c.more, 1)
		g.Add(e, c.more, 1)
		err := tab.Fits(g, func(tables.InodeID) string { return "/q" })
		got, reason := "", ""
		var fe *fserror.Error
		if errors.As(err, &fe) {
			got, reason = fe.Message, fe.Reason
		}
		if got != c.want || (err != nil) != errors.Is(err, fserror.NoSpace) || err != nil && !strings.Contains(got, " of "+digits(map[string]int64{fserror.ReasonQuotaNames: c.Limits.Names, fserror.ReasonQuotaBytes: c.Limits.Bytes}[reason])+" ") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if tab := NewTable(length); tab.Fits(Growth{of: []Entry{{Dir: 5, Use: Use{1, 1}}}}, nil) != nil {
		t.Error("a quota that is gone refuses")
	}
}

// What is kept of limits stays, and limits below None are none.
func TestLimits(t *testing.T) {
	old := Limits{3, 4}
	for l, want := range map[Limits]Limits{{Keep, Keep}: old, {Keep, None}: {3, None}, {0, Keep}: {0, 4}, {1, 2}: {1, 2}} {
		if got := l.Over(old); got != want || !got.Good() {
			t.Errorf("%+v over %+v: %+v", l, old, got)
		}
	}
	for _, l := range []Limits{{-2, 0}, {0, -3}, {math.MinInt64, None}} {
		if l.Good() {
			t.Errorf("%+v are good", l)
		}
	}
}

// Nine tenths of a limit are nearly all of it.
func TestTally(t *testing.T) {
	tab := NewTable(length)
	for i, e := range []Entry{
		{Limits: Limits{10, None}, Use: Use{8, 100}},
		{Limits: Limits{10, None}, Use: Use{9, 100}}, // full
		{Limits: Limits{None, 100}, Use: Use{9, 89}},
		{Limits: Limits{None, 100}, Use: Use{9, 90}},                   // full
		{Limits: Limits{0, None}, Use: Use{1, 0}},                      // full
		{Limits: Limits{math.MaxInt64, math.MaxInt64}, Use: Use{1, 1}}, // no overflow
		{Limits: Limits{10, 0}, Use: Use{1, 0}},                        // an unused one of 0
	} {
		e.Dir = tables.InodeID(i + 1)
		tab.set.ReplaceOrInsert(e)
	}
	tally := func(counts func(dir tables.InodeID) bool) (all int, full []Entry) {
		all = tab.Tally(counts, func(e Entry) { full = append(full, e) })
		return all, full
	}
	if all, full := tally(func(tables.InodeID) bool { return true }); all != 7 || len(full) != 3 || full[0].Ratio() >= full[2].Ratio() {
		t.Errorf("%v of %d", full, all)
	}
	if all, full := tally(func(dir tables.InodeID) bool { return dir != 2 }); all != 6 || len(full) != 2 {
		t.Errorf("%v of %d without one that was deleted", full, all)
	}
	if e, _ := tab.Get(7); e.Ratio() >= 0.9 {
		t.Errorf("%v is %f full", e, e.Ratio())
	}
}
