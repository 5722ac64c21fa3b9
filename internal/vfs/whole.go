package vfs

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
)

// TempSuffix is what WriteAtomic adds to the name of a file that is not whole.
const TempSuffix = ".tmp"

// Durably calls fill, which writes to f, makes the bytes durable, and closes f in any
// case. A new name is durable only after SyncDir.
func Durably(f interface {
	Sync() error
	Close() error
}, fill func() error,
) error {
	err := fill()
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

// WriteFile is WriteAtomic of bytes.
func WriteFile(fsys FS, name string, data []byte) error {
	_, err := WriteAtomic(fsys, name, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
	return err
}

// WriteAtomic writes with fill a file that after a crash is there whole or as it
// was before.
func WriteAtomic(fsys FS, name string, fill func(io.Writer) error) (size int64, err error) {
	tmp := name + TempSuffix
	f, err := fsys.Create(tmp)
	if err != nil {
		return 0, err
	}
	defer func() {
		if err != nil {
			_ = fsys.Remove(tmp)
		}
	}()
	err = Durably(f, func() (err error) {
		if err = fill(f); err == nil {
			size, err = f.Size()
		}
		return err
	})
	if err == nil {
		err = fsys.Rename(tmp, name)
	}
	if err != nil {
		return 0, err
	}
	return size, fsys.SyncDir(filepath.Dir(name))
}

// Install gives a file of this machine, which is durable, the name of another one. What a file
// system cannot make durable of that is not there after a crash; then the other one is.
func Install(file, name string) error {
	err := os.Rename(file, name)
	if err == nil {
		_ = OS().SyncDir(filepath.Dir(name))
	}
	return err
}

// ReadFile reads a whole file.
func ReadFile(fsys FS, name string) ([]byte, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	var b bytes.Buffer
	_, err = b.ReadFrom(f)
	return b.Bytes(), err
}
