package local

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/vfs"
	"github.com/leasefs/leasefs/test/env/crashfs"
)

func exclusive(fsys vfs.FS, dir string) (*Store, error) {
	return Open(Config{FS: fsys, Dir: dir, NamespaceID: testID, Secret: make([]byte, MinSecret), Exclusive: true})
}

// A folder that was not made for the namespace (another one, or a disk that is
// not mounted) is refused and stays as it is.
func TestExclusiveWantsTheMarker(t *testing.T) {
	dir := t.TempDir()
	for _, there := range []string{filepath.Join(dir, "missing"), dir} {
		_, err := exclusive(vfs.OS(), there)
		if !errors.Is(err, fserror.NotFound) || fserror.ReasonOf(err) != fserror.ReasonBlocks {
			t.Fatalf("%s: %v", there, err)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Fatalf("the refused open left %v, %v", left, err)
	}
	if err := Format(vfs.OS(), dir, testID); err != nil {
		t.Fatal(err)
	}
	s, err := exclusive(vfs.OS(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	// A copy of the folder by the names that the store tells is one, too.
	name, content := Marker(testID)
	copied := t.TempDir()
	if err := os.MkdirAll(filepath.Dir(filepath.Join(copied, name)), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(copied, name), content, 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := exclusive(vfs.OS(), copied)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
}

// Two that both delete blocks never have a folder at the same time.
func TestExclusiveIsAlone(t *testing.T) {
	dir := t.TempDir()
	if err := Format(vfs.OS(), dir, testID); err != nil {
		t.Fatal(err)
	}
	first, err := exclusive(vfs.OS(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := exclusive(vfs.OS(), dir); !errors.Is(err, fserror.Unavailable) || !strings.Contains(err.Error(), "another namenode") {
		t.Fatalf("the second: %v", err)
	}
	shared, err := Open(Config{Dir: dir, NamespaceID: testID, Secret: make([]byte, MinSecret)})
	if err != nil {
		t.Fatalf("one that is not exclusive: %v", err)
	}
	if err := errors.Join(shared.Close(), first.Close()); err != nil {
		t.Fatal(err)
	}
	again, err := exclusive(vfs.OS(), dir)
	if err != nil {
		t.Fatalf("after the first was closed: %v", err)
	}
	again.Close()
}

// The marker survives a crash as soon as Format has returned.
func TestFormatIsDurable(t *testing.T) {
	disk := crashfs.New()
	if err := Format(disk, "/a/blocks", testID); err != nil {
		t.Fatal(err)
	}
	s, err := exclusive(disk.Crash(crashfs.Strict), "/a/blocks")
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
}

// Many may format one folder at once, and claim it: each finds it whole, exactly
// one wins, and none takes the marker from under another.
func TestFormatAtOnce(t *testing.T) {
	dir, fsys := t.TempDir(), &made{FS: vfs.OS()}
	var won atomic.Int64
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			if err := Format(fsys, dir, testID); err != nil {
				t.Error(err)
				return
			}
			s, err := Open(Config{FS: fsys, Dir: dir, NamespaceID: testID, Secret: make([]byte, MinSecret), Shared: true})
			if err != nil {
				t.Error(err)
				return
			}
			defer s.Close()
			switch err := blockstore.PutBytes(t.Context(), s, "claim", []byte{byte(i)}); {
			case err == nil:
				won.Add(1)
			case !errors.Is(err, fserror.Exists):
				t.Error(err)
			}
		})
	}
	wg.Wait()
	name, content := Marker(testID)
	there, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil || !bytes.Equal(there, content) {
		t.Errorf("the marker says %q, %v", there, err)
	}
	if won.Load() != 1 || fsys.markers.Load() != 1 {
		t.Errorf("%d have won, and the marker was made %d times", won.Load(), fsys.markers.Load())
	}
}

// made counts how often a marker was made, or replaced.
type made struct {
	vfs.FS
	markers atomic.Int64
}

func (m *made) note(name string, err error) {
	if err == nil && filepath.Base(name) == markerFile {
		m.markers.Add(1)
	}
}

func (m *made) Create(name string) (vfs.File, error) {
	f, err := m.FS.Create(name)
	m.note(name, err)
	return f, err
}

func (m *made) CreateExclusive(name string) (vfs.File, error) {
	f, err := m.FS.CreateExclusive(name)
	m.note(name, err)
	return f, err
}

func (m *made) Rename(from, to string) error {
	err := m.FS.Rename(from, to)
	m.note(to, err)
	return err
}
