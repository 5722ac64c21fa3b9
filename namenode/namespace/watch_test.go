package namespace

import (
	"fmt"
	"strings"

	"pgregory.net/rapid"

	"github.com/leasefs/leasefs/namenode/namespace/calls"
)

// observer sees a tree as sessions do that cache what they read, and as one
// does that follows its events.
type observer struct {
	tree    *Tree
	kept    []answer
	mirror  map[string]mirrored
	problem string // what was wrong first

	// Of the record under way.
	affects map[Change]bool
	next    InodeID
	spared  map[InodeID]bool // open or unreachable: nobody has cached them
}

// answer is what a session has cached.
type answer struct {
	what  string
	ask   func(c *Call) (answer string, closed bool)
	who   Call
	looks []Change
	text  string
}

// mirrored is what events tell of a name.
type mirrored struct {
	inode  InodeID
	dir    bool
	length int64
	holder string
}

// maxKept bounds what one observer caches.
const maxKept = 80

func newObserver(tree *Tree) *observer {
	tree.Track(true)
	tree.Events(true)
	return &observer{tree: tree, mirror: map[string]mirrored{"/": {inode: RootID, dir: true}}}
}

func (o *observer) wrong(format string, args ...any) {
	if o.problem == "" {
		o.problem = fmt.Sprintf(format, args...)
	}
}

// before is called with a record that is to be applied.
func (o *observer) before(op Op) {
	o.affects = make(map[Change]bool)
	for _, c := range o.tree.Affects(op) {
		o.affects[c] = true
	}
	o.next = o.tree.nextInode
	o.spared = make(map[InodeID]bool)
	o.tree.each(0, func(n *inode) bool {
		if n.Open() != nil || !o.tree.reachable(n, nil) {
			o.spared[n.ID] = true
		}
		return true
	})
}

// after is called when it is, or was refused.
func (o *observer) after(op Op, r *Result, err error) {
	if err != nil {
		if len(r.Events) > 0 {
			o.wrong("%s was refused, but made events %+v", opName(op), r.Events)
		}
		return
	}
	for c, txid := range o.tree.tracker.Pending() {
		attr := c.Kind == ChangeAttr
		switch {
		case txid != r.TxID || o.affects[c] || c.Kind == ChangeLease || c.Kind == calls.ChangeLeaseName || c == safeModeChange || c == passesChange || c == quotaChange:
		case c.Inode >= o.next: // nobody can have cached what the record makes
		case attr && o.spared[c.Inode]:
		default:
			o.wrong("%s %+v changed %+v, which Affects does not list: %+v", opName(op), op, c, o.affects)
		}
	}
	o.tree.SetDurable(r.TxID)
	left := o.kept[:0]
	for _, a := range o.kept {
		if a.revoked(o.affects) {
			continue
		}
		who := a.who
		if text, _ := a.ask(&who); text != a.text {
			o.wrong("%s %+v changed the answer of %s for user %q, who looked at %+v,\nfrom %s\nto   %s", opName(op), op, a.what, a.who.User, a.looks, a.text, text)
			continue
		}
		left = append(left, a)
	}
	o.kept = left
	for _, e := range r.Events {
		o.follow(op, e)
	}
}

func (a *answer) revoked(affects map[Change]bool) bool {
	for _, l := range a.looks {
		if affects[l] {
			return true
		}
	}
	return false
}

// follow brings the mirror up to an event.
func (o *observer) follow(op Op, e Event) {
	old, had := o.mirror[e.Path]
	if had != (e.Type != EventCreate) || (had && old.inode != e.Inode) {
		o.wrong("%s %+v made the event %+v, but the mirror has %+v (%v) there", opName(op), op, e, old, had)
		return
	}
	switch e.Type {
	case EventCreate:
		o.mirror[e.Path] = mirrored{inode: e.Inode, dir: e.IsDir, length: e.Length}
	case EventDelete:
		o.below(e.Path, func(path string, _ mirrored) { delete(o.mirror, path) })
	case EventRename:
		if _, taken := o.mirror[e.NewPath]; taken {
			o.wrong("%s %+v made the event %+v to a name that is taken", opName(op), op, e)
		}
		moved := make(map[string]mirrored)
		o.below(e.Path, func(path string, m mirrored) {
			moved[e.NewPath+path[len(e.Path):]] = m
			delete(o.mirror, path)
		})
		for path, m := range moved {
			o.mirror[path] = m
		}
	case EventLength:
		if old.length == e.Length {
			o.wrong("%s %+v made the event %+v, but that was the length before", opName(op), op, e)
		}
		old.length = e.Length
		o.mirror[e.Path] = old
	case EventClose:
		old.length, old.holder = e.Length, ""
		o.mirror[e.Path] = old
	case EventLease:
		old.holder = e.Holder
		o.mirror[e.Path] = old
	}
}

func (o *observer) below(top string, fn func(string, mirrored)) {
	for path, m := range o.mirror {
		if path == top || strings.HasPrefix(path, top+"/") {
			fn(path, m)
		}
	}
}

// check compares the mirror with the tree, and tells of what went wrong.
func (o *observer) check(t tb) {
	t.Helper()
	seen := 0
	err := o.tree.Walk(RootID, func(path []byte, a Attr) error {
		seen++
		want := mirrored{inode: a.ID, dir: a.Type == TypeDir, length: a.Length}
		if a.Open != nil {
			want.holder = a.Open.Holder.Client
		}
		if have, ok := o.mirror[string(path)]; !ok || have != want {
			o.wrong("the mirror has %+v (%v) at %s, the tree %+v", have, ok, path, want)
		}
		return nil
	})
	if err != nil {
		o.wrong("%v", err)
	}
	untold := 0
	for _, m := range o.mirror {
		if l := o.tree.deadWith(o.tree.get(m.inode)); l != nil {
			untold++
		}
	}
	if seen+untold != len(o.mirror) {
		o.wrong("the mirror has %d names, the tree %d, and was not told of %d", len(o.mirror), seen, untold)
	}
	if o.problem != "" {
		t.Fatalf("%s", o.problem)
	}
}

// keep caches an answer, if it may be.
func (o *observer) keep(who Call, what string, ask func(c *Call) (string, bool)) {
	a := answer{what: what, ask: ask, who: who}
	who.Collect, who.Looks = true, nil
	var closed bool
	a.text, closed = ask(&who)
	if !closed || !who.Collect {
		return
	}
	if a.looks = who.Looks; len(a.looks) == 0 {
		o.wrong("%s looks at nothing", what)
	}
	if len(o.kept) == maxKept {
		o.kept = append(o.kept[:0], o.kept[1:]...)
	}
	o.kept = append(o.kept, a)
}

// read reads something at random and keeps the answer.
func (o *observer) read(t *rapid.T, paths []string) {
	who := rapid.SampledFrom([]Call{{User: "root", Super: true}, {User: "u1"}, {User: "u2", Groups: []string{"supergroup"}}}).Draw(t, "who")
	path := rapid.SampledFrom(paths).Draw(t, "read")
	for range rapid.IntRange(0, 2).Draw(t, "read below") {
		path = strings.TrimSuffix(path, "/") + "/" + rapid.SampledFrom([]string{"a", "b", "link", longName}).Draw(t, "read")
	}
	id := InodeID(rapid.Uint64Range(1, uint64(o.tree.nextInode)+2).Draw(t, "read inode"))
	tree := o.tree
	where := func(id InodeID) string {
		path, ok := tree.Path(id)
		return fmt.Sprint(path, ok)
	}
	stat := func(a Attr, err error) (string, bool) {
		closed := a.Open == nil
		a.Open = nil
		return fmt.Sprintf("%+v %s %v", a, where(a.ID), err), closed
	}
	view := func(v calls.FileView, err error) (string, bool) {
		closed := v.Attr.Open == nil
		v.Attr.Open = nil
		return fmt.Sprintf("%+v %s %v", v, where(v.Attr.ID), err), closed
	}
	switch rapid.IntRange(0, 6).Draw(t, "how") {
	case 0:
		o.keep(who, "stat "+path, func(c *Call) (string, bool) { return stat(tree.Stat(c, At(path))) })
	case 1:
		o.keep(who, "stat -L "+path, func(c *Call) (string, bool) { return stat(tree.Stat(c, Follow(path))) })
	case 2:
		o.keep(who, "read "+path, func(c *Call) (string, bool) { return view(tree.File(c, Follow(path))) })
	case 3:
		o.keep(who, fmt.Sprintf("stat inode %d", id), func(c *Call) (string, bool) { return stat(tree.Stat(c, Inode(id))) })
	case 4:
		o.keep(who, fmt.Sprintf("read inode %d", id), func(c *Call) (string, bool) { return view(tree.File(c, Inode(id))) })
	case 5:
		o.keep(who, "ls "+path, func(c *Call) (string, bool) {
			dir, entries, more, err := tree.List(c, Follow(path), "", 0)
			closed := dir.Open == nil
			dir.Open = nil
			for i := range entries {
				closed = closed && entries[i].Open == nil
				entries[i].Open = nil
			}
			return fmt.Sprintf("%+v %+v %v %v", dir, entries, more, err), closed
		})
	case 6:
		o.keep(who, fmt.Sprintf("search inode %d", id), func(c *Call) (string, bool) {
			return fmt.Sprint(tree.MaySearch(c, id), MayList(tree, c, id)), true
		})
	}
}
