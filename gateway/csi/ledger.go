package csi

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/leasefs/leasefs/internal/fserror"
)

// staged is what a node has promised of a volume: a file of the ledger.
type staged struct {
	ID      string          `json:"id"`
	Path    string          `json:"path"`    // in the namespace
	Staging string          `json:"staging"` // where it is mounted
	User    string          `json:"user,omitempty"`
	Token   bool            `json:"token,omitempty"` // there is a file with one
	Mount   wanted          `json:"mount"`
	Targets map[string]bool `json:"targets"` // where it is published; whether read-only
}

// ledger is a folder with a file for each staged volume, and one for its token, if it has
// one. Files are named by a hash of the volume's id, which may have any bytes.
type ledger struct {
	dir  string
	lock *os.File
}

// openLedger takes a folder for this driver alone.
func openLedger(dir string) (*ledger, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fserror.Wrap(fserror.Internal, op, dir, err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600) //nolint:gosec // the operator's
	if err != nil {
		return nil, fserror.Wrap(fserror.Internal, op, dir, err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = lock.Close() // only locked
		return nil, fserror.New(fserror.Exists, op, dir, "another driver uses this folder (%v): end it, or name another folder", err)
	}
	return &ledger{dir, lock}, nil
}

func (l *ledger) close() { _ = l.lock.Close() } // which unlocks it

func (l *ledger) file(id, ext string) string {
	sum := sha256.Sum256([]byte(id))
	return filepath.Join(l.dir, hex.EncodeToString(sum[:])+ext)
}

// token is the file with a volume's token.
func (l *ledger) token(id string) string { return l.file(id, ".token") }

// get returns what is promised of a volume; nil if it is not staged.
func (l *ledger) get(id string) (*staged, error) { return l.read(l.file(id, ".json")) }

func (l *ledger) read(file string) (*staged, error) {
	raw, err := os.ReadFile(file) //nolint:gosec // of the ledger
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fserror.Wrap(fserror.Internal, op, file, err)
	}
	v := new(staged)
	if err := json.Unmarshal(raw, v); err != nil || l.file(v.ID, ".json") != file {
		return nil, fserror.New(fserror.Damaged, op, file, "this is no file of the driver (%v): unmount what it is about, and remove it", err)
	}
	return v, nil
}

func (l *ledger) put(v *staged) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return l.write(l.file(v.ID, ".json"), raw)
}

func (l *ledger) putToken(id, secret string) error { return l.write(l.token(id), []byte(secret)) }

// write replaces a file. It need not survive the machine: mounts do not either.
func (l *ledger) write(file string, data []byte) error {
	next := file + ".next"
	err := os.Remove(next)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		err = os.WriteFile(next, data, 0o600)
	}
	if err == nil {
		err = os.Rename(next, file)
	}
	if err != nil {
		return fserror.Wrap(fserror.Internal, op, file, err)
	}
	return nil
}

func (l *ledger) remove(id string) error {
	for _, ext := range []string{".token", ".json"} { // the token first: it is found by the other
		if err := os.Remove(l.file(id, ext)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fserror.Wrap(fserror.Internal, op, id, err)
		}
	}
	return nil
}

// all returns what is promised of all volumes; errors tell of files that cannot be read.
func (l *ledger) all() (list []*staged, err error) {
	entries, err := os.ReadDir(l.dir)
	if err != nil {
		return nil, fserror.Wrap(fserror.Internal, op, l.dir, err)
	}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".json") {
			continue
		}
		v, rerr := l.read(filepath.Join(l.dir, e.Name()))
		if rerr != nil {
			err = errors.Join(err, rerr)
		} else if v != nil {
			list = append(list, v)
		}
	}
	return list, err
}
