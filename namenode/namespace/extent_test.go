package namespace

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fspath"
)

// chain makes directories, each in the one before, whose names are all the
// same; its first is /top.
func (r *rig) chain(t *testing.T, depth int, name string) InodeID {
	t.Helper()
	dir := r.mkdir(t, "/top")
	for range depth - 1 {
		dir = r.must(t, &OpMkdir{Parent: dir, Names: []string{name}, Mode: 0o755}).Inode
	}
	return dir
}

// The memory of a walk grows with the depth, not with its square.
func TestWalkOfADeepTreeTakesLittleMemory(t *testing.T) {
	r := newRig(t)
	const depth = 3000
	r.chain(t, depth, strings.Repeat("n", 200))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	seen, longest := 0, 0
	err := r.tree.Walk(RootID, func(path []byte, _ Attr) error {
		seen, longest = seen+1, max(longest, len(path))
		return nil
	})
	runtime.ReadMemStats(&after)
	if err != nil || seen != depth+1 || longest != 4+(depth-1)*201 {
		t.Fatal(seen, longest, err)
	}
	if took := after.TotalAlloc - before.TotalAlloc; took > 32<<20 {
		t.Errorf("%d MiB for %d levels", took>>20, depth)
	}
}

// Calls of a writer take no memory for the path of the file.
func TestWritersCallsBuildNoPaths(t *testing.T) {
	r := newRig(t)
	allocs := func(path string) (commit, closing float64) {
		w := r.open(t, path, "c")
		r.commit(t, w, "first")
		b := r.block("second")
		commit = testing.AllocsPerRun(100, func() {
			if _, err := PlanCommit(r.tree, nil, w, 5, b, 0, 0); err != nil {
				t.Fatal(err)
			}
		})
		closing = testing.AllocsPerRun(100, func() {
			if _, err := PlanClose(r.tree, nil, w, 0, nil, 5, 0, testMaxTail); err != nil {
				t.Fatal(err)
			}
		})
		return commit, closing
	}
	commit, closing := allocs("/f")
	deepCommit, deepClosing := allocs(strings.Repeat("/d", 500) + "/f")
	if deepCommit != commit || deepClosing != closing {
		t.Errorf("commit %v and close %v allocations, in the depth %v and %v", commit, closing, deepCommit, deepClosing)
	}
}

// What is made through a symbolic link, or moved, has a path that can be named.
func TestNothingIsPutWhereItCannotBeNamed(t *testing.T) {
	r := newRig(t)
	deepest := r.chain(t, fspath.MaxDepth, "d")
	path, _ := r.tree.Path(deepest)
	half := path[:len(path)/2]
	half = half[:strings.LastIndexByte(half, '/')]
	for name, target := range map[string]string{"/deepest": path, "/half": half} {
		op, err := PlanSymlink(r.tree, nil, At(name), target, false)
		if err != nil {
			t.Fatal(err)
		}
		r.must(t, op)
	}
	r.create(t, "/f", "")
	r.mkdir(t, "/empty")
	r.mkdir(t, "/wide/sub")
	for i := range maxDeepLook {
		r.create(t, fmt.Sprintf("/wide/%d", i), "")
	}

	long := strings.Repeat("/"+strings.Repeat("n", 255), 64) // 16 KiB
	r.mkdir(t, "/long1"+long)
	r.mkdir(t, "/long2"+long)

	for name, plan := range map[string]func() error{
		"mkdir": func() error { _, err := PlanMkdir(r.tree, nil, At("/deepest/x"), 0o755, false); return err },
		"mkdir of many": func() error {
			_, err := PlanMkdir(r.tree, nil, At("/half"+strings.Repeat("/x", 520)), 0o755, true)
			return err
		},
		"create":         func() error { _, err := PlanCreate(r.tree, nil, CreateRequest{At: At("/deepest/x")}); return err },
		"symlink":        func() error { _, err := PlanSymlink(r.tree, nil, At("/deepest/x"), "y", false); return err },
		"rename of file": func() error { _, err := PlanRename(r.tree, nil, At("/f"), At("/deepest/x"), false, false); return err },
		"rename of empty": func() error {
			_, err := PlanRename(r.tree, nil, At("/empty"), At("/deepest/x"), false, false)
			return err
		},
		"rename of chain": func() error {
			_, err := PlanRename(r.tree, nil, At("/top"), At("/empty/top"), false, false)
			return err
		},
		"rename of bytes": func() error {
			_, err := PlanRename(r.tree, nil, At("/long1"), At("/long2"+long+"/x"), false, false)
			return err
		},
	} {
		if err := plan(); fserror.KindOf(err) != fserror.NameTooLong {
			t.Errorf("%s: %.200v", name, err)
		}
	}

	for name, plan := range map[string]func() error{
		"mkdir through a link": func() error { _, err := PlanMkdir(r.tree, nil, At("/half/x"), 0o755, false); return err },
		"rename where it is":   func() error { _, err := PlanRename(r.tree, nil, At("/top"), At("/pot"), false, false); return err },
		"rename to less depth": func() error { _, err := PlanRename(r.tree, nil, At("/top/d"), At("/d"), false, false); return err },
		"rename of much": func() error {
			_, err := PlanRename(r.tree, nil, At("/wide"), At("/empty/wide"), false, false)
			return err
		},
		"rename of a half": func() error { _, err := PlanRename(r.tree, nil, At("/long2"), At("/half/x"), false, false); return err },
		"rename below a chain": func() error {
			_, err := PlanRename(r.tree, nil, At("/wide/sub"), At("/half/x"), false, false)
			return err
		},
	} {
		if err := plan(); err != nil {
			t.Errorf("%s: %.200v", name, err)
		}
	}
}
