package local

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

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
