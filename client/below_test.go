package client_test

import (
	"errors"
	"io/fs"
	"testing"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/lowlevel"
	"github.com/leasefs/leasefs/test/env"
)

// A change of a whole tree changes what the walk found, and nothing that a link
// leads to which took its place.
func TestSetAttrAllChangesWhatItFound(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	n := env.Start(t)
	root := n.Client(t)
	changes := map[string]client.AttrChange{"chown": {User: "mallory"}, "chmod": {SetMode: true, Mode: 0o666}}
	for name, change := range changes {
		for _, at := range []struct {
			call  string // before which a link takes the place
			first int    // the first one of them, or the second
			path  string
		}{{"SetAttr", 2, "/home/f"}, {"SetAttr", 1, "/home"}, {"Find", 1, "/home"}, {"Find", 1, "/home/f"}} {
			if err := errors.Join(root.RemoveAll(ctx, "/home"), root.RemoveAll(ctx, "/gone"), root.RemoveAll(ctx, "/root"), root.MkdirAll(ctx, "/home", 0o755), root.Mkdir(ctx, "/root", 0o700),
				root.WriteFile(ctx, "/home/f", nil), root.WriteFile(ctx, "/root/f", nil, client.WithMode(0o600))); err != nil {
				t.Fatal(err)
			}
			target := map[string]string{"/home": "/root", "/home/f": "/root/f"}[at.path]
			wired, wire := n.Wired(t)
			calls := 0
			wire.Set(func(method string, _ any, send func() error) error {
				if method == at.call {
					if calls++; calls == at.first {
						if err := errors.Join(root.Rename(ctx, at.path, "/gone", false), root.Symlink(ctx, target, at.path)); err != nil {
							t.Error(err)
						}
					}
				}
				return send()
			})
			err := lowlevel.Of(wired).SetAttrAll(ctx, "/home", func(*client.FileInfo) client.AttrChange { return change })
			if err != nil && !errors.Is(err, fserror.Loop) { // Loop: the tree is not there any more
				t.Errorf("%s, a link at %s: %v", name, at.path, err)
			}
			if calls < at.first {
				t.Errorf("%s: %d calls of %s", name, calls, at.call)
			}
			for path, mode := range map[string]fs.FileMode{"/root": 0o700, "/root/f": 0o600} {
				i, err := root.Stat(ctx, path)
				if err != nil || i.User != "root" || i.Mode().Perm() != mode {
					t.Errorf("%s followed a link at %s to %s: %v %v, %v", name, at.path, path, i.User, i.Mode(), err)
				}
			}
		}
	}
}

// What is removed while a tree is changed is no error; all that is left is changed.
func TestSetAttrAllPassesOverWhatIsGone(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	n := env.Start(t)
	root := n.Client(t)
	if err := errors.Join(root.MkdirAll(ctx, "/d/e", 0o755), root.WriteFile(ctx, "/d/a", nil), root.WriteFile(ctx, "/d/e/b", nil), root.Symlink(ctx, "a", "/d/link"), root.Symlink(ctx, "/d", "/to")); err != nil {
		t.Fatal(err)
	}
	wired, wire := n.Wired(t)
	calls := 0
	wire.Set(func(method string, _ any, send func() error) error {
		if method == "SetAttr" {
			if calls++; calls == 2 {
				if err := root.Remove(ctx, "/d/a"); err != nil {
					t.Error(err)
				}
			}
		}
		return send()
	})
	if err := lowlevel.Of(wired).SetAttrAll(ctx, "/to", func(*client.FileInfo) client.AttrChange { return client.AttrChange{User: "alice"} }); err != nil {
		t.Error(err)
	}
	for _, path := range []string{"/d", "/d/e", "/d/e/b"} {
		if i, err := root.Stat(ctx, path); err != nil || i.User != "alice" {
			t.Errorf("%s: %v, %v", path, i, err)
		}
	}
	if err := lowlevel.Of(wired).SetAttrAll(ctx, "/nowhere", nil); !errors.Is(err, fserror.NotFound) {
		t.Errorf("a path where nothing is: %v", err)
	}
}

// A rename into a directory goes into the one that was found, not to where a link
// in its place leads.
func TestRenameInto(t *testing.T) {
	renameInto := func(fs *client.FS, from string, dir uint64, overwrite bool) error {
		_, err := lowlevel.Of(fs).RenameAt(t.Context(), lowlevel.At(from), lowlevel.Ref{Base: dir, Path: from[1:]}, overwrite, lowlevel.Taken{})
		return err
	}
	t.Parallel()
	ctx := t.Context()
	fs := env.Start(t).Client(t)
	if err := errors.Join(fs.MkdirAll(ctx, "/in", 0o755), fs.Mkdir(ctx, "/other", 0o755), fs.WriteFile(ctx, "/f", nil)); err != nil {
		t.Fatal(err)
	}
	dir, err := fs.Stat(ctx, "/in")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(fs.Rename(ctx, "/in", "/moved", false), fs.Symlink(ctx, "/other", "/in"), renameInto(fs, "/f", dir.Inode, false)); err != nil {
		t.Fatal(err)
	}
	if _, err := fs.Stat(ctx, "/moved/f"); err != nil {
		t.Error(err)
	}
	if err := errors.Join(fs.WriteFile(ctx, "/f", nil), fs.WriteFile(ctx, "/g", nil)); err != nil {
		t.Fatal(err)
	}
	if err := renameInto(fs, "/f", dir.Inode, false); !errors.Is(err, fserror.Exists) {
		t.Errorf("onto one that exists: %v", err)
	}
	if err := renameInto(fs, "/f", dir.Inode, true); err != nil {
		t.Error(err)
	}
	file, err := fs.Stat(ctx, "/moved/f")
	if err != nil {
		t.Fatal(err)
	}
	if err := renameInto(fs, "/g", file.Inode, false); !errors.Is(err, fserror.NotDirectory) {
		t.Errorf("into a file: %v", err)
	}
	if err := fs.RemoveAll(ctx, "/moved"); err != nil {
		t.Fatal(err)
	}
	if err := renameInto(fs, "/g", dir.Inode, false); !errors.Is(err, fserror.NotFound) {
		t.Errorf("into a directory that is gone: %v", err)
	}
}
