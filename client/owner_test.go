package client_test

import (
	"strings"
	"testing"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/lowlevel"
	"github.com/leasefs/leasefs/test/env"
)

// A superuser makes things for others; nobody else does.
func TestMakingForAnother(t *testing.T) {
	n := env.Start(t)
	root, ann := n.Client(t), n.Client(t, func(c *client.Config) { c.User = "ann" })
	bob := client.Owner{User: "bob", Group: "staff"}
	must(t, root.Mkdir(t.Context(), "/d", 0o777))
	must(t, root.Chmod(t.Context(), "/d", 0o777))
	makers := map[string]func(f *client.FS, path string, o client.Owner) error{
		"create": func(f *client.FS, path string, o client.Owner) error {
			w, err := f.Create(t.Context(), path, client.WithOwner(o))
			if err != nil {
				return err
			}
			return w.Close()
		},
		"whole": func(f *client.FS, path string, o client.Owner) error {
			return f.WriteFile(t.Context(), path, []byte("text"), client.WithOwner(o))
		},
		"from": func(f *client.FS, path string, o client.Owner) error {
			_, err := f.WriteFrom(t.Context(), path, strings.NewReader("text"), client.WithOwner(o))
			return err
		},
		"many": func(f *client.FS, path string, o client.Owner) error {
			errs, err := f.WriteFiles(t.Context(), []client.FileData{{Path: path, Options: []client.OpenOption{client.WithOwner(o)}}})
			if err != nil {
				return err
			}
			return errs[0]
		},
		"mkdir": func(f *client.FS, path string, o client.Owner) error {
			_, err := lowlevel.Of(f).MkdirFor(t.Context(), lowlevel.At(path), 0o755, 0, o)
			return err
		},
		"symlink": func(f *client.FS, path string, o client.Owner) error {
			return lowlevel.Of(f).SymlinkFor(t.Context(), "to", lowlevel.At(path), o)
		},
	}
	for how, do := range makers {
		for _, test := range []struct{ owner, want client.Owner }{
			{bob, bob},
			{client.Owner{User: "bob"}, client.Owner{User: "bob", Group: "supergroup"}},
			{client.Owner{Group: "staff"}, client.Owner{User: "root", Group: "staff"}},
		} {
			path := "/d/" + how + test.owner.User + test.owner.Group
			must(t, do(root, path, test.owner))
			i, err := root.Lstat(t.Context(), path)
			must(t, err)
			if got := (client.Owner{User: i.User, Group: i.Group}); got != test.want {
				t.Errorf("%s: it is of %v, want %v", how, got, test.want)
			}
			if err := do(ann, path+"2", test.owner); !client.IsNotSuperuser(err) || fserror.KindOf(err) != fserror.Permission {
				t.Errorf("%s by ann for %v: %v", how, test.owner, err)
			}
		}
		if err := do(root, "/d/long", client.Owner{User: strings.Repeat("x", 256)}); fserror.KindOf(err) != fserror.InvalidArgument {
			t.Errorf("%s for a long name: %v", how, err)
		}
	}
}
