package client

import (
	"bufio"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/leasefs/leasefs/blockstore"
	"github.com/leasefs/leasefs/fserror"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// Backup writes into dir, on this machine, a folder from which a namenode can
// be started: an image of one moment and, if the blocks are local to the
// namenode, the blocks. dir must not exist, or be empty: Exists. It appears
// whole, each file verified and on the disk, or not at all. Each function in
// progress is called often with what was received so far.
func (a *Admin) Backup(ctx context.Context, dir string, progress ...func(BackupResult)) (BackupResult, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return BackupResult{}, fserror.Wrap(fserror.InvalidArgument, "backup", dir, err)
	}
	switch entries, err := os.ReadDir(dir); {
	case err == nil && len(entries) > 0:
		return BackupResult{}, fserror.New(fserror.Exists, "backup", dir, "the folder is not empty; name a new one")
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return BackupResult{}, localError(dir, err)
	}
	parent := filepath.Dir(dir)
	if err := os.MkdirAll(parent, 0o750); err != nil {
		return BackupResult{}, localError(dir, err)
	}
	part, err := os.MkdirTemp(parent, "."+filepath.Base(dir)+".part-")
	if err != nil {
		return BackupResult{}, localError(dir, err)
	}
	b := &backup{root: part, dirs: map[string]bool{part: true}, progress: progress}
	if err = b.receive(ctx, a.fs); err == nil {
		err = b.publish(dir, parent)
	}
	if err != nil {
		b.closeFile()
		_ = os.RemoveAll(part) // err says more
		return BackupResult{}, fserror.With(err, "backup", dir)
	}
	return b.result, nil
}

// backup is a folder while it is being received.
type backup struct {
	root   string
	dirs   map[string]bool // those made, to be synced
	result BackupResult

	progress []func(BackupResult)

	name string
	file *os.File
	buf  *bufio.Writer
	crc  uint32
}

func (b *backup) receive(ctx context.Context, f *FS) error {
	req := &pb.BackupRequest{Caller: f.caller}
	err := receive(ctx, f, "backup", "", func(ctx context.Context, ep *endpoint) (receiver[pb.BackupResponse], error) {
		return pb.NewAdminClient(ep.conn()).Backup(ctx, req)
	}, func(m *pb.BackupResponse) (bool, error) {
		err := b.take(m)
		for _, f := range b.progress {
			f(b.result)
		}
		return err == nil, err
	})
	switch {
	case err != nil:
		return err
	case b.file != nil:
		return fserror.New(fserror.Damaged, "", "", "the stream ended in the middle of %s", b.name)
	case b.result.TxID == 0 || b.result.Files == 0:
		return fserror.New(fserror.Damaged, "", "", "the stream ended without its last message")
	}
	return nil
}

func (b *backup) take(m *pb.BackupResponse) error {
	if m.GetTxid() != 0 {
		b.result.TxID = m.GetTxid()
	}
	if m.GetName() != "" && (b.file == nil || m.GetName() != b.name) {
		if err := b.begin(m.GetName()); err != nil {
			return err
		}
	}
	if len(m.GetData()) > 0 {
		if b.file == nil {
			return fserror.New(fserror.Internal, "", "", "the namenode sent bytes of no file")
		}
		b.crc = blockstore.UpdateCRC(b.crc, m.GetData())
		n, err := b.buf.Write(m.GetData())
		b.result.Bytes += int64(n)
		if err != nil {
			return localError(b.name, err)
		}
	}
	if m.GetLast() && b.file != nil {
		return b.finish(m.GetCrc32C())
	}
	return nil
}

func (b *backup) begin(name string) error {
	if b.file != nil {
		return fserror.New(fserror.Damaged, "", "", "%s began before %s ended", name, b.name)
	}
	if !filepath.IsLocal(name) {
		return fserror.New(fserror.Internal, "", "", "the namenode sent a file name outside the folder: %q", name)
	}
	b.name, b.crc = name, 0
	path := filepath.Join(b.root, name)
	for d := filepath.Dir(path); !b.dirs[d]; d = filepath.Dir(d) {
		b.dirs[d] = true
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return localError(name, err)
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o640)
	if err != nil {
		return localError(name, err)
	}
	b.file, b.buf = file, bufio.NewWriterSize(file, 256<<10)
	return nil
}

func (b *backup) finish(crc uint32) error {
	if b.crc != crc {
		return fserror.New(fserror.Damaged, "", "", "%s does not match its checksum: got %08x, sent %08x", b.name, b.crc, crc)
	}
	err := b.buf.Flush()
	if err == nil {
		err = b.file.Sync()
	}
	if cerr := b.file.Close(); err == nil {
		err = cerr
	}
	b.file = nil
	if err != nil {
		return localError(b.name, err)
	}
	b.result.Files++
	return nil
}

func (b *backup) closeFile() {
	if b.file != nil {
		_ = b.file.Close() // it is removed next
		b.file = nil
	}
}

// publish gives the folder its name once all of it is on the disk.
func (b *backup) publish(dir, parent string) error {
	for d := range b.dirs {
		if err := syncDir(d); err != nil {
			return err
		}
	}
	if err := os.Rename(b.root, dir); err != nil {
		return localError(dir, err)
	}
	return syncDir(parent)
}

func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return localError(path, err)
	}
	err = d.Sync()
	if cerr := d.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return localError(path, err)
	}
	return nil
}

// localError gives an error of this machine's file system a kind.
func localError(path string, err error) error {
	kind := fserror.Internal
	switch {
	case errors.Is(err, fs.ErrPermission):
		kind = fserror.Permission
	case errors.Is(err, fs.ErrNotExist):
		kind = fserror.NotFound
	case errors.Is(err, fs.ErrExist):
		kind = fserror.Exists
	case isNoSpace(err):
		kind = fserror.NoSpace
	}
	return fserror.Wrap(kind, "", path, err)
}
