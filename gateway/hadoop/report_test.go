package hadoop_test

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/client/snapshots"
	"github.com/leasefs/leasefs/gateway/hadoop"
	"github.com/leasefs/leasefs/internal/lowlevel"
	"github.com/leasefs/leasefs/test/env"
)

// item is something in a tree, by its number outside of snapshots.
type item struct {
	parent uint64
	path   string // relative to the top
	attrs  string
	dir    bool
}

func (i item) name() string { return path.Base(i.path) }

type items map[uint64]item

// read reads a tree.
func read(t *testing.T, f *client.FS, top string) (root uint64, all items) {
	t.Helper()
	all = items{}
	var add func(i *client.FileInfo, below string, parent uint64)
	add = func(i *client.FileInfo, below string, parent uint64) {
		_, inode := snapshots.Split(i.Inode)
		all[inode] = item{parent, below, fmt.Sprint(i.Mode(), i.User, i.Group, i.Length, i.ModTime().UnixMilli()), i.IsDir()}
		if !i.IsDir() {
			return
		}
		list, err := f.ReadDir(t.Context(), path.Join(top, below))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range list {
			add(e, path.Join(below, e.Name()), inode)
		}
	}
	i, err := f.Stat(t.Context(), top)
	if err != nil {
		t.Fatal(err)
	}
	add(i, "", 0)
	_, root = snapshots.Split(i.Inode)
	return root, all
}

// model is Hadoop's report by the definition of it: HDFS looks at what a directory has in the first
// tree and not in the second, and the other way round, and then at the directories that are in both.
func model(root uint64, was, is items) (lines []hadoop.SnapshotChange, byEntries int) {
	var stays func(uint64) bool
	stays = func(dir uint64) bool {
		_, had := was[dir]
		_, has := is[dir]
		return dir == root || had && has && stays(was[dir].parent)
	}
	type section struct {
		m  hadoop.SnapshotChange
		in []hadoop.SnapshotChange
	}
	var sections []section
	for inode, a := range was {
		b, both := is[inode]
		if !both || inode != root && !stays(a.parent) {
			continue
		}
		s, changed := section{m: hadoop.SnapshotChange{Label: "M", Path: a.path}}, a.attrs != b.attrs
		for other, x := range was {
			if y, still := is[other]; a.dir && x.parent == inode && !still {
				s.in = append(s.in, hadoop.SnapshotChange{Label: "-", Path: x.path})
			} else if a.dir && x.parent == inode && (y.parent != inode || y.name() != x.name()) {
				s.in = append(s.in, hadoop.SnapshotChange{Label: "R", Path: x.path, Target: y.path})
			}
		}
		moved := false
		for other, y := range is {
			x, before := was[other]
			switch {
			case !a.dir || y.parent != inode:
			case !before || x.parent != 0 && !stays(x.parent):
				s.in = append(s.in, hadoop.SnapshotChange{Label: "+", Path: path.Join(a.path, y.name())})
			case x.parent != inode || x.name() != y.name():
				moved = true
			}
		}
		if !changed && (moved || len(s.in) > 0) {
			byEntries++
		}
		if changed || moved || len(s.in) > 0 {
			slices.SortFunc(s.in, func(a, b hadoop.SnapshotChange) int {
				return cmp.Or(cmp.Compare(a.Label, b.Label), cmp.Compare(a.Path, b.Path))
			})
			sections = append(sections, s)
		}
	}
	slices.SortFunc(sections, func(a, b section) int { return cmp.Compare(a.m.Path, b.m.Path) })
	for _, s := range sections {
		lines = append(append(lines, s.m), s.in...)
	}
	return lines, byEntries
}

// paged is the report that Hadoop's client makes of pages: under each line M of a directory what has
// the number of that.
func paged(t *testing.T, f hadoop.FS, dir, from, to string, limit int) (lines []hadoop.SnapshotChange) {
	t.Helper()
	var m []*snapshots.Change
	below := map[uint64][]hadoop.SnapshotChange{}
	for cursor := ""; ; {
		p, err := f.SnapshotChanges(t.Context(), dir, from, to, cursor, limit)
		if err != nil {
			t.Fatal(err)
		}
		m = append(m, p.Modified...)
		for _, c := range p.Created {
			below[c.Parent] = append(below[c.Parent], hadoop.SnapshotChange{Label: "+", Path: c.Path})
		}
		for _, c := range p.Deleted {
			line := hadoop.SnapshotChange{Label: "-", Path: c.Path}
			if c.Type == snapshots.Renamed {
				line = hadoop.SnapshotChange{Label: "R", Path: c.Path, Target: c.NewPath}
			}
			below[c.Parent] = append(below[c.Parent], line)
		}
		if cursor = p.Next; cursor == "" {
			break
		}
	}
	slices.SortFunc(m, func(a, b *snapshots.Change) int { return cmp.Compare(a.Path, b.Path) })
	for _, c := range m {
		in := below[c.Inode]
		slices.SortFunc(in, func(a, b hadoop.SnapshotChange) int {
			return cmp.Or(cmp.Compare(a.Label, b.Label), cmp.Compare(a.Path, b.Path))
		})
		lines = append(append(lines, hadoop.SnapshotChange{Label: "M", Path: c.Path}), in...)
	}
	return lines
}

// change makes a random change below one of some directories. Some are impossible.
func change(t *testing.T, r *rand.Rand, f *client.FS, tops ...string) error {
	ctx := t.Context()
	all, dirs := []string{}, tops
	for _, top := range tops {
		_, in := read(t, f, top)
		for _, i := range slices.SortedFunc(maps.Values(in), func(a, b item) int { return cmp.Compare(a.path, b.path) }) {
			if p := path.Join(top, i.path); i.path != "" {
				if all = append(all, p); i.dir {
					dirs = append(dirs, p)
				}
			}
		}
	}
	name := path.Join(dirs[r.IntN(len(dirs))], string(rune('a'+r.IntN(4))))
	if len(all) == 0 {
		return f.Mkdir(ctx, name, 0o755)
	}
	one := all[r.IntN(len(all))]
	switch r.IntN(9) {
	case 0, 1:
		return f.Mkdir(ctx, name, 0o755)
	case 2:
		return f.WriteFile(ctx, name, []byte("x"))
	case 3:
		w, err := f.Append(ctx, one)
		if err != nil {
			return err
		}
		_, err = w.Write([]byte("more"))
		return errors.Join(err, w.Close())
	case 4:
		return f.Chmod(ctx, one, fs.FileMode(0o700|r.IntN(64)))
	case 5:
		return f.RemoveAll(ctx, one)
	default:
		return f.Rename(ctx, one, name, r.IntN(2) == 0)
	}
}

// reporter is a client of a new namenode, and what asks it as HDFS's clients do.
func reporter(t *testing.T) (f *client.FS, h hadoop.FS, must func(error)) {
	t.Helper()
	f = env.Start(t).Client(t, env.Named("root"))
	return f, hadoop.FS{FS: lowlevel.Of(f), User: "root"}, func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestSnapshotReports: a report of snapshots is that of HDFS, whole and in pages of any size, in either order,
// also of directories that have other entries and the same attributes.
func TestSnapshotReports(t *testing.T) {
	t.Parallel()
	f, h, must := reporter(t)
	ctx := t.Context()
	labels, byEntries, rounds := map[string]int{}, 0, 25
	for round := range rounds {
		seed := uint64(round)
		r := rand.New(rand.NewPCG(1, seed))
		d, outside := fmt.Sprint("/d", round), fmt.Sprint("/outside", round)
		must(f.Mkdir(ctx, d, 0o755))
		must(f.Mkdir(ctx, outside, 0o755))
		must(h.AllowSnapshots(ctx, d, true))
		some := func(count int) {
			for range count {
				_ = change(t, r, f, d, d, d, outside) // what is impossible changes nothing
			}
		}
		some(25)
		_, err := h.MakeSnapshot(ctx, d, "s")
		must(err)
		some(3 + r.IntN(12))
		root, was := read(t, f, snapshots.Path(d, "s", ""))
		_, now := read(t, f, d)
		for _, i := range slices.SortedFunc(maps.Values(now), func(a, b item) int { return cmp.Compare(a.path, b.path) }) {
			if old, err := f.Stat(ctx, snapshots.Path(d, "s", i.path)); err == nil && r.IntN(2) == 0 { // as rsync does
				must(f.Chtimes(ctx, path.Join(d, i.path), old.ModTime()))
			}
		}
		_, is := read(t, f, d)
		_, err = h.MakeSnapshot(ctx, d, "t")
		must(err)
		for _, c := range []struct {
			from, to string
			was, is  items
		}{{"s", "t", was, is}, {"t", "s", is, was}, {"s", "", was, is}, {"", "s", is, was}} {
			want, alone := model(root, c.was, c.is)
			byEntries += alone
			for _, l := range want {
				labels[l.Label]++
			}
			got, err := h.SnapshotReport(ctx, d, c.from, c.to)
			if err != nil || !slices.Equal(got, want) {
				t.Fatalf("round %d, from %q to %q:\n%s\nnot\n%s\n%v", round, c.from, c.to, shown(got), shown(want), err)
			}
			for limit := range len(want) + 2 {
				if got := paged(t, h, d, c.from, c.to, limit); !slices.Equal(got, want) {
					t.Fatalf("round %d, from %q to %q, in pages of %d:\n%s\nnot\n%s", round, c.from, c.to, limit, shown(got), shown(want))
				}
			}
		}
	}
	for _, label := range []string{"M", "+", "-", "R"} {
		if labels[label] < rounds {
			t.Errorf("%d lines %s in %d rounds: the changes show too little", labels[label], label, rounds)
		}
	}
	if byEntries < rounds {
		t.Errorf("%d directories had the same attributes and other entries: too few", byEntries)
	}
}

func shown(lines []hadoop.SnapshotChange) string {
	var s strings.Builder
	for _, l := range lines {
		fmt.Fprintf(&s, "%s %s %s\n", l.Label, l.Path, l.Target)
	}
	return s.String()
}

// TestSnapshotsByTime: snapshots are listed as they were made, whatever their names.
func TestSnapshotsByTime(t *testing.T) {
	t.Parallel()
	f, h, must := reporter(t)
	ctx := t.Context()
	must(f.Mkdir(ctx, "/d", 0o755))
	must(h.AllowSnapshots(ctx, "/d", true))
	names := []string{"m", "z", "a", "k"}
	for made := range names {
		for { // again, if it was made in the same millisecond as the one before
			_, err := h.MakeSnapshot(ctx, "/d", names[made])
			must(err)
			all, err := h.Snapshots(ctx, "/d")
			must(err)
			times := map[string]int64{}
			for _, s := range all {
				times[s.Name] = s.Made.UnixMilli()
			}
			if made == 0 || times[names[made]] > times[names[made-1]] {
				break
			}
			must(h.DeleteSnapshot(ctx, "/d", names[made]))
		}
	}
	all, err := h.Snapshots(ctx, "/d")
	must(err)
	var got []string
	for _, s := range all {
		got = append(got, s.Name)
	}
	if !slices.Equal(got, names) {
		t.Errorf("%v, not %v", got, names)
	}
}
