package scenarios

import (
	"errors"
	"testing"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/lowlevel"
	"github.com/leasefs/leasefs/test/env"
)

// A call by a name in a directory is carried out in that directory or not at all, and
// so is an answer from memory or a draft, for which there is no call: whatever has the
// directory's path by now, and whether or not it has one itself.
func TestNamesInADirectory(t *testing.T) {
	n := env.Start(t)
	f, g := n.Client(t, drafting), n.Client(t)
	low, ctx := lowlevel.Of(f), t.Context()
	dir, err := low.MkdirFor(ctx, lowlevel.At("/a"), 0o755, 0, client.Owner{})
	must(t, err)
	in := func(name string) lowlevel.Ref { return lowlevel.Ref{Base: dir, Path: name} }
	must(t, g.WriteFile(ctx, "/a/f", []byte("mine")))
	mine(t, f, "/a")
	for _, at := range []lowlevel.Ref{lowlevel.Inode(dir), in("f")} {
		_, kept, err := low.LstatKept(ctx, at)
		must(t, err)
		if _, again, err := low.LstatKept(ctx, at); err != nil || !kept || !again {
			t.Fatal("what is kept is not used", kept, again, err)
		}
	}
	must(t, g.Rename(ctx, "/a", "/moved", false))
	must(t, g.Mkdir(ctx, "/a", 0o755))
	must(t, g.WriteFile(ctx, "/a/f", []byte("theirs")))
	if i, _, err := low.LstatKept(ctx, in("f")); err != nil || i.Length != 4 {
		t.Fatal(i, err)
	}
	drafted := func(name string) *lowlevel.Draft {
		t.Helper()
		w, err := low.CreateAt(ctx, in(name+" first"), "")
		must(t, err)
		must(t, w.Close())
		if _, _, err := low.LstatKept(ctx, in(name)); !errors.Is(err, fserror.NotFound) || lowlevel.IsGone(err) {
			t.Fatal(err)
		}
		d, ok := low.Draft(t.Context(), in(name), "")
		if !ok {
			t.Fatal("no draft")
		}
		return d
	}
	must(t, drafted("new").Close(ctx, 0))
	calls := map[string]func(name string) error{
		"stat": func(string) error { _, _, err := low.LstatKept(ctx, in("f")); return err },
		"list": func(string) error { _, _, err := low.ListAt(ctx, lowlevel.Inode(dir), "", 0); return err },
		"create": func(name string) error {
			_, err := low.CreateClosed(ctx, in(name))
			return err
		},
		"mkdir":   func(name string) error { _, err := low.MkdirFor(ctx, in(name), 0o755, 0, client.Owner{}); return err },
		"symlink": func(name string) error { return low.SymlinkFor(ctx, "to", in(name), client.Owner{}) },
		"rename": func(name string) error {
			_, err := low.RenameAt(ctx, in("f"), in(name), false, lowlevel.Taken{})
			return err
		},
		"remove": func(string) error { _, err := low.RemoveTaken(ctx, in("f"), lowlevel.Taken{}); return err },
	}
	for what, call := range calls {
		must(t, g.WriteFile(ctx, "/moved/f", []byte("mine"), client.WithOverwrite()))
		if err := call(what); err != nil {
			t.Errorf("%s in a directory that was renamed: %v", what, err)
		}
	}
	stray := drafted("stray")
	if got, err := g.ReadDir(ctx, "/a"); err != nil || len(got) != 1 || got[0].Length != 6 {
		t.Fatal("the directory that has the path was changed", got, err)
	}
	must(t, stray.Close(ctx, 0))
	must(t, g.RemoveAll(ctx, "/moved"))
	for what, call := range calls {
		if err := call(what); !errors.Is(err, fserror.NotFound) || !lowlevel.IsGone(err) {
			t.Errorf("%s in a directory that was removed: %v", what, err)
		}
	}
	if _, ok := low.Draft(t.Context(), in("late"), ""); ok {
		t.Error("a draft begins in a directory that was removed")
	}
}
