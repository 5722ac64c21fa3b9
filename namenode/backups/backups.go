// Package backups sends what a backup is made of: VERSION, an image and blocks, the files of
// a folder from which a namenode can be started.
package backups

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
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// Message is a part of a backup.
type Message = pb.BackupResponse

// Contents is what goes into a backup.
type Contents struct {
	Tree  *namespace.Tree
	ID    [16]byte // of the namespace
	By    string   // the program and its version
	Made  time.Time
	Store blockstore.Store
	// TreeOnly leaves the blocks out.
	TreeOnly bool
	// Sign says where the bytes of a block are to be had; nil: they are read from Store and sent.
	Sign func(blockstore.Key) (url string, headers map[string]string, err error)
}

// Send sends all, and the txid last.
func (c *Contents) Send(ctx context.Context, send func(*Message) error) error {
	n := c.Tree.CountReachable()
	first := &Message{TotalFiles: uint64(max(n.Files, 0)), TotalDirectories: uint64(max(n.Dirs, 0)), TotalSymlinks: uint64(max(n.Symlinks, 0))}
	if !c.TreeOnly {
		first.TotalBlocks, first.TotalBytes = uint64(max(n.Blocks+n.Held, 0)), n.StoredBytes+n.HeldBytes
	}
	if err := send(first); err != nil {
		return err
	}
	last, _ := c.Tree.Last()
	img := &writer{name: filepath.Join(datadir.ImageDir, images.FileName(last)), send: send}
	if err := c.Tree.WriteImage(img); err != nil {
		return err
	}
	if err := img.end(); err != nil {
		return err
	}
	if !c.TreeOnly {
		if err := c.sendBlocks(ctx, send); err != nil {
			return err
		}
	}
	at := c.Tree.Level()
	raw, err := toml.Marshal(datadir.Version{
		Format: int(at.Level), Release: at.Release, Namespace: hex.EncodeToString(c.ID[:]), By: c.By,
		Created: c.Made.UTC().Format(time.RFC3339), BackupTxID: last,
	})
	if err != nil {
		return err
	}
	if err := sendFile(datadir.VersionFile, raw, send); err != nil {
		return err
	}
	return send(&Message{Txid: last})
}

func sendFile(name string, content []byte, send func(*Message) error) error {
	w := &writer{name: name, send: send}
	if _, err := w.Write(content); err != nil {
		return err
	}
	return w.end()
}

// sendBlocks sends the blocks so that they make a folder as the local store has it.
func (c *Contents) sendBlocks(ctx context.Context, send func(*Message) error) (err error) {
	name, content := local.Marker(c.ID)
	if err := sendFile(filepath.Join(datadir.BlocksDir, name), content, send); err != nil {
		return err
	}
	c.Tree.Referenced(0, func(_ namespace.InodeID, b namespace.Block) bool {
		name := filepath.Join(datadir.BlocksDir, local.FileName(c.ID, b.Key))
		if c.Sign == nil {
			err = c.sendBlock(ctx, name, b, send)
		} else {
			err = c.sendURL(name, b, send)
		}
		return err == nil && ctx.Err() == nil
	})
	return errors.Join(err, ctx.Err())
}

func (c *Contents) sendURL(name string, b namespace.Block, send func(*Message) error) error {
	url, headers, err := c.Sign(b.Key)
	if err != nil {
		return err
	}
	return send(&Message{Name: name, Url: url, Headers: headers, Length: int64(b.Stored), Crc32C: b.CRC})
}

func (c *Contents) sendBlock(ctx context.Context, name string, b namespace.Block, send func(*Message) error) error {
	rc, err := c.Store.Get(ctx, b.Key, 0, -1)
	if err != nil {
		return err
	}
	defer func() { _ = rc.Close() }()
	w := &writer{name: name, send: send}
	if _, err := io.Copy(w, rc); err != nil {
		return err
	}
	if w.crc != b.CRC {
		return fserror.New(fserror.Internal, "", "", "block %s is damaged in the store", b.Key).Because(fserror.ReasonDamagedBlock)
	}
	return w.end()
}

const piece = 256 << 10

// writer sends what is written to it as one file.
type writer struct {
	name string
	send func(*Message) error
	crc  uint32
}

func (w *writer) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		part := rest[:min(len(rest), piece)]
		if err := w.send(&Message{Name: w.name, Data: part}); err != nil {
			return 0, err
		}
		rest = rest[len(part):]
	}
	w.crc = blockstore.UpdateCRC(w.crc, p)
	return len(p), nil
}

func (w *writer) end() error {
	return w.send(&Message{Name: w.name, Last: true, Crc32C: w.crc})
}
