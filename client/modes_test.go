package client_test

import (
	"bytes"
	"io/fs"
	"path"
	"testing"

	"github.com/leasefs/leasefs/client"
)

// What is replaced hands its mode on, as with open(2) and O_TRUNC, unless another
// is asked for; what is new has that of the client's umask.
func TestModes(t *testing.T) {
	strict := fs.FileMode(0o077)
	plain, masked := serve(t), serve(t, func(c *client.Config) { c.Umask = &strict })
	ways := map[string]func(f *client.FS, path string, opts ...client.OpenOption) error{
		"create": func(f *client.FS, path string, opts ...client.OpenOption) error {
			w, err := f.Create(t.Context(), path, opts...)
			if err != nil {
				return err
			}
			return w.Close()
		},
		"small": func(f *client.FS, path string, opts ...client.OpenOption) error {
			return f.WriteFile(t.Context(), path, []byte("text"), opts...)
		},
		"large": func(f *client.FS, path string, opts ...client.OpenOption) error {
			return f.WriteFile(t.Context(), path, make([]byte, f.Info().MaxWholeFile+1), opts...)
		},
		"many": func(f *client.FS, path string, opts ...client.OpenOption) error {
			errs, err := f.WriteFiles(t.Context(), []client.FileData{{Path: path, Options: opts}})
			if err != nil {
				return err
			}
			return errs[0]
		},
		"from": func(f *client.FS, path string, opts ...client.OpenOption) error {
			_, err := f.WriteFrom(t.Context(), path, bytes.NewReader(nil), opts...)
			return err
		},
	}
	appended := func(f *client.FS, path string, opts ...client.OpenOption) error {
		w, err := f.Append(t.Context(), path, append(opts, client.WithCreate())...)
		if err != nil {
			return err
		}
		return w.Close()
	}
	has := func(f *client.FS, name string, want fs.FileMode) {
		t.Helper()
		i, err := f.Lstat(t.Context(), name)
		must(t, err)
		if i.Mode().Perm() != want {
			t.Errorf("%s has mode %o, want %o", name, i.Mode().Perm(), want)
		}
	}
	for f, umask := range map[*client.FS]fs.FileMode{plain: 0o022, masked: strict} {
		for how, do := range ways {
			name := "/" + how + "/sub/f"
			must(t, do(f, name, client.WithParents()))
			has(f, name, 0o666&^umask)
			has(f, path.Dir(name), 0o777&^umask)
			must(t, f.Chmod(t.Context(), name, 0o604))
			must(t, do(f, name, client.WithOverwrite()))
			has(f, name, 0o604)
			must(t, do(f, name, client.WithOverwrite(), client.WithMode(0o640)))
			has(f, name, 0o640)
			must(t, f.Symlink(t.Context(), name, name+"link"))
			must(t, do(f, name+"link", client.WithOverwrite()))
			has(f, name, 0o640)
		}
		must(t, f.MkdirAll(t.Context(), "/dir/sub", f.Info().DirMode))
		has(f, "/dir", 0o777&^umask)
		has(f, "/dir/sub", 0o777&^umask)
		must(t, appended(f, "/a/sub/f", client.WithParents()))
		has(f, "/a/sub/f", 0o666&^umask)
		has(f, "/a/sub", 0o777&^umask)
		must(t, appended(f, "/a/g", client.WithMode(0o600)))
		must(t, appended(f, "/a/g", client.WithMode(0o644)))
		has(f, "/a/g", 0o600)
	}
}
