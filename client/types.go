package client

import (
	"encoding/hex"
	"io/fs"
	"time"

	"github.com/leasefs/leasefs/internal/filemode"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fserror/wire"
	"github.com/leasefs/leasefs/internal/fspath"
	"github.com/leasefs/leasefs/internal/report"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// FileInfo describes a file, directory or symbolic link at one moment. It is
// an fs.FileInfo and an fs.DirEntry. It is not changed after it was returned.
type FileInfo struct {
	Path        string // absolute, as asked for
	Inode       uint64
	User, Group string
	Length      int64     // bytes; of a file open for write: those flushed
	LinkTarget  string    // of a symbolic link
	Open        *OpenInfo // nil unless the file is open for write
	Entries     uint64    // of a directory: how many names
	Blocks      uint64    // of a file
	TailLength  int64     // of a file: bytes after its last block
	Lease       LeaseID   // the granted lease that a file is attached to; 0: none
	Xattrs      int       // how many extended attributes it has
	Xattr       []byte    // the value of that of Config.Xattr, not to be changed; nil: there is none, or the user may not read it
	HasACL      bool      // it has an access ACL that says more than its mode, see Xattrs.ACL
	HasDefault  bool      // it is a directory that has a default ACL
	Snapshots   bool      // it is a directory that may have snapshots
	// TxID is a change up to which all are in this answer, and in all that comes
	// later: a watch from TxID+1 on misses none. 0 if it is not known: of what was
	// not asked for just now.
	TxID uint64

	mode  fs.FileMode
	mtime time.Time
}

// OpenInfo tells who has a file open for write.
type OpenInfo struct {
	Holder      fserror.Holder
	Session     string // the holder's session, hexadecimal
	Epoch       uint64 // of this opening; grows with each
	SoftExpired bool   // another client that wants the file gets it
	TakeableIn  time.Duration
}

var (
	_ fs.FileInfo = (*FileInfo)(nil)
	_ fs.DirEntry = (*FileInfo)(nil)
)

// Name is the last component of the path; that of the root is "/".
func (i *FileInfo) Name() string {
	if i.Path == "/" {
		return "/"
	}
	_, name := fspath.Split(i.Path)
	return name
}

// Size is Length.
func (i *FileInfo) Size() int64 { return i.Length }

// Mode has the type and the permission bits.
func (i *FileInfo) Mode() fs.FileMode { return i.mode }

// ModTime is the modification time, to the millisecond.
func (i *FileInfo) ModTime() time.Time { return i.mtime }

// IsDir reports whether it is a directory.
func (i *FileInfo) IsDir() bool { return i.mode.IsDir() }

// Sys returns nil.
func (i *FileInfo) Sys() any { return nil }

// Type is the type bits of Mode.
func (i *FileInfo) Type() fs.FileMode { return i.mode.Type() }

// Info returns i itself.
func (i *FileInfo) Info() (fs.FileInfo, error) { return i, nil }

// String is a line for people, as of ls -l.
func (i *FileInfo) String() string { return fs.FormatFileInfo(i) }

// fileInfo makes a FileInfo of the wire's attributes.
func fileInfo(path string, a *pb.Attr) *FileInfo {
	i := &FileInfo{
		Path: path, Inode: a.GetInode(), User: a.GetUser(), Group: a.GetGroup(), Length: a.GetLength(),
		LinkTarget: a.GetLinkTarget(), Entries: a.GetEntries(), Blocks: a.GetBlocks(), TailLength: a.GetTailLength(), Lease: LeaseID(a.GetLease()), Xattrs: int(a.GetXattrs()), Xattr: a.GetXattr(),
		HasACL: a.GetAcl()&1 != 0, HasDefault: a.GetAcl()&2 != 0, Snapshots: a.GetSnapshots(),
		mode: modeFromWire(a.GetMode(), a.GetType()), mtime: time.UnixMilli(a.GetMtimeUnixMs()),
	}
	if o := a.GetOpen(); o != nil {
		i.Open = &OpenInfo{
			Holder: wire.Holder(o.GetHolder()), Session: hex.EncodeToString(o.GetHolder().GetSession()), Epoch: o.GetEpoch(),
			SoftExpired: o.GetSoftExpired(), TakeableIn: ms(o.GetTakeableInMs()),
		}
	}
	return i
}

func modeFromWire(mode uint32, t pb.FileType) fs.FileMode {
	m := filemode.FromUnix(mode)
	switch t {
	case pb.FileType_FILE_TYPE_DIRECTORY:
		m |= fs.ModeDir
	case pb.FileType_FILE_TYPE_SYMLINK:
		m |= fs.ModeSymlink
	}
	return m
}

func ms(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

// FileData is one whole small file for WriteFiles.
type FileData struct {
	Path string
	Data []byte
	// Options are those of Create that apply to this file.
	Options []OpenOption
}

// RecoverResult is what Recover did.
type RecoverResult struct {
	WasOpen bool // false: the file was closed already, nothing was done
	Length  int64
	Epoch   uint64 // any writer of an epoch below it is fenced
}

// FindOptions choose what Find yields.
type FindOptions struct {
	OpenOnly bool   // only files open for write
	Holder   string // only those held by this client name or session (hexadecimal)
}

// Summary counts what is below a path, the path itself included.
type Summary struct {
	Files, Directories, Symlinks, OpenFiles uint64
	Length                                  int64 // bytes in files
	Stored                                  int64 // bytes in the block store and in tails
	// SnapshotBytes are those of blocks that only snapshots of directories there have. They are not in the others.
	SnapshotBytes int64
	// TrashBytes are those of files in the trash that were deleted at the path, or below it: they
	// are not in the others either, and counted within seconds.
	TrashBytes int64
}

// LeaseFilter chooses among leases; its zero value means all.
type LeaseFilter struct {
	Holder  string // a client name, or a session (hexadecimal)
	Expired bool   // only those past the soft limit
	Lease   string // only the lease with this id
	Path    string // only the lease that holds this path, or that it is attached to
	Open    bool   // only those over files that are open for write, no granted ones
	Order   LeaseOrder
	Limit   int // only so many, the first ones; 0: all
}

// LeaseOrder is the order in which leases are listed.
type LeaseOrder int

// The orders of leases. In all but the first, the namenode looks at all leases for each
// thousand that it lists, so ask for the first few only. A lease that changes meanwhile may
// be listed at its former place.
const (
	LeasesByID        LeaseOrder = iota
	LeasesByIdle                 // the longest without a renewal first
	LeasesByRemaining            // the least time first, to live or until others can take the files
	LeasesByFiles                // the most files first, open or attached
)

// Lease is one lease as the namenode shows it.
type Lease struct {
	ID          string
	Name        string // of a granted lease that has one
	Holder      fserror.Holder
	Session     string // hexadecimal
	SoftExpired bool
	HardExpired bool
	Connected   bool        // its session has a stream to the namenode
	Files       []LeaseFile // at most 1,000
	FileCount   uint64
	Attached    []string // of a granted lease: paths deleted when it ends; at most 1,000

	Granted       bool          // it was granted, with a time to live of its own; it holds no files open
	TTL           time.Duration // of a granted lease
	Remaining     time.Duration // of its time to live; else until others can take its files
	AttachedCount uint64        // of a granted lease
	Waiting       uint32        // writers that wait for its files
	Waiters       []LeaseWaiter // those who came first to each file, at most 10 in all
	Overdue       time.Duration // past its time to live, or its hard limit
	Ending        bool          // its end has begun
}

// LeaseWaiter is who waits to write a file of a lease; Since is how long it has waited.
type LeaseWaiter struct {
	fserror.Holder
	Inode uint64
}

// LeaseFile is a file that a lease holds open for write.
type LeaseFile struct {
	Path         string
	Inode, Epoch uint64
}

type (
	// NamenodeStatus is what one namenode of the list says of itself.
	NamenodeStatus = report.NamenodeStatus
	// JournalStatus is how far a namenode's journal and image are.
	JournalStatus = report.JournalStatus
	// NamespaceStatus is how many there are of what the namespace holds.
	NamespaceStatus = report.NamespaceStatus
	// Troubles are what somebody should look at.
	Troubles = report.Troubles
	// Holding is what somebody holds of what all callers of a namenode share.
	Holding = report.Holding
	// ArchiveStatus is how far the archive of a namenode's journal is.
	ArchiveStatus = report.ArchiveStatus
	// RoomStatus is what is stored, and how much of the disk is free.
	RoomStatus = report.RoomStatus
	// Room is how much of something is in use that there is only so much of.
	Room = report.Room
	// FullQuota is how much of a quota is in use that is nearly used up.
	FullQuota = report.Quota
	// ZooKeeperStatus is what one namenode of several uses of ZooKeeper, and how it
	// stands with the clocks of others.
	ZooKeeperStatus = report.ZooKeeperStatus
)

// SafeModeAction is what Admin.SafeMode does.
type SafeModeAction int

// The actions of Admin.SafeMode.
const (
	SafeModeGet SafeModeAction = iota
	SafeModeEnter
	SafeModeLeave
)

// SafeModeState is whether mutations are refused, and why.
type SafeModeState struct {
	On  bool
	Why string
}

// CheckpointResult is the image that a checkpoint wrote.
type CheckpointResult struct {
	TxID     uint64
	Bytes    int64
	Duration time.Duration
}

// FsckProblem is one thing that Fsck found, or could not look at.
type FsckProblem struct {
	Path    string
	Problem string
	// Unchecked says that the block store did not answer: the block may be whole.
	Unchecked bool
}

// FsckSummary is what Fsck looked at.
type FsckSummary struct {
	Inodes, Blocks, Problems uint64
	BytesVerified            int64
	Unchecked                uint64 // blocks of which the block store did not tell; no problems
}

// CollectResult is what a run of the block collector did.
type CollectResult struct {
	Garbage uint64 // keys known to be garbage before the run
	Deleted uint64
	Waiting uint64 // whose URLs are not over yet
	Orphans uint64 // found in the store without an owner
}
