package offline

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode/backups"
	"github.com/leasefs/leasefs/namenode/namespace"
	"github.com/leasefs/leasefs/namenode/namespace/calls"
)

// grown is a tree with files in directories that nobody may write.
func grown(t *testing.T) *namespace.Tree {
	t.Helper()
	_, tree := folder(t)
	add := func(op namespace.Op) {
		t.Helper()
		last, ms := tree.Last()
		if _, err := tree.Apply(namespace.Entry{TxID: last + 1, Time: ms, Op: op}); err != nil {
			t.Fatal(err)
		}
	}
	add(&namespace.OpMkdir{Parent: namespace.RootID, Names: []string{"top", "sub"}, Mode: 0o500, User: "ann", Group: "staff"})
	add(&namespace.OpCreate{Parent: inode(t, tree, "/top/sub"), Name: "g", Mode: 0o400, User: "ann", Group: "staff", Data: []byte("more"), Closed: true})
	return tree
}

func inode(t *testing.T, tree *namespace.Tree, path string) namespace.InodeID {
	t.Helper()
	a, err := tree.Stat(nil, calls.At(path))
	if err != nil {
		t.Fatal(err)
	}
	return a.ID
}

// state is what a crash must not take from a file or directory: names, length, mode and time.
func state(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	if !info.IsDir() {
		return fmt.Sprint(info.Size(), info.Mode(), info.ModTime()), nil
	}
	entries, err := os.ReadDir(path)
	return fmt.Sprint(entries, info.Mode(), info.ModTime()), err
}

// TestFilesAreOnTheDisk: each file and directory that is brought back was synced as it is now, before it
// got its name, and then the folder that has the name.
func TestFilesAreOnTheDisk(t *testing.T) {
	t.Parallel()
	tree := grown(t)
	for _, top := range []string{"/", "/top", "/f", "/l"} {
		base := t.TempDir()
		dir, part := filepath.Join(base, "then"), filepath.Join(base, ".then.part")
		var mu sync.Mutex
		synced := map[string]string{}
		p := &plain{source: source{backups.Contents{Tree: tree}}, log: slog.New(slog.DiscardHandler), sync: func(f *os.File) error {
			mu.Lock()
			defer mu.Unlock()
			if _, err := os.Lstat(dir); f.Name() != base && err == nil {
				t.Errorf("%s: %s is synced after %s got its name", top, f.Name(), dir)
			}
			name := f.Name()
			if rel, err := filepath.Rel(part, name); err == nil && filepath.IsLocal(rel) {
				name = filepath.Join(dir, rel)
			}
			var err error
			synced[name], err = state(f.Name())
			return err
		}}
		if err := p.bring(t.Context(), inode(t, tree, top), dir); err != nil {
			t.Errorf("%s: %v", top, err)
			continue
		}
		if err := filepath.WalkDir(base, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.Type() == fs.ModeSymlink {
				return err
			}
			is, err := state(path)
			if err == nil && synced[path] != is {
				t.Errorf("%s: %s is %s; when it was synced last it was %q", top, path, is, synced[path])
			}
			return err
		}); err != nil {
			t.Error(err)
		}
	}
}

// TestFilesTakeNoOthersName: what is there, or comes there while files are brought back, stays, and nothing
// is left of them.
func TestFilesTakeNoOthersName(t *testing.T) {
	t.Parallel()
	tree := grown(t)
	for _, top := range []string{"/top", "/f"} {
		for _, c := range []struct {
			first, meanwhile string
		}{{first: "then"}, {first: ".then.part"}, {meanwhile: "then"}} {
			base := t.TempDir()
			put := func(name string) error {
				if name == "" {
					return nil
				}
				return os.WriteFile(filepath.Join(base, name), []byte("another's"), 0o600)
			}
			if err := put(c.first); err != nil {
				t.Fatal(err)
			}
			p := &plain{source: source{backups.Contents{Tree: tree}}, log: slog.New(slog.DiscardHandler), sync: func(*os.File) error { return put(c.meanwhile) }}
			if err := p.bring(t.Context(), inode(t, tree, top), filepath.Join(base, "then")); !errors.Is(err, fserror.Exists) {
				t.Errorf("%s, %+v: %v", top, c, err)
			}
			entries, err := os.ReadDir(base)
			if err != nil || len(entries) != 1 {
				t.Errorf("%s, %+v: left: %v, %v", top, c, entries, err)
			}
			for _, e := range entries {
				if data, err := os.ReadFile(filepath.Join(base, e.Name())); err != nil || string(data) != "another's" {
					t.Errorf("%s, %+v: %s is %q, %v", top, c, e.Name(), data, err)
				}
			}
		}
	}
}
