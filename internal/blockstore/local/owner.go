package local

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/vfs"
)

const (
	markerFile = "NAMESPACE"          // says that blocks of the namespace belong here
	ownerLock  = "owner" + lockSuffix // held while an exclusive store is open
)

// Format makes the folder of a new namespace in dir, durable, with the marker
// without which an exclusive Open refuses it.
func Format(fsys vfs.FS, dir string, id [16]byte) error {
	root := filepath.Join(dir, hex.EncodeToString(id[:]))
	for _, d := range []string{dir, root} {
		if err := makeDurable(fsys, d); err != nil {
			return err
		}
	}
	// Not by way of another name: several processes may do this at once, and none of them
	// may take a file from another.
	f, err := fsys.CreateExclusive(filepath.Join(root, markerFile))
	if err == nil {
		err = vfs.Durably(f, func() error { _, err := f.Write(marker(id)); return err })
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return fsys.SyncDir(root)
}

// marker is for people: that the file is there is all that counts.
func marker(id [16]byte) []byte {
	return fmt.Appendf(nil, "The blocks of leasefs namespace %x. A namenode does not start on a folder without this file.\n", id)
}

// Marker is the file that Format makes, relative to Config.Dir, for a copy of
// the folder.
func Marker(id [16]byte) (name string, content []byte) {
	return filepath.Join(hex.EncodeToString(id[:]), markerFile), marker(id)
}

// own makes sure that this is the namespace's folder, and that no other
// exclusive store has it. It makes nothing where the marker is missing.
func (s *Store) own() error {
	const op = "open blocks"
	name := filepath.Join(s.root, markerFile)
	_, err := s.cfg.FS.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return fserror.New(fserror.NotFound, op, s.cfg.Dir, "this is not the block folder of the namespace (there is no %s): mount its disk, or name the right folder, or restore the blocks from a backup", name).Because(fserror.ReasonBlocks)
	}
	if err != nil {
		return fserror.Wrap(fserror.Unavailable, op, s.cfg.Dir, err)
	}
	if s.cfg.Shared {
		return nil
	}
	s.owner, err = s.cfg.FS.Lock(filepath.Join(s.root, ownerLock))
	if errors.Is(err, vfs.ErrLocked) {
		return fserror.New(fserror.Unavailable, op, s.cfg.Dir, "another namenode of this namespace has the folder (%v): stop it, or give this one a block folder of its own", err).Because(fserror.ReasonBlocks)
	}
	if err != nil {
		return fserror.Wrap(fserror.Unavailable, op, s.cfg.Dir, err)
	}
	return nil
}
