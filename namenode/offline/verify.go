package offline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/blockstore/local"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/vfs"
	"github.com/leasefs/leasefs/namenode/datadir"
	"github.com/leasefs/leasefs/namenode/namespace"
)

// verifyPiece is how much of a block is read at a time.
const verifyPiece = 256 << 10

// BackupReport is what a backup has, and how much of it is good.
type BackupReport struct {
	ID       [16]byte  // of the namespace
	TxID     uint64    // up to which changes are in it
	Time     time.Time // of that change
	Files    int
	TreeOnly bool   // it was made without blocks
	Blocks   uint64 // those that are good; Bytes of them
	Bytes    int64
	Problems int
}

// BackupProblem is a block that is missing or damaged.
type BackupProblem struct {
	Path    string // of a file that has it; empty: it was deleted and is open, or in the trash
	Block   string // its file
	Problem string
}

// VerifyBackup reads all of a backup and changes nothing: VERSION, the image, which has to fit
// together, and each block that it names, against its checksum. found is called for each
// block that is not good, one at a time, and progress, unless nil, with the bytes read so far.
// treeOnly: the backup was made without blocks.
//
// NotFound, InvalidArgument: there is no backup; Damaged: VERSION or the image is, so that
// nothing can be restored. Damaged blocks are no error: Problems counts them.
func VerifyBackup(ctx context.Context, fsys vfs.FS, dir string, treeOnly bool, found func(BackupProblem) error, progress func(bytes int64)) (BackupReport, error) {
	id, t, _, err := readBackup(fsys, dir, slog.New(slog.DiscardHandler))
	if err != nil {
		return BackupReport{}, err
	}
	last, ms := t.Last()
	rep := BackupReport{ID: id, TxID: last, Time: time.UnixMilli(ms), Files: t.CountReachable().Files}
	blocks := filepath.Join(dir, datadir.BlocksDir)
	if rep.TreeOnly = treeOnly; treeOnly {
		return rep, nil
	}
	name, _ := local.Marker(id)
	if _, err := fsys.Stat(filepath.Join(blocks, name)); err != nil {
		return rep, fserror.New(fserror.Damaged, "", dir, "it has no blocks of the namespace, or not all of what belongs to them (%v)", err).Because(fserror.ReasonTreeOnly)
	}
	var mu sync.Mutex // of rep, and for found
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(restoreAtOnce)
	t.Referenced(0, func(inode namespace.InodeID, b namespace.Block) bool {
		g.Go(func() error {
			name := filepath.Join(blocks, local.FileName(id, b.Key))
			err := verifyBlock(gctx, fsys, name, b)
			if gctx.Err() != nil {
				return gctx.Err()
			}
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				rep.Blocks++
				rep.Bytes += int64(b.Stored)
				if progress != nil {
					progress(rep.Bytes)
				}
				return nil
			}
			rep.Problems++
			path, _ := t.Path(inode)
			return found(BackupProblem{Path: path, Block: name, Problem: err.Error()})
		})
		return gctx.Err() == nil
	})
	return rep, errors.Join(g.Wait(), ctx.Err())
}

// verifyBlock reads a block.
func verifyBlock(ctx context.Context, fsys vfs.FS, name string, b namespace.Block) error {
	f, err := fsys.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return fserror.New(fserror.NotFound, "", "", "the block is missing")
	}
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	var crc uint32
	var length int64
	for buf := make([]byte, verifyPiece); ctx.Err() == nil; {
		n, err := f.Read(buf)
		crc, length = blockstore.UpdateCRC(crc, buf[:n]), length+int64(n)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("the block cannot be read: %w", err)
		}
	}
	switch {
	case length != int64(b.Stored):
		return fserror.New(fserror.Damaged, "", "", "the block has %d bytes instead of %d", length, b.Stored)
	case crc != b.CRC:
		return fserror.New(fserror.Damaged, "", "", "the block does not match its checksum")
	}
	return nil
}
