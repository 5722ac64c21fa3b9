package datadir

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/pelletier/go-toml/v2"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/vfs"
	"github.com/leasefs/leasefs/namenode/namespace/levels"
)

// What is in a data folder. A backup has the same, without journal and secret.
const (
	VersionFile    = "VERSION"
	lockFile       = "lock"
	secretFile     = "secret"
	formattingFile = "FORMATTING"
	JournalDir     = "journal"
	ImageDir       = "image"
	BlocksDir      = "blocks"
	HistoryDir     = "history" // of leases; not in a backup
	ScrubFile      = "scrub"   // how far it is; not in a backup
	ArchiveDir     = "archive" // images on their way to the block store; not in a backup
	// SecretBytes is the least length of the secret that signs URLs of blocks.
	SecretBytes = 32
)

// Version is what VERSION says. It is written last when a folder is
// formatted, so its presence means that the folder is complete.
type Version struct {
	// Format is the feature level of the namespace in the folder; of one of several
	// namenodes, whose folder has none, the first one.
	Format    int    `toml:"format" comment:"feature level of what is in this folder"`
	Namespace string `toml:"namespace" comment:"id of the namespace, 32 hexadecimal digits"`
	Created   string `toml:"created"`
	By        string `toml:"by" comment:"the program that made it"`
	// BackupTxID is set in a backup: its image holds everything up to there,
	// and there is no journal before a namenode starts on it.
	BackupTxID uint64 `toml:"backup_txid,omitempty" comment:"this folder is a backup of that moment"`
	// BackupUsed says that a namenode has begun a journal behind that image. Older programs
	// neither look at it nor keep it.
	BackupUsed bool `toml:"backup_used,omitempty" comment:"a namenode has started on it, so it has a journal"`
	// Incarnation is the token by which the namespace knows a block store that
	// is elsewhere for its own.
	Incarnation string `toml:"incarnation,omitempty" comment:"the block store has an object that says so, too"`
	Release     string `toml:"release,omitempty" comment:"which raised the feature level"`
}

// At is at which feature level the folder is.
func (v *Version) At() levels.State {
	return levels.State{Level: uint64(v.Format), Release: v.Release} //nolint:gosec // from 1 on
}

// Dir is an opened, locked data folder.
type Dir struct {
	fs     vfs.FS
	path   string
	lock   io.Closer
	ID     [16]byte // of the namespace
	Secret []byte   // signs URLs of blocks
	Fresh  bool     // formatted in this open
	Backup uint64   // txid of the image, if the folder came from a backup
	Info   Version  // what WriteVersion writes; see Version
	update sync.Mutex
	asked  question
}

// Open opens the folder, and formats it when it is new or empty: for the
// namespace id, or (nil) a new one. A folder of another namespace is refused.
func Open(fsys vfs.FS, path string, id *[16]byte) (*Dir, error) {
	d := &Dir{fs: fsys, path: path}
	if err := fsys.MkdirAll(path); err != nil {
		return nil, fmt.Errorf("data folder %s cannot be made: %w", path, err)
	}
	lock, err := fsys.Lock(d.File(lockFile))
	if err != nil {
		if errors.Is(err, vfs.ErrLocked) {
			return nil, fmt.Errorf("data folder %s is in use by another namenode (%w); stop it or name another folder", path, err)
		}
		return nil, fmt.Errorf("data folder %s cannot be locked: %w", path, err)
	}
	d.lock = lock
	err = d.load(id)
	if err != nil {
		_ = lock.Close()
		return nil, err
	}
	return d, nil
}

// File is the path of what has that name in the folder.
func (d *Dir) File(name string) string { return filepath.Join(d.path, name) }

func (d *Dir) load(want *[16]byte) error {
	raw, err := vfs.ReadFile(d.fs, d.File(VersionFile))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return d.format(want)
	case err != nil:
		return fmt.Errorf("%s cannot be read: %w", d.File(VersionFile), err)
	}
	v, id, err := ParseVersion(raw)
	if err != nil {
		return fmt.Errorf("%s: %w", d.File(VersionFile), err)
	}
	if err := v.At().Known("data folder " + d.path); err != nil {
		return err
	}
	d.ID, d.Backup, d.Info = id, v.BackupTxID, v
	if err := d.checkUse(want); err != nil {
		return err
	}
	if err := d.dropMarker(); err != nil {
		return err
	}
	d.Secret, err = vfs.ReadFile(d.fs, d.File(secretFile))
	if errors.Is(err, fs.ErrNotExist) { // a restored backup: old URLs end, nothing else
		return d.makeSecret()
	}
	if err == nil && len(d.Secret) < SecretBytes {
		return fmt.Errorf("%s is damaged (%d bytes); remove it to have a new one made, block URLs handed out before then stop working", d.File(secretFile), len(d.Secret))
	}
	return err
}

// checkUse refuses a folder of another namespace than want, and one that is not for a
// namenode of this kind: that of a namenode alone (want is nil), or a backup, holds the
// namespace itself, which one of several would take for leftovers; that of one of
// several has nothing to serve alone.
func (d *Dir) checkUse(want *[16]byte) error {
	segments, err := d.list(JournalDir)
	if err != nil {
		return err
	}
	images, err := d.list(ImageDir) // of one of several one may be left that was on its way to the block store
	if err != nil {
		return err
	}
	switch {
	case want != nil && d.ID != *want:
		return fmt.Errorf("data folder %s is of namespace %x, not of %x: name another folder", d.path, d.ID, *want)
	case want != nil && (d.Backup != 0 || len(segments) > 0):
		return fserror.New(fserror.Internal, "", "", "data folder %s already holds a whole namespace (a backup's, or a single namenode's), whose images one of several namenodes would remove; choose an empty folder", d.path).Because(fserror.ReasonData)
	case want == nil && d.Backup == 0 && len(segments)+len(images) == 0:
		return fserror.New(fserror.Damaged, "", "", "data folder %s has neither journal nor image: if it is of one of several namenodes, start it as such, as before; else put the journal's files back, or restore the folder from a backup", d.path).Because(fserror.ReasonAlone)
	}
	return nil
}

// list returns the names in a folder that may be missing.
func (d *Dir) list(sub string) ([]string, error) {
	names, err := d.fs.List(d.File(sub))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return names, err
}

// ParseVersion reads what is in VERSION, and the id in it.
func ParseVersion(raw []byte) (Version, [16]byte, error) {
	var v Version
	var id [16]byte
	if err := toml.Unmarshal(raw, &v); err != nil {
		return v, id, fmt.Errorf("is damaged (%w); restore it from a backup", err)
	}
	b, err := hex.DecodeString(v.Namespace)
	if err != nil || len(b) != len(id) || v.Format < 1 {
		return v, id, fmt.Errorf("is damaged (format %d, namespace %q); restore it from a backup", v.Format, v.Namespace)
	}
	copy(id[:], b)
	return v, id, nil
}

// format begins to make a new data folder; finish ends it, when the first
// record is durable. In between stands the file FORMATTING: a folder with it and
// without VERSION was never used, and is made again.
func (d *Dir) format(id *[16]byte) error {
	_, err := d.fs.Stat(d.File(formattingFile))
	switch {
	case err == nil:
		if err := d.clear(); err != nil {
			return err
		}
	case !errors.Is(err, fs.ErrNotExist):
		return err
	default:
		if err := d.checkEmpty(); err != nil {
			return err
		}
	}
	if err := vfs.WriteFile(d.fs, d.File(formattingFile), nil); err != nil {
		return err
	}
	if id != nil {
		d.ID = *id
	} else if _, err := rand.Read(d.ID[:]); err != nil {
		return err
	}
	for _, sub := range []string{JournalDir, ImageDir, BlocksDir} {
		if err := d.fs.MkdirAll(d.File(sub)); err != nil {
			return err
		}
	}
	d.Fresh = true
	return d.makeSecret()
}

// Finish makes a formatted folder valid.
func (d *Dir) Finish(at levels.State, createdBy, now string) error {
	d.Info = Version{Format: int(at.Level), Release: at.Release, Namespace: hex.EncodeToString(d.ID[:]), Created: now, By: createdBy, Incarnation: d.Info.Incarnation}
	if err := d.WriteVersion(); err != nil {
		return err
	}
	return d.dropMarker()
}

// Update changes what VERSION says. Several may do so at once, each something else.
func (d *Dir) Update(change func(*Version)) error {
	d.update.Lock()
	defer d.update.Unlock()
	was := d.Info
	change(&d.Info)
	err := d.WriteVersion()
	if err != nil {
		d.Info = was
	}
	return err
}

// Version is what VERSION says. Unlike Info it may be asked for while Update changes it, and waits for that.
func (d *Dir) Version() Version {
	d.update.Lock()
	defer d.update.Unlock()
	return d.Info
}

// WriteVersion makes what Info says durable.
func (d *Dir) WriteVersion() error {
	raw, err := toml.Marshal(d.Info)
	if err != nil {
		return err
	}
	return vfs.WriteFile(d.fs, d.File(VersionFile), raw)
}

// dropMarker removes what an unfinished format left.
func (d *Dir) dropMarker() error {
	if err := d.fs.Remove(d.File(formattingFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return d.fs.SyncDir(d.path)
}

// clear removes the journal of an unfinished format. Blocks of it, if any, are
// of another namespace id and stay untouched.
func (d *Dir) clear() error {
	for _, sub := range []string{JournalDir, ImageDir} {
		names, err := d.list(sub)
		if err != nil {
			return err
		}
		for _, n := range names {
			if err := d.fs.Remove(filepath.Join(d.File(sub), n)); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkEmpty refuses a folder that holds what no unfinished format leaves.
func (d *Dir) checkEmpty() error {
	names, err := d.fs.List(d.path)
	if err != nil {
		return err
	}
	ours := []string{lockFile, secretFile, secretFile + vfs.TempSuffix, formattingFile + vfs.TempSuffix, VersionFile + vfs.TempSuffix, JournalDir, ImageDir, BlocksDir, HistoryDir, ScrubFile, ArchiveDir}
	for _, n := range names {
		if !slices.Contains(ours, n) {
			return fmt.Errorf("folder %s is not empty (%s) and holds no namespace; name a new or empty folder", d.path, n)
		}
	}
	for _, sub := range []string{JournalDir, ImageDir, BlocksDir} {
		inside, err := d.fs.List(d.File(sub))
		if err == nil && len(inside) > 0 {
			return fmt.Errorf("folder %s holds %s/%s but no %s: restore the file from a backup, or name a new or empty folder", d.path, sub, inside[0], VersionFile)
		}
	}
	return nil
}

func (d *Dir) makeSecret() error {
	d.Secret = make([]byte, SecretBytes)
	if _, err := rand.Read(d.Secret); err != nil {
		return err
	}
	return vfs.WriteFile(d.fs, d.File(secretFile), d.Secret)
}

// question is what the disk is asked: one at most is under way, also of a disk that hangs.
type question struct {
	mu    sync.Mutex
	since time.Time
	said  chan struct{} // closed when there is an answer; nil: none is under way
	why   string
	err   error
}

// Patience is how long a disk may take to say how much room it has, or to take what is written to
// the journal. A busy one takes seconds.
const Patience = 10 * time.Second

// ErrSilent says that the disk has not answered for ten seconds. What it said before may still hold.
var ErrSilent = errors.New("the namenode's disk does not answer; look for its errors in the kernel's log")

// Shortage says why growth is refused on account of the folder's disk: it has no room
// beyond reserve, or is read-only, as after an error of the disk; it is empty while
// neither is so. With an error it is what the disk said last.
func (d *Dir) Shortage(reserve int64) (why string, err error) {
	q := &d.asked
	q.mu.Lock()
	if q.said == nil {
		said := make(chan struct{})
		q.said, q.since = said, time.Now()
		go func() {
			why, err := d.shortage(reserve)
			q.mu.Lock()
			defer q.mu.Unlock()
			if q.err, q.said = err, nil; err == nil {
				q.why = why
			}
			close(said)
		}()
	}
	said := q.said
	late := time.NewTimer(Patience - time.Since(q.since))
	q.mu.Unlock()
	defer late.Stop()
	select {
	case <-said:
		q.mu.Lock()
		defer q.mu.Unlock()
		return q.why, q.err
	case <-late.C:
		q.mu.Lock()
		defer q.mu.Unlock()
		if q.said == said {
			return q.why, ErrSilent
		}
		return q.why, q.err
	}
}

func (d *Dir) shortage(reserve int64) (why string, err error) {
	f, err := d.fs.OpenWrite(d.File(VersionFile)) // nothing is written: it has to be allowed
	if err == nil {
		err = f.Close()
	}
	switch {
	case errors.Is(err, syscall.EROFS) || errors.Is(err, syscall.EIO): // EIO: a file system that has shut down
		return fmt.Sprintf("the namenode's disk cannot be written (%v); look for its errors in the kernel's log, and mount it writable", err), nil
	case err != nil:
		return "", fmt.Errorf("it is not known whether the disk of %s can be written: %w", d.path, err)
	}
	free, _, err := d.fs.Usage(d.path)
	if err != nil {
		return "", fmt.Errorf("the room on the disk of %s is not known: %w", d.path, err)
	}
	if free < reserve {
		why = fmt.Sprintf("the namenode's disk is full (%d MiB free, %d MiB are kept for deleting); delete files or add space", free>>20, reserve>>20)
	}
	return why, nil
}

// Usage is how many bytes are free on the folder's disk, and how many there are.
func (d *Dir) Usage() (free, total int64, err error) { return d.fs.Usage(d.path) }

// Close unlocks the folder.
func (d *Dir) Close() error { return d.lock.Close() }
