package scenarios

import (
	"errors"
	"testing"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/lowlevel"
	"github.com/leasefs/leasefs/test/env"
)

// A call that counts on a directory's being somewhere is carried out there or not at
// all, and so is an answer from memory or a draft, for which there is no call.
func TestWithPlaces(t *testing.T) {
	n := env.Start(t)
	f, g := n.Client(t, drafting), n.Client(t)
	ctx := t.Context()
	inode := make(map[string]uint64)
	for _, d := range []string{"/a", "/b"} {
		i, err := lowlevel.Of(f).MkdirFor(ctx, d, 0o755, client.Owner{})
		must(t, err)
		must(t, g.WriteFile(ctx, d+"/f", []byte("x")))
		inode[d] = i
	}
	in := func(d string) client.Place { return client.Place{Path: d, Inode: inode[d]} }
	right := client.WithPlaces(client.WithPlaces(ctx, in("/a")), in("/b"))
	wrong := client.WithPlaces(ctx, in("/b"), client.Place{Path: "/a", Inode: inode["/b"]})
	mine(t, f, "/a")
	unkept(t, f, "/a/new")
	_, kept, err := lowlevel.Of(f).LstatKept(ctx, "/a/f")
	must(t, err)
	if _, again, err := lowlevel.Of(f).LstatKept(right, "/a/f"); err != nil || !kept || !again {
		t.Fatal("what is kept is not used", kept, again, err)
	}
	if _, ok := lowlevel.Of(f).Draft(wrong, "/a/new"); ok {
		t.Error("a draft begins in another directory")
	}
	d, ok := lowlevel.Of(f).Draft(right, "/a/new")
	if !ok {
		t.Fatal("no draft")
	}
	must(t, d.Close(ctx, 0))
	for what, call := range map[string]func(in client.Place) error{
		"stat": func(in client.Place) error { _, err := f.Lstat(client.WithPlaces(ctx, in), "/a/f"); return err },
		"list": func(in client.Place) error { _, err := f.ReadDir(client.WithPlaces(ctx, in), "/a"); return err },
		"write": func(in client.Place) error {
			return f.WriteFile(client.WithPlaces(ctx, in), "/a/g", nil)
		},
		"remove": func(in client.Place) error { return f.RemoveAll(client.WithPlaces(ctx, in), "/a/none") },
		"rename": func(in client.Place) error {
			return f.Rename(client.WithPlaces(ctx, in), "/a/f", "/b/moved", false)
		},
	} {
		if err := call(client.Place{Path: "/a", Inode: inode["/b"]}); !client.IsMoved(err) || !errors.Is(err, fserror.NotFound) {
			t.Errorf("%s: %v", what, err)
		}
		if what != "rename" { // it is last to be right
			must(t, call(in("/a")))
		}
	}
	must(t, f.Rename(right, "/a/f", "/b/moved", false))
}
