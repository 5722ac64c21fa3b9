package local

import (
	"fmt"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/leasefs/leasefs/internal/journal"
	"github.com/leasefs/leasefs/internal/vfs"
)

// fewFS is a file system with a limit of open files.
type fewFS struct {
	vfs.FS
	mu         sync.Mutex
	open, most int
}

func (f *fewFS) take() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.open >= f.most {
		return syscall.EMFILE
	}
	f.open++
	return nil
}

func (f *fewFS) give() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.open--
}

func (f *fewFS) file(open func(string) (vfs.File, error), name string) (vfs.File, error) {
	if err := f.take(); err != nil {
		return nil, err
	}
	file, err := open(name)
	if err != nil {
		f.give()
		return nil, err
	}
	return &fewFile{File: file, fs: f}, nil
}

func (f *fewFS) Create(name string) (vfs.File, error)    { return f.file(f.FS.Create, name) }
func (f *fewFS) Open(name string) (vfs.File, error)      { return f.file(f.FS.Open, name) }
func (f *fewFS) OpenWrite(name string) (vfs.File, error) { return f.file(f.FS.OpenWrite, name) }
func (f *fewFS) SyncDir(dir string) error {
	if err := f.take(); err != nil {
		return err
	}
	defer f.give()
	return f.FS.SyncDir(dir)
}

type fewFile struct {
	vfs.File
	fs *fewFS
}

func (f *fewFile) Close() error {
	f.fs.give()
	return f.File.Close()
}

// Segments begin when others have taken every descriptor of the process, and
// however often; at the end none of the journal's own is left.
func TestSegmentsWithoutDescriptors(t *testing.T) {
	few := &fewFS{FS: vfs.OS(), most: 1000}
	j, err := Open(Config{FS: few, Dir: filepath.Join(t.TempDir(), "journal"), Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := j.Replay(t.Context(), 1, func(journal.Record) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if err := j.BeginTerm(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	few.mu.Lock()
	few.most = few.open // the others have the rest
	few.mu.Unlock()
	for tx := uint64(1); tx <= 20; tx++ {
		if err := j.Append(journal.Record{TxID: tx, Body: fmt.Append(nil, "record ", tx)}); err != nil {
			t.Fatal(err)
		}
		if err := j.WaitDurable(t.Context(), tx); err != nil {
			t.Fatalf("segment %d: %v", tx, err)
		}
		if err := j.Roll(); err != nil {
			t.Fatal(err)
		}
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if few.open != 0 {
		t.Errorf("%d files are still open", few.open)
	}
}
