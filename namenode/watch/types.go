package watch

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"unsafe"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fspath"
)

// Defaults of Config.
const (
	DefaultMaxEvents = 100_000
	DefaultMaxBytes  = 64 << 20
)

// Config of a Hub. Zero or less means the default.
type Config struct {
	MaxEvents int   // events kept
	MaxBytes  int64 // of memory for them: their strings twice, and a fixed size each
}

// Type is what happened.
type Type uint8

// The types of events.
const (
	Create Type = iota + 1
	Close
	Delete
	Rename
	Length // of a file that is being written
	Attr
	Lease // who holds a file
)

// Event is one change of a file or directory.
type Event struct {
	TxID  uint64 // set by Hub.Add
	Time  int64  // Unix time in ms
	Type  Type
	IsDir bool
	Inode uint64
	// Dir is the inode of the directory that the name is in, or was in before
	// it was deleted or renamed; NewDir, of a rename, the one that it is in
	// now. They are for checks of permissions.
	Dir, NewDir uint64
	Path        string // clean and absolute
	NewPath     string // of a rename
	Length      int64  // bytes
	Holder      string // the client's name, of a lease event
	Why         string // of a Close that its writer did not make, and of a Delete
	By          *Who   // who made that; nil: not known, or nobody but the namenode
	Trashed     bool   // of a Delete: it is in the trash
}

// Who is a client.
type Who struct{ User, Client, Host string }

// Kept is an event as it is kept, once for all watchers. It never changes, and is
// safe for concurrent use.
type Kept struct {
	Event
	encoded atomic.Pointer[[]byte]
}

// Encoded returns what encode makes of the event. It is encoded when the first
// watcher asks, and kept for all others. All have the same encode, whose result is
// at most encodedRoom bytes longer than the event's strings. The bytes must not be
// changed.
func (k *Kept) Encoded(encode func(*Event) []byte) []byte {
	if b := k.encoded.Load(); b != nil {
		return *b
	}
	b := encode(&k.Event) // perhaps by several at once, which does no harm
	k.encoded.Store(&b)
	return b
}

// encodedRoom is what the encoded form counts for besides the strings in it.
const encodedRoom = 128

// size is what the event counts for, in bytes, its encoded form included.
func (k *Kept) size() int64 {
	strings := len(k.Path) + len(k.NewPath) + len(k.Holder) + len(k.Why)
	if k.By != nil {
		strings += len(k.By.User) + len(k.By.Client) + len(k.By.Host)
	}
	return int64(unsafe.Sizeof(*k)) + encodedRoom + 2*int64(strings)
}

// Filter chooses the events of a watch: by path, or by inode.
type Filter struct {
	// Path is clean and absolute. It need not exist. Its events are those whose
	// Path or NewPath is Path, or an entry directly in it, or with Recursive
	// anything below it; and a Delete or Rename whose Path or NewPath is a
	// directory above Path: what is watched went with it, or came with it.
	Path      string
	Recursive bool
	// Inode is for watching one inode, wherever it moves: only the events of
	// that inode. Path is empty then, and Recursive means nothing.
	Inode uint64
}

func (f *Filter) check() error {
	switch {
	case f.Path == "" && f.Inode == 0:
		return fserror.New(fserror.InvalidArgument, "watch", "", "neither a path nor an inode to watch")
	case f.Path != "" && f.Inode != 0:
		return fserror.New(fserror.InvalidArgument, "watch", f.Path, "both a path and an inode to watch")
	case f.Path != "":
		return fspath.Check(f.Path)
	}
	return nil
}

// match is what the index says of a single event, see paths.wake.
func (f *Filter) match(e *Event) bool {
	if f.Path == "" {
		return e.Inode == f.Inode
	}
	return f.matchName(e.Path, moves(e)) || e.Type == Rename && f.matchName(e.NewPath, true)
}

func (f *Filter) matchName(name string, moves bool) bool {
	switch {
	case len(name) == len(f.Path):
		return name == f.Path
	case len(name) < len(f.Path):
		return moves && below(f.Path, name)
	case !below(name, f.Path):
		return false
	}
	return f.Recursive || strings.LastIndexByte(name, '/') <= len(f.Path)
}

// Names reports whether the watch itself names an inode that has a path, or what is on the way to it.
func (f *Filter) Names(inode uint64, path string) bool {
	if f.Path == "" {
		return inode == f.Inode
	}
	return path == f.Path || len(path) < len(f.Path) && below(f.Path, path)
}

// moves reports whether the event changes the names of all that is below, too.
func moves(e *Event) bool { return e.Type == Delete || e.Type == Rename }

// below reports whether the longer path lies below dir.
func below(path, dir string) bool {
	if dir == "/" {
		return path[0] == '/'
	}
	return dir != "" && path[len(dir)] == '/' && path[:len(dir)] == dir
}

// ErrClosed says that the hub or the watcher was closed.
var ErrClosed = errors.New("watch: closed")

// TooOldError says that events that the watch needs are no longer kept. List again,
// then watch from there.
type TooOldError struct {
	From   uint64 // the first txid that the watch needed
	Oldest uint64 // the smallest txid that a watch could begin with at that time
}

// Error names both txids.
func (e *TooOldError) Error() string {
	return fmt.Sprintf("watch: events from txid %d on are asked for, but only those from %d on are kept: list again", e.From, e.Oldest)
}

// Stats are figures for metrics and status pages.
type Stats struct {
	Events   int    // kept, those that are not visible yet included
	Bytes    int64  // that they count for
	Oldest   uint64 // see Hub.Oldest
	Newest   uint64 // see Hub.Newest
	Watchers int    // open, and not told that they are too late
	Dropped  uint64 // watchers that fell behind and were told, in all
}
