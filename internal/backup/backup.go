package backup

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/vfs"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

const (
	// idleRounds is how often a backup is tried again, after the namenode or the
	// block store was away, without a block that arrives.
	idleRounds = 4
	// firstPause is before the first repetition; each pause is twice as long as
	// the one before.
	firstPause = 20 * time.Millisecond
)

// Source is the namespace of which a backup is made; a *client.Admin is one.
type Source interface {
	// ReadBackup hands each the messages of a backup in their order, until it
	// wants no more or fails.
	ReadBackup(ctx context.Context, treeOnly bool, each func(*pb.BackupResponse) (more bool, err error)) error
	// ReadBlock reads the block into dst, of its length, that m names by a URL.
	ReadBlock(ctx context.Context, m *pb.BackupResponse, dst []byte) error
}

// Options are how a backup is made; the zero value is usual.
type Options struct {
	// TreeOnly leaves the blocks out: with a copy of the block store, a namenode
	// can be started from the rest.
	TreeOnly bool
	// Since is the folder of an earlier backup of the namespace, with its blocks; empty: none.
	// Blocks that it has are not read again: they are linked to, so that both folders are whole
	// and either can be removed, or copied where a link is not possible, as on another disk.
	// What is linked to is compared by length only.
	Since string
	// Progress, unless nil, is called often with what was received so far.
	Progress func(Result)
}

// Result is what was written.
type Result struct {
	TxID        uint64
	InNamespace Contents // what can be restored; known from the beginning
	Files       int      // of the backup: one a block, and a few besides
	Bytes       int64    // of these
	Blocks      uint64   // among these, of BlockBytes bytes; known from the beginning
	BlockBytes  int64
	Reused      int // blocks that an earlier try had copied
	Since       int // blocks that are from Options.Since, of SinceBytes bytes
	SinceBytes  int64
}

// Contents is how much a namespace has, the root included.
type Contents struct {
	Files, Directories, Symlinks uint64
}

// Write writes a backup into dir, on this machine. dir must not exist, or be
// empty (Exists), a mount point, too; nor be in a namenode's folder
// (InvalidArgument). It appears whole, each file verified and on the disk, or not
// at all: in an empty folder that is there VERSION comes last.
//
// What a failed backup has read from a store is kept beside dir, under a name
// with a dot before and ".part" behind, or in it if it was there, and the next
// one into dir continues from there; of any other nothing is left. Two at a time
// into one dir are refused: Exists.
func Write(ctx context.Context, from Source, dir string, o Options) (Result, error) {
	if err := checkSince(&o); err != nil {
		return Result{}, fserror.With(err, "backup", o.Since)
	}
	to, err := openTarget(dir)
	if err != nil {
		return Result{}, fserror.With(err, "backup", dir)
	}
	defer to.unlock()
	b := &folder{root: to.work, from: from, options: o, synced: map[string]bool{}}
	for idle := 0; ; idle++ {
		had := b.fetched
		if err = b.prepare(); err == nil {
			err = b.receive(ctx)
		}
		b.closeFile()
		if b.fetched > had {
			idle = 0
		}
		if err == nil || idle == idleRounds || !fserror.Transient(err) || b.fetched+len(b.older) == 0 || ctx.Err() != nil {
			break
		}
		_ = clock.Pause(ctx, firstPause<<idle) // the next round ends at once, if that ended
	}
	if err == nil {
		err = b.publish(to)
	}
	switch {
	case err == nil:
		return b.result, nil
	case b.fetched > 0 || len(b.older) > 0:
		kind := fserror.Internal
		var e *fserror.Error
		if errors.As(err, &e) {
			kind = e.Kind
		}
		return Result{}, fserror.New(kind, "backup", dir, "%v (the blocks that were copied are kept in %s: the same command continues from there)", err, b.root).Because(fserror.ReasonOf(err))
	}
	if gerr := to.giveUp(); gerr != nil {
		err = fmt.Errorf("%w (and %s, which is left of it, could not be removed: %w)", err, b.root, gerr)
	}
	if errors.Is(err, fserror.NoSpace) {
		return Result{}, fserror.New(fserror.NoSpace, "backup", dir, "%v: name a folder with room for all bytes of the namespace (nothing is left of this try)", err).Because(fserror.ReasonRoomForBackup)
	}
	return Result{}, fserror.With(err, "backup", dir)
}

// checkSince refuses what is not a backup with blocks.
func checkSince(o *Options) error {
	if o.Since == "" {
		return nil
	}
	if o.TreeOnly {
		return fserror.New(fserror.InvalidArgument, "", "", "a backup of the tree alone takes no blocks from an earlier one")
	}
	for _, name := range []string{versionFile, blocksFolder} {
		if _, err := os.Stat(filepath.Join(o.Since, name)); errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
			return fserror.New(fserror.InvalidArgument, "", "", "not a backup with blocks: there is no %s in it; name the folder of an earlier backup", name)
		} else if err != nil {
			return localError("", err)
		}
	}
	if _, err := os.Stat(filepath.Join(o.Since, "journal")); err == nil {
		return fserror.New(fserror.InvalidArgument, "", "", "it is a namenode's data folder, or was started as one: the blocks would be that namenode's, and no second copy; name the folder of a backup")
	}
	return nil
}

// lockFolder makes sure that one backup at a time writes a folder.
func lockFolder(dir string) (unlock func(), err error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, localError(dir, err)
	}
	if err := unix.Flock(int(d.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil { //nolint:gosec // a descriptor is small
		_ = d.Close()
		return nil, fserror.New(fserror.Exists, "", "", "another backup into it is under way")
	}
	return func() { _ = d.Close() }, nil
}

// folder is a backup while it is being received.
type folder struct {
	root    string
	from    Source
	options Options

	dirs   map[string]bool // those made, to be synced
	older  []string        // folders of blocks of earlier tries
	synced map[string]bool // those of earlier rounds of this one: what is in them is on the disk
	same   atomic.Bool     // Options.Since is of this namespace

	mu       sync.Mutex // of dirs, result and fetched, while blocks are fetched
	result   Result
	fetched  int // blocks from the store or the earlier backup, in all rounds
	fetching *errgroup.Group

	name string
	file *os.File
	buf  *bufio.Writer
	crc  uint32
}

// blocksFolder is the folder of blocks in a backup.
const blocksFolder = "blocks"

// prepare leaves nothing of an earlier try but its blocks, which are looked at
// when they are needed.
func (b *folder) prepare() error {
	first := b.dirs == nil
	b.dirs, b.older = map[string]bool{b.root: true}, nil
	b.result = Result{}
	entries, err := os.ReadDir(b.root)
	if err != nil {
		return localError(b.root, err)
	}
	next := 0
	for _, e := range entries {
		path := filepath.Join(b.root, e.Name())
		if digits, ok := strings.CutPrefix(e.Name(), blocksFolder+"."); ok {
			if n, err := strconv.Atoi(digits); err == nil {
				b.older = append(b.older, path)
				next = max(next, n+1)
				continue
			}
		}
		if e.Name() == blocksFolder {
			continue
		}
		if err := os.RemoveAll(path); err != nil {
			return localError(path, err)
		}
	}
	last := filepath.Join(b.root, blocksFolder)
	old := last + "." + strconv.Itoa(next)
	switch err := os.Rename(last, old); {
	case err == nil:
		b.older = append(b.older, old)
		b.synced[old] = !first
	case !errors.Is(err, fs.ErrNotExist):
		return localError(last, err)
	}
	return nil
}

func (b *folder) receive(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var fetchCtx context.Context
	b.fetching, fetchCtx = errgroup.WithContext(ctx)
	b.fetching.SetLimit(fetchAtOnce)
	err := b.from.ReadBackup(ctx, b.options.TreeOnly, func(m *pb.BackupResponse) (bool, error) {
		var err error
		if m.GetUrl() != "" {
			b.fetching.Go(func() error { return b.fetch(fetchCtx, m) })
			err = context.Cause(fetchCtx) // the first that failed
		} else {
			err = b.take(m)
		}
		if err == nil && m.GetTxid() != 0 { // all was told; the namenode waits until we have it
			return false, b.fetching.Wait()
		}
		b.tell()
		return err == nil, err
	})
	cancel()
	if ferr := b.fetching.Wait(); ferr != nil && !errors.Is(ferr, context.Canceled) {
		err = ferr
	}
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

func (b *folder) tell() {
	if b.options.Progress == nil {
		return
	}
	b.mu.Lock()
	so := b.result
	b.mu.Unlock()
	b.options.Progress(so)
}

func (b *folder) take(m *pb.BackupResponse) error {
	if m.GetTxid() != 0 {
		b.result.TxID = m.GetTxid()
	}
	if m.GetTotalDirectories() > 0 || m.GetTotalBlocks() > 0 { // the first message; an earlier release tells of blocks alone
		b.mu.Lock()
		b.result.InNamespace = Contents{m.GetTotalFiles(), m.GetTotalDirectories(), m.GetTotalSymlinks()}
		b.result.Blocks, b.result.BlockBytes = m.GetTotalBlocks(), m.GetTotalBytes()
		b.mu.Unlock()
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
		b.count(0, int64(n))
		if err != nil {
			return localError(b.name, err)
		}
	}
	if m.GetLast() && b.file != nil {
		return b.finish(m.GetCrc32C())
	}
	return nil
}

func (b *folder) begin(name string) error {
	if b.file != nil {
		return fserror.New(fserror.Damaged, "", "", "%s began before %s ended", name, b.name)
	}
	if !filepath.IsLocal(name) {
		return fserror.New(fserror.Internal, "", "", "the namenode sent a file name outside the folder: %q", name)
	}
	b.name, b.crc = name, 0
	path, err := b.place(name)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o640)
	if err != nil {
		return localError(name, err)
	}
	b.file, b.buf = file, bufio.NewWriterSize(file, 256<<10)
	return nil
}

func (b *folder) finish(crc uint32) error {
	if b.crc != crc {
		return fserror.New(fserror.Damaged, "", "", "%s does not match its checksum: got %08x, sent %08x", b.name, b.crc, crc)
	}
	err := vfs.Durably(b.file, b.buf.Flush)
	b.file = nil
	if err == nil {
		b.count(1, 0)
	}
	return localError(b.name, err)
}

func (b *folder) count(files int, bytes int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.result.Files += files
	b.result.Bytes += bytes
}

// place makes the folder of a file.
func (b *folder) place(name string) (path string, err error) {
	path = filepath.Join(b.root, name)
	dir := filepath.Dir(path)
	b.mu.Lock()
	there := b.dirs[dir]
	b.mu.Unlock()
	if there {
		return path, nil
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return "", localError(name, err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for d := dir; !b.dirs[d]; d = filepath.Dir(d) {
		b.dirs[d] = true
	}
	return path, nil
}

func (b *folder) closeFile() {
	if b.file != nil {
		_ = b.file.Close() // it is removed next
		b.file = nil
	}
}

// publish gives the folder its name once all of it is on the disk.
func (b *folder) publish(to *target) error {
	for _, old := range b.older {
		if err := os.RemoveAll(old); err != nil {
			return localError(old, err)
		}
	}
	for d := range b.dirs {
		if err := syncDir(d); err != nil {
			return err
		}
	}
	return to.publish()
}

func syncDir(path string) error { return localError(path, vfs.OS().SyncDir(path)) }

// localError gives an error of this machine's file system a kind. Nil stays nil.
func localError(path string, err error) error {
	if err == nil {
		return nil
	}
	return fserror.Wrap(vfs.KindOf(err), "", path, err)
}
