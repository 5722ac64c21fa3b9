package namenode

import (
	"context"
	"encoding/hex"
	"errors"
	"io"
	"path/filepath"
	"time"

	"github.com/pelletier/go-toml/v2"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/blockstore/local"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode/datadir"
	"github.com/leasefs/leasefs/namenode/images"
	"github.com/leasefs/leasefs/namenode/namespace"
)

// backupURLLife is how long a URL of a block is good that a backup is to fetch:
// a slow one has some way to go until it comes to a URL that it was sent.
const backupURLLife = 12 * time.Hour

// backup sends VERSION and an image of this moment, and the blocks that it
// refers to, unless the tree is all that is wanted: their bytes, or if the store
// is none of this machine, where the bytes are to be had. Blocks are immutable,
// so they can be copied while writes continue; the collector leaves those of files
// deleted meanwhile until it is done.
func (s *operators) backup(ctx context.Context, treeOnly bool, send func(*backupMessage) error) error {
	defer s.blocks.Hold()()
	t, err := s.engine.Snapshot(ctx)
	if err != nil {
		return err
	}
	c := t.CountReachable()
	first := &backupMessage{TotalFiles: uint64(max(c.Files, 0)), TotalDirectories: uint64(max(c.Dirs, 0)), TotalSymlinks: uint64(max(c.Symlinks, 0))}
	if !treeOnly {
		first.TotalBlocks, first.TotalBytes = uint64(max(c.Blocks, 0)), c.StoredBytes
	}
	if err := send(first); err != nil {
		return err
	}
	last, _ := t.Last()
	img := &backupWriter{name: filepath.Join(datadir.ImageDir, images.FileName(last)), send: send}
	if err := t.WriteImage(img); err != nil {
		return err
	}
	if err := img.end(); err != nil {
		return err
	}
	elsewhere := false
	if !treeOnly {
		if elsewhere, err = s.backupBlocks(ctx, t, send); err != nil {
			return err
		}
	}
	raw, err := toml.Marshal(datadir.Version{
		Format: datadir.FormatVersion, Namespace: hex.EncodeToString(s.dir.ID[:]), By: "leasefs " + s.cfg.Version,
		Created: s.cfg.Clock.Wall().UTC().Format(time.RFC3339), BackupTxID: last,
	})
	if err != nil {
		return err
	}
	if err := sendFile(datadir.VersionFile, raw, send); err != nil {
		return err
	}
	if err := send(&backupMessage{Txid: last}); err != nil || !elsewhere {
		return err
	}
	select { // until the client has them; it ends the stream
	case <-ctx.Done():
		return ctx.Err()
	case <-s.loops.Done():
		return s.role.Active()
	}
}

func sendFile(name string, content []byte, send func(*backupMessage) error) error {
	w := &backupWriter{name: name, send: send}
	if _, err := w.Write(content); err != nil {
		return err
	}
	return w.end()
}

// backupBlocks sends the blocks so that they make a folder as the local store
// has it. elsewhere: it told only where their bytes are.
func (s *operators) backupBlocks(ctx context.Context, t *namespace.Tree, send func(*backupMessage) error) (elsewhere bool, err error) {
	_, here := s.store.(*local.Store)
	name, content := local.Marker(s.dir.ID)
	if err := sendFile(filepath.Join(datadir.BlocksDir, name), content, send); err != nil {
		return false, err
	}
	t.Referenced(0, func(_ namespace.InodeID, b namespace.Block) bool {
		name := filepath.Join(datadir.BlocksDir, local.FileName(s.dir.ID, b.Key))
		if here {
			err = s.backupBlock(ctx, name, b, send)
		} else {
			err = s.backupURL(name, b, send)
		}
		return err == nil && ctx.Err() == nil
	})
	return !here, errors.Join(err, ctx.Err())
}

func (s *operators) backupURL(name string, b namespace.Block, send func(*backupMessage) error) error {
	signed, err := s.store.SignGet(b.Key, s.cfg.Clock.Wall().Add(backupURLLife))
	if err != nil {
		return err
	}
	return send(&backupMessage{Name: name, Url: signed.URL, Headers: flatten(signed.Header), Length: int64(b.Stored), Crc32C: b.CRC})
}

func (s *operators) backupBlock(ctx context.Context, name string, b namespace.Block, send func(*backupMessage) error) error {
	rc, err := s.store.Get(ctx, b.Key, 0, -1)
	if err != nil {
		return err
	}
	defer func() { _ = rc.Close() }()
	w := &backupWriter{name: name, send: send}
	if _, err := io.Copy(w, rc); err != nil {
		return err
	}
	if w.crc != b.CRC {
		return fserror.New(fserror.Internal, "", "", "block %s is damaged in the store", blockstore.Key(b.Key)).Because(fserror.ReasonDamagedBlock)
	}
	return w.end()
}
