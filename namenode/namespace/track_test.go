package namespace

import (
	"testing"
)

// TestAsOf checks which answers wait for which records.
func TestAsOf(t *testing.T) {
	r := newRig(t)
	tree := r.tree
	r.mkdir(t, "/d/sub")
	file := r.create(t, "/d/f", "x")
	r.create(t, "/d/g", "")
	w := r.open(t, "/d/w", "client")
	tree.Track(true)

	asOf := func(look func(c *Call)) uint64 {
		c := &Call{User: "u", Super: true}
		look(c)
		return c.AsOf()
	}
	stat := func(path string) func(c *Call) { return func(c *Call) { _, _ = tree.Stat(c, Follow(path)) } }
	list := func(path string) func(c *Call) {
		return func(c *Call) { _, _, _, _ = tree.List(c, Follow(path), "", 0) }
	}
	statInode := func(id InodeID) func(c *Call) { return func(c *Call) { _, _ = tree.Stat(c, Inode(id)) } }
	wait := func(name string, look func(c *Call), want uint64) {
		t.Helper()
		if got := asOf(look); got != want {
			t.Errorf("%s waits for %d, should for %d", name, got, want)
		}
	}
	wait("nothing changed", stat("/d/f"), 0)

	n := r.must(t, &OpCreate{Parent: tree.lookup(RootID, "d").ID, Name: "new", Closed: true}).TxID
	wait("sibling created", stat("/d/f"), 0)
	wait("below a sibling directory", stat("/d/sub"), 0)
	wait("by inode", statInode(file), 0)
	wait("the new one", stat("/d/new"), n)
	wait("missing below the new one", stat("/d/new/x"), n)
	wait("another missing", stat("/d/other"), 0)
	wait("the directory itself", stat("/d"), n)
	wait("the list", list("/d"), n)
	wait("the list above", list("/"), n) // shows how many entries /d has
	wait("create of the same name", func(c *Call) { _, _ = PlanCreate(tree, c, CreateRequest{At: At("/d/new")}) }, n)
	tree.SetDurable(n - 1)
	wait("the new one, still", stat("/d/new"), n)
	tree.SetDurable(n)
	wait("the new one, durable", stat("/d/new"), 0)

	n = r.must(t, &OpSetAttr{Inode: tree.lookup(RootID, "d").ID, SetMode: true, Mode: 0o755}).TxID
	wait("mode of a directory above", stat("/d/f"), n)
	wait("by inode", statInode(file), n)
	wait("missing there", stat("/d/none"), n)
	tree.SetDurable(n)

	op, _ := PlanRename(tree, nil, At("/d"), At("/e"), false, false)
	n = r.must(t, op).TxID
	wait("directory above renamed", stat("/e/f"), n)
	wait("old name", stat("/d/f"), n)
	wait("by inode", statInode(file), n)
	tree.SetDurable(n)

	n = r.must(t, &OpAppendTail{Inode: w.Inode, Data: []byte("abc")}).TxID
	wait("length", stat("/e/w"), n)
	wait("length in a list", list("/e"), n)
	wait("another file", stat("/e/f"), 0)
	wait("file", func(c *Call) { _, _ = tree.File(c, Inode(w.Inode)) }, n)
	wait("repeated append", func(c *Call) { _, _, _ = PlanAppendTail(tree, c, w, 0, []byte("abc"), 100) }, n)
	tree.SetDurable(n)

	dir := tree.lookup(RootID, "e")
	n = r.must(t, &OpDelete{Parent: RootID, Name: "e", Inode: dir.ID}).TxID
	wait("deleted subtree", stat("/e/f"), n)
	wait("inode in a deleted subtree", statInode(file), n)
	wait("its writer", func(c *Call) { _ = tree.CheckWriter(c, w) }, n)
	// Reclaiming hides why it is gone, so it counts too.
	n = r.must(t, &OpReclaim{Limit: 100}).TxID
	wait("reclaimed inode", statInode(file), n)
	wait("a clone waits for all", func(c *Call) { _, _ = tree.Clone().Stat(c, Follow("/")) }, n)
	tree.SetDurable(n)
	wait("all durable", statInode(file), 0)
	if n := len(tree.tracker.Pending()); n != 0 {
		t.Errorf("%d changes are still tracked", n)
	}

	tree.Track(false)
	r.create(t, "/z", "")
	wait("not tracked", stat("/z"), 0)
	tree.SetDurable(1)
}
