package crash

import (
	"strings"
	"testing"
	"time"

	"github.com/leasefs/leasefs/namenode"
)

// day is a script. Everything in it is acknowledged in the end.
type day struct {
	name   string
	script func(*run)
	opts   []option
	// hasty: leases end when the clock moves on, so nothing is collected while
	// files are open.
	hasty bool
}

// points is how many the script has, up to its end.
func (d day) points(t *testing.T) int {
	t.Helper()
	r := &run{day: d.name, opts: d.opts}
	if err := r.play(d.script); err != nil {
		t.Fatal(err)
	}
	return r.points
}

var days = []day{
	{"names", names, nil, false},
	{"blocks", blocks, nil, false},
	{"crowd", crowd, nil, false},
	{"steps", steps, nil, false},
	{"trash", bin, nil, false},
	{"quotas", quotas, nil, false},
	{"snapshots", snapshots, nil, false},
	{"quotas and snapshots", asides, nil, false},
	{"drafts", drafts, nil, false},
	{"ends", ends, []option{func(c *namenode.Config) { c.ReapRate = 10 }}, false}, // one file at a time
}

func text(seed string, n int) string { return strings.Repeat(seed+" ", n/(len(seed)+1)+1)[:n] }

// names: the tree, small files, holders.
func names(r *run) {
	a, b, op := r.by("a"), r.by("b"), r.by("operator")
	r.do(a.mkdir("/d/e"))
	r.do(a.create("f", "/d/f", "", false))
	r.do(a.flush("f", "hello "))
	r.do(b.create("g", "/d/e/g", "whole", true, func(q *pbCreate) { q.HasMode, q.Mode, q.MtimeUnixMs = true, 0o600, 12345 }))
	r.do(a.flush("f", "world"))
	r.do(b.symlink("/d/f", "/links/to-f"))
	r.do(a.close("f", "."))
	r.do(op.checkpoint())
	r.do(b.appendTo("f", "/d/f", 0))
	r.do(b.flush("f", " more"))
	r.do(a.rename("/d", "/dd")) // a folder with an open file in it
	r.do(b.flush("f", " and more"))
	r.restart()
	r.do(b.flush("f", text("after a restart", 700)))
	r.do(a.appendTo("f", "/dd/f", 61*time.Second)) // past b's soft limit
	r.do(a.flush("f", "a's"))
	for _, name := range []string{"m1", "m2", "m3"} {
		r.do(a.create(name, "/dd/"+name, "many "+name, true))
	}
	r.do(a.setattr("/dd/e/g", 0o640, 99_000))
	r.do(op.checkpoint())
	r.do(a.create("h", "/dd/h", text("open", 600), false))
	r.do(b.create("h2", "/dd/h", "b's own", false, steal))
	r.do(b.rename("/dd/m1", "/dd/m2")) // over an existing file
	r.do(op.safeMode(true))
	r.do(op.checkpoint()) // the third: the first goes
	r.restart()
	r.do(op.safeMode(false))
	r.do(b.recover("/dd/f"))
	r.do(b.truncate("/dd/f", 7))
	r.do(a.create("i", "/x/y/z/i", "in a deleted folder", false))
	r.do(a.create("j", "/x/y/j", "", false))
	r.do(a.rename("/x/y/j", "/j"))
	r.do(a.delete("/x")) // with an open file in it
	r.do(a.flush("j", "goes on"))
	r.do(r.by("a/2").closeAbandoned("/j"))
	r.do(b.delete("/dd/m2"))
	for _, name := range []string{"t1", "t2", "t3"} {
		r.do(a.create(name, "/"+name, text(name, 900), true))
	}
	r.do(b.transact("t4", "/t/t4", text("t4", 900), "/t1", "/t2", "/t3")) // all of it, or none
	r.do(b.create("m3", "/dd/m3", "new", true, overwrite))
	r.do(b.rename("/dd/h", "/dd/m3")) // an open file over a closed one
	r.do(b.close("h2", "end"))
	r.do(a.create("k", "/k", "stays open", false))
}

// blocks: PUTs, commits, seals, garbage.
func blocks(r *run) {
	a, b, op := r.by("a"), r.by("b"), r.by("operator")
	r.do(a.create("f", "/f", "", false))
	r.do(a.flush("f", "tail first, "))
	a.put("f", text("block one", 700))
	r.do(a.flush("f", "tail again, "))
	r.do(op.checkpoint())
	r.do(b.create("g", "/dir/g", "", false))
	b.put("g", text("g", 300))
	a.put("f", text("block two", 2000))
	w, _ := a.writer("f")
	object, sum := seal("never committed")
	orphan := a.target(w, object, sum)
	r.do(a.upload(orphan, object))
	r.do(op.collectNow())
	r.do(a.close("f", "the end"))
	object, sum = seal("of two reigns")
	w, _ = b.writer("g")
	t := b.target(w, object, sum)
	r.restart() // between allocation and PUT, and between PUT and commit
	r.do(op.collectNow())
	r.do(b.upload(t, object))
	r.do(op.collectNow())
	r.do(b.rename("/dir", "/moved"))
	r.restart()
	r.do(op.collectNow())
	r.do(b.commit("g", t, object, sum, "of two reigns"))
	r.do(b.close("g", text("g's tail", 100)))
	r.do(op.checkpoint())
	r.do(a.create("h", "/h", text("h", 50), true))
	r.do(a.concat("/moved/g", "/f", "/h")) // seals the tails first
	r.do(a.truncate("/moved/g", 1100))     // in the middle of a block
	r.do(op.collect())                     // f's last blocks and the orphan
	r.do(a.create("i", "/moved/sub/i", "", false))
	a.put("i", text("to be deleted", 400))
	r.do(a.create("k", "/k", "", false))
	a.put("k", text("to be replaced", 400))
	r.do(a.close("k", ""))
	r.do(op.collect())
	reader := a.hold("/k")
	r.do(a.delete("/moved/sub"))
	r.do(b.create("k2", "/k", "short", false, overwrite))
	r.do(op.collectNow())
	r.do(reader)
	r.do(op.checkpoint())
	r.do(op.collect())
	r.do(a.appendTo("g", "/moved/g", 0))
	r.do(a.flush("g", text("appended", 60)))
	a.put("g", text("appended block", 300))
	r.do(a.delete("/k"))
	r.restart()
	r.do(op.collect())
}

// crowd: several at once, so that batches have several records.
func crowd(r *run) {
	a, b, c, d, op := r.by("a"), r.by("b"), r.by("c"), r.by("d"), r.by("operator")
	e := r.by("e")
	r.do(a.mkdir("/d"))
	r.do(a.create("a", "/d/a", "", false), b.create("b", "/d/b", "b", false), c.create("c", "/d/c", "c", false), d.create("d", "/d/d", "", false))
	for i := range 4 {
		r.do(a.flush("a", text("a", 20+i)), b.flush("b", text("b", 700)), c.flush("c", text("c", 3)), d.flush("d", text("d", 1500)), e.look("a"))
	}
	r.do(a.flush("a", "during"), b.flush("b", "an image"), op.checkpoint(), e.look("b"))
	r.do(a.rename("/d/a", "/d/aa"), b.close("b", "last"), c.setattr("/d/c", 0o604, 77), d.delete("/d/d"), e.find("/d/aa"))
	r.do(a.close("a", ""), b.create("x", "/d/x", "many x", true), r.by("f").create("y0", "/d/y", "many y", true), r.by("g").create("z", "/d/z", "many z", true), c.flush("c", "more"), op.checkpoint())
	r.do(a.mkdir("/m/n"), b.symlink("a", "/sym"), c.close("c", "end"), d.create("w", "/w", text("w", 4000), true), e.find("/w"))
	r.m.endURLs()
	r.do(a.delete("/d/x"), b.create("y", "/d/y", "new y", false, overwrite), c.appendTo("c", "/d/c", 0), op.collectNow())
	r.do(op.checkpoint(), b.flush("y", "1"), c.flush("c", "2"))
	r.do(a.rename("/d", "/dd"), e.find("/dd"))
	r.do(b.flush("y", "3"), c.flush("c", "4"), a.truncate("/w", 100), e.look("c"))
}
