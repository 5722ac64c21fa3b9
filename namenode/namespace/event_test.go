package namespace

import (
	"fmt"
	"strings"
	"testing"

	"github.com/leasefs/leasefs/internal/fspath"
)

// TestEventsOfOneRecord: however many open files a record closes, and however long their paths are, the
// paths in its events take little. Of each file there is one event, for who waits for that file.
func TestEventsOfOneRecord(t *testing.T) {
	const files = 600 // in each of two directories
	remove := func(path string) func(*Tree) (Op, error) {
		return func(t *Tree) (Op, error) { return orNil(PlanDelete(t, nil, At(path), true, 0)) }
	}
	for name, c := range map[string]struct {
		plan    func(*Tree) (Op, error)
		removed []string
	}{
		"delete":      {remove("/p"), []string{"/p"}},
		"lease":       {func(t *Tree) (Op, error) { return orNil(PlanEnd(t, nil, 1, LeaseRevoked)) }, []string{"/p"}},
		"transaction": {func(t *Tree) (Op, error) { op, _, err := PlanTxn(t, remove("/p/q1"), remove("/p/q2")); return op, err }, []string{"/p/q1", "/p/q2"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.grant(t, 1, 60_000)
			open := make(map[InodeID]InodeID) // with their directories
			for _, top := range []string{"/p/q1", "/p/q2"} {
				dir := r.mkdir(t, top+strings.Repeat("/"+strings.Repeat("n", 250), 125))
				for i := range files {
					h := Holder{User: "u", Client: "c", Session: SessionID{1}, Host: "h", PID: 1}
					open[r.must(t, &OpCreate{Parent: dir, Name: fmt.Sprint(i), User: "u", Group: "g", Mode: 0o644, Holder: h, Token: Token{1}}).Inode] = dir
				}
			}
			r.attach(t, 1, "/p")
			r.tree.Events(true)
			op, err := c.plan(r.tree)
			if err != nil {
				t.Fatal(err)
			}
			var removed []string
			paths, named := 0, 0
			for _, e := range r.must(t, op).Events {
				if paths += len(e.Path); e.Path != "" {
					named++
				}
				switch dir, is := open[e.Inode]; {
				case is && e.Type == EventClose && e.Dir == dir:
					delete(open, e.Inode)
				case e.Type == EventDelete:
					removed = append(removed, e.Path)
				default:
					t.Errorf("event %+v", e)
				}
			}
			if len(open) > 0 || fmt.Sprint(removed) != fmt.Sprint(c.removed) {
				t.Errorf("%d files have no event; removed is %s", len(open), removed)
			}
			if paths > mostNamed+2*fspath.MaxPath || named < 10 {
				t.Errorf("%d paths of %d bytes", named, paths)
			}
		})
	}
}

// TestEventsOfADeepTree: a path that is too long to be named is cut in events, but lies where it did.
func TestEventsOfADeepTree(t *testing.T) {
	r := newRig(t)
	dir := r.chain(t, 2*fspath.MaxDepth, "n")
	other := r.mkdir(t, "/d")
	r.tree.Events(true)
	for _, op := range []Op{
		&OpMkdir{Parent: dir, Names: []string{"new"}, Mode: 0o755},
		&OpRename{FromParent: RootID, FromName: "d", ToParent: dir, ToName: "d"},
		&OpDelete{Parent: dir, Name: "d", Inode: other},
	} {
		for _, e := range r.must(t, op).Events {
			for _, path := range []string{e.Path, e.NewPath} {
				if len(path) > len("/d") && (fspath.Check(path) != nil || !strings.HasPrefix(path, "/top/n/n/")) {
					t.Errorf("%s makes an event at %.40q, of %d bytes", opName(op), path, len(path))
				}
			}
		}
	}
}
