package trash_test

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/client/trash"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/lowlevel"
	"github.com/leasefs/leasefs/test/env"
)

// look is all that a client sees: of paths, of inodes, in directories, in files.
func look(t *testing.T, f *client.FS, paths []string, inodes []uint64) string {
	t.Helper()
	low, ctx := lowlevel.Of(f), t.Context()
	kind := func(err error) fserror.Kind {
		if err == nil {
			return 0
		}
		return fserror.KindOf(err)
	}
	seen := ""
	for _, p := range paths {
		i, err := f.Stat(ctx, p)
		seen += fmt.Sprintf("%s %v", p, kind(err))
		if err == nil {
			seen += fmt.Sprintf(" %d %d", i.Inode, i.Size())
			if i.IsDir() {
				list, err := f.ReadDir(ctx, p)
				for _, e := range list {
					seen += " " + e.Name()
				}
				seen += fmt.Sprint(" ", kind(err))
			} else {
				data, err := f.ReadFile(ctx, p)
				seen += fmt.Sprintf(" %q %v", data, kind(err))
			}
		}
		seen += "\n"
	}
	for _, n := range inodes {
		i, err := low.Locate(ctx, lowlevel.Inode(n))
		seen += fmt.Sprintf("%d %v", n, kind(err))
		if err == nil {
			seen += " " + i.Path
		}
		seen += "\n"
	}
	return seen
}

// TestWhoCachesSeesTheTrash deletes, restores, empties and moves at random. A client that keeps
// what it has read sees after each change what one sees that does not.
func TestWhoCachesSeesTheTrash(t *testing.T) {
	t.Parallel()
	n := env.Start(t)
	ctx := t.Context()
	g, plain := n.Client(t, env.Named("g")), n.Client(t, env.Named("plain"))
	caches := n.Client(t, env.Named("caches"), func(c *client.Config) { c.Cache = true })
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(g.MkdirAll(ctx, "/k", 0o755))
	must(g.MkdirAll(ctx, "/n", 0o755))
	must(g.Xattrs("/k").Set(ctx, trash.Xattr, []byte("1d"), client.XattrAny))
	paths := []string{"/k", "/k/a", "/k/a/b", "/k/a/b/c", "/k/d", "/n", "/n/e", "/n/e/b"}
	const seed = 7
	rng := rand.New(rand.NewPCG(seed, seed)) //nolint:gosec // a test
	place := func() string { return paths[1:5][rng.IntN(4)] }
	entry := func() (id uint64) {
		var ids []uint64
		must(trash.List(ctx, g, trash.Filter{}, func(e *trash.Entry) error { ids = append(ids, e.ID); return nil }))
		if len(ids) > 0 {
			id = ids[rng.IntN(len(ids))]
		}
		return id
	}
	var inodes []uint64
	done := map[string]int{}
	for step := range 300 {
		name, err := "", error(nil)
		switch rng.IntN(8) {
		case 0, 1:
			name, err = "mkdir", g.Mkdir(ctx, place(), 0o755)
		case 2:
			w, cerr := g.Create(ctx, place(), client.WithOverwrite())
			if name, err = "create", cerr; err == nil {
				_, werr := fmt.Fprint(w, step)
				err = errors.Join(werr, w.Close())
			}
		case 3, 4:
			name, err = "remove", g.RemoveAll(ctx, place())
		case 5, 6:
			name, err = "restore", trash.Restore(ctx, g, entry(), cmp.Or([]string{"", "/n/e"}[rng.IntN(2)], place()))
		case 7:
			if rng.IntN(3) == 0 {
				_, err = trash.Empty(ctx, g, entry())
				name = "empty"
			} else {
				name, err = "rename", g.Rename(ctx, place(), place(), true)
			}
		}
		switch kind := fserror.KindOf(err); {
		case err == nil:
			done[name]++
		case kind == fserror.Internal || kind == fserror.Unavailable || errors.Is(err, fs.ErrClosed):
			t.Fatalf("step %d, %s: %v", step, name, err)
		}
		for _, p := range paths {
			if i, err := plain.Stat(ctx, p); err == nil && !slices.Contains(inodes, i.Inode) {
				inodes = append(inodes, i.Inode)
			}
		}
		if len(inodes) > 12 {
			inodes = inodes[len(inodes)-12:]
		}
		if got, want := look(t, caches, paths, inodes), look(t, plain, paths, inodes); got != want {
			t.Fatalf("step %d, after %s (%v): who caches sees\n%s\nnot\n%s", step, name, err, got, want)
		}
	}
	for _, name := range []string{"mkdir", "create", "remove", "restore", "empty", "rename"} {
		if done[name] < 3 {
			t.Errorf("%s was done %d times", name, done[name])
		}
	}
}
