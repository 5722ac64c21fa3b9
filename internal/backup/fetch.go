package backup

import (
	"context"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/leasefs/leasefs/internal/blockio"
	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/vfs"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

const (
	// fetchAtOnce is how many blocks a backup reads at a time; it holds as many
	// in memory.
	fetchAtOnce = 4
	// fetchTries is how often it tries to.
	fetchTries = 6
)

// fetch puts a block into the folder: from an earlier try, or from the store.
func (b *folder) fetch(ctx context.Context, m *pb.BackupResponse) error {
	name := m.GetName()
	inside, ok := strings.CutPrefix(name, blocksFolder+"/")
	if !ok || !filepath.IsLocal(name) || !filepath.IsLocal(inside) {
		return fserror.New(fserror.Internal, "", "", "the namenode sent a file name outside the folder of blocks: %q", name)
	}
	if m.GetLength() < 1 || m.GetLength() > blockstore.MaxObjectSize {
		return fserror.New(fserror.Internal, "", "", "the namenode sent a block of %d bytes: %q", m.GetLength(), name)
	}
	path, err := b.place(name)
	if err != nil {
		return err
	}
	buf := blockio.NewBuffer(m.GetLength())
	defer buf.Free()
	buf.B = buf.B[:m.GetLength()]
	damaged := false // an earlier try has it so, perhaps from the earlier backup
	for _, old := range b.older {
		had, bad, err := again(filepath.Join(old, inside), path, buf.B, m.GetCrc32C(), b.synced[old])
		if damaged = damaged || bad; err != nil {
			return localError(name, err)
		}
		if had {
			b.mu.Lock()
			b.result.Reused++
			b.mu.Unlock()
			b.count(1, m.GetLength())
			return nil
		}
	}
	if b.options.Since != "" && !damaged {
		if had, err := b.takeOver(inside, path, buf.B, m.GetCrc32C()); err != nil || had {
			return err
		}
	}
	for n := range fetchTries {
		if err = b.from.ReadBlock(ctx, m, buf.B); err == nil && blockstore.CRC(buf.B) != m.GetCrc32C() {
			err = fserror.New(fserror.Damaged, "", "", "%s is damaged in the block store", name).Because(fserror.ReasonDamagedBlock)
		}
		status := blockio.Status(err)
		if err == nil || ctx.Err() != nil || status == http.StatusForbidden || status == http.StatusNotFound {
			break
		}
		_ = clock.Pause(ctx, firstPause<<n) // the next try fails at once, if that ended
	}
	if errors.Is(err, fserror.Damaged) {
		return err
	} else if err != nil {
		return fserror.Wrap(fserror.Unavailable, "", "", err)
	}
	if err := writeSynced(path, buf.B); err != nil {
		return localError(name, err)
	}
	b.mu.Lock()
	b.fetched++
	b.mu.Unlock()
	b.count(1, m.GetLength())
	return nil
}

// takeOver puts a block of the earlier backup in its place, if that has it.
func (b *folder) takeOver(inside, path string, buf []byte, crc uint32) (bool, error) {
	blocks := filepath.Join(b.options.Since, blocksFolder)
	id, _, _ := strings.Cut(filepath.ToSlash(inside), "/")
	if _, err := os.Stat(filepath.Join(blocks, id)); err == nil {
		b.same.Store(true)
	} else if errors.Is(err, fs.ErrNotExist) && !b.same.Load() { // else it is being removed
		return false, fserror.New(fserror.InvalidArgument, "", b.options.Since, "it has no blocks of this namespace, %s: name an earlier backup of the same one", id)
	}
	old := filepath.Join(blocks, inside)
	info, err := os.Lstat(old)
	if err != nil || !info.Mode().IsRegular() || info.Size() != int64(len(buf)) {
		return false, nil //nolint:nilerr // it is read from the store, then
	}
	if err := os.Link(old, path); err != nil {
		if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EROFS) {
			return false, localError(inside, err)
		}
		data, err := os.ReadFile(old)
		if err != nil || blockstore.CRC(data) != crc {
			return false, nil //nolint:nilerr // as above
		}
		if err := writeSynced(path, data); err != nil {
			return false, localError(inside, err)
		}
	}
	b.mu.Lock()
	b.result.Since++
	b.result.SinceBytes += info.Size()
	b.fetched++ // a later try need not do it again
	b.mu.Unlock()
	b.count(1, info.Size())
	return true, nil
}

// again puts a block of an earlier try in its place if it is whole; bad: it is there, and is not.
// One that is not surely on the disk is written again: that try may have been killed before, or may
// have met an error, after which a sync of the same file says nothing.
func again(old, path string, buf []byte, crc uint32, synced bool) (had, bad bool, err error) {
	f, err := os.Open(old)
	if err != nil {
		return false, false, nil //nolint:nilerr // not one of those
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil || info.Size() != int64(len(buf)) {
		return false, true, err
	}
	if _, err := f.ReadAt(buf, 0); err != nil || blockstore.CRC(buf) != crc {
		return false, true, nil //nolint:nilerr // it is read from the store, then
	}
	if st, ok := info.Sys().(*syscall.Stat_t); synced || ok && st.Nlink > 1 { // a link is to a block of a complete backup
		return true, false, os.Rename(old, path)
	}
	if err := writeSynced(path, buf); err != nil {
		return false, false, err
	}
	return true, false, os.Remove(old)
}

// writeSynced leaves nothing that is not on the disk.
func writeSynced(path string, data []byte) error {
	// What is there may be a link to a file of another backup.
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o640)
	if err != nil {
		return err
	}
	err = vfs.Durably(f, func() error { _, err := f.Write(data); return err })
	if err != nil {
		_ = os.Remove(path)
	}
	return err
}
