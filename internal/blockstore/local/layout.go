package local

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"sync"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/vfs"
)

const (
	tmpFolder   = "tmp"
	lockSuffix  = ".lock"
	sweepLock   = "sweep" + lockSuffix // held by the one that sweeps tmp
	tmpSuffix   = ".tmp"
	blockSuffix = ".blk"

	// folderBits: one folder holds the blocks of 1<<folderBits sequence numbers.
	folderBits   = 10
	termDigits   = 16
	folderDigits = 14
	seqDigits    = 16

	// maxFolders bounds the cache of folders.
	maxFolders = 4096
)

// place is the folder that a key's block is in.
type place struct{ term, high uint64 }

func placeOf(key blockstore.Key) place { return place{key.Term, key.Seq >> folderBits} }

func (s *Store) folderPath(p place) string { return filepath.Join(s.root, p.path()) }

func (p place) path() string {
	return filepath.Join(fmt.Sprintf("%0*x", termDigits, p.term), fmt.Sprintf("%0*x", folderDigits, p.high))
}

func (s *Store) blockPath(key blockstore.Key) string {
	return filepath.Join(s.folderPath(placeOf(key)), blockName(key))
}

// FileName is the name of a block's file, relative to Config.Dir: a folder with
// such files, and Marker's, is one that Open takes.
func FileName(id [16]byte, key blockstore.Key) string {
	return filepath.Join(hex.EncodeToString(id[:]), placeOf(key).path(), blockName(key))
}

func blockName(key blockstore.Key) string {
	return fmt.Sprintf("%0*x%s", seqDigits, key.Seq, blockSuffix)
}

// parseBlockName reads the name of a block in the folder of p.
func parseBlockName(p place, name string) (blockstore.Key, bool) {
	digits, ok := strings.CutSuffix(name, blockSuffix)
	if !ok {
		return blockstore.Key{}, false
	}
	seq, ok := blockstore.ParseDigits(digits, seqDigits)
	return blockstore.Key{Term: p.term, Seq: seq}, ok && seq>>folderBits == p.high
}

// ownerOf is the id of the store that made a file in tmp; false for a name that
// no store gives.
func ownerOf(name string) (string, bool) {
	id, ok := strings.CutSuffix(name, lockSuffix)
	if !ok {
		if id, ok = strings.CutSuffix(name, tmpSuffix); ok {
			id, _, ok = strings.Cut(id, "-")
		}
	}
	if !ok {
		return "", false
	}
	_, ok = blockstore.ParseDigits(id, 16)
	return id, ok
}

// makeDurable makes a folder, and its parents where they are missing, so that a
// crash does not take it back. One that is there already is synced into its
// parent all the same: who made it may have crashed before doing so.
func makeDurable(fsys vfs.FS, dir string) error {
	parent := filepath.Dir(dir)
	if _, err := fsys.Stat(parent); errors.Is(err, fs.ErrNotExist) && parent != dir {
		if err := makeDurable(fsys, parent); err != nil {
			return err
		}
	}
	_, err := fsys.Stat(dir)
	existed := err == nil
	if err := fsys.MkdirAll(dir); err != nil {
		return err
	}
	err = fsys.SyncDir(parent)
	if existed && errors.Is(err, fs.ErrPermission) {
		return nil // made by somebody who may do more in parent than we
	}
	if err != nil && !existed {
		// No later fsync proves anything about this name: make it again then.
		_ = fsys.Remove(dir)
	}
	return err
}

// folders remembers which fan-out folders are made and durable.
type folders struct {
	fs vfs.FS

	mu     sync.Mutex
	m      map[place]*folder
	newest place // of PUTs
}

// get returns the folder of p, pinned in the cache until release.
func (f *folders) get(p place, path string) *folder {
	f.mu.Lock()
	defer f.mu.Unlock()
	d := f.m[p]
	if d == nil {
		if f.m == nil {
			f.m = make(map[place]*folder)
		}
		if len(f.m) >= maxFolders {
			f.shrink()
		}
		d = &folder{fs: f.fs, path: path}
		f.m[p] = d
	}
	d.users++
	return d
}

// getForPut is get for a PUT.
func (f *folders) getForPut(p place, path string) *folder {
	f.mu.Lock()
	if p.term > 0 && (p.term > f.newest.term || p.term == f.newest.term && p.high > f.newest.high) { // else it is a probe
		f.newest = p
	}
	f.mu.Unlock()
	return f.get(p, path)
}

// prune removes the folder d of p if it is empty and only the caller has it: a PUT that comes
// meanwhile waits, and makes it again. The newest stays, since more comes there. A late PUT of a reign before, in
// another process that does not know, fails, and its client puts the block again.
func (f *folders) prune(p place, d *folder) {
	d.making.Lock()
	defer d.making.Unlock()
	f.mu.Lock()
	keep := d.users > 1 || p == f.newest
	f.mu.Unlock()
	if keep || d.hasSuspects() || d.fs.Remove(d.path) != nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.made, d.old = false, nil
}

func (f *folders) release(d *folder) {
	f.mu.Lock()
	defer f.mu.Unlock()
	d.users--
}

// shrink forgets the folders that nobody uses and that have nothing to remember.
func (f *folders) shrink() {
	for p, d := range f.m {
		if d.users == 0 && !d.hasSuspects() {
			delete(f.m, p)
		}
	}
}

// folder is one fan-out folder. Its syncs come one after the other; callers that
// arrive while one runs share the next.
type folder struct {
	fs    vfs.FS
	path  string
	users int // guarded by folders.mu

	making sync.Mutex
	made   bool // guarded by making; old is set with it

	turn sync.Mutex // held during a sync

	mu      sync.Mutex
	next    *round
	old     map[string]struct{}         // names from before, not known to be durable
	linking map[blockstore.Key]int      // PUTs between link and the end of their sync
	suspect map[blockstore.Key]struct{} // linked, but a sync failed: perhaps not durable
}

// round is one sync and those who wait for it.
type round struct {
	done chan struct{}
	err  error
}

// make makes the folder and its term's, durable, once.
func (d *folder) make() error {
	d.making.Lock()
	defer d.making.Unlock()
	if d.made {
		return nil
	}
	if err := makeDurable(d.fs, filepath.Dir(d.path)); err != nil {
		return err
	}
	if err := makeDurable(d.fs, d.path); err != nil {
		return err
	}
	names, err := d.fs.List(d.path)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(names) > 0 {
		d.old = make(map[string]struct{}, len(names))
	}
	for _, name := range names {
		d.old[name] = struct{}{}
	}
	d.made = true
	return nil
}

// isOld reports whether the key's block was there before the folder was made
// ready, and its name was not made again since.
func (d *folder) isOld(key blockstore.Key) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, ok := d.old[blockName(key)]
	return ok
}

// replace gives the key's name to the file from, which is a copy of what has it,
// and syncs the folder.
func (d *folder) replace(from string, key blockstore.Key) error {
	d.enter(key)
	defer d.leave(key)
	if err := d.fs.Rename(from, filepath.Join(d.path, blockName(key))); err != nil {
		return err
	}
	if err := d.settle(key); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.old, blockName(key))
	return nil
}

// sync makes durable what was done in the folder before the call.
func (d *folder) sync() error {
	d.mu.Lock()
	r := d.next
	lead := r == nil
	if lead {
		r = &round{done: make(chan struct{})}
		d.next = r
	}
	d.mu.Unlock()
	if !lead {
		<-r.done
		return r.err
	}
	d.turn.Lock()
	d.mu.Lock()
	d.next = nil // who comes from here on is not covered
	d.mu.Unlock()
	r.err = d.fs.SyncDir(d.path)
	if r.err != nil {
		d.distrust()
	}
	d.turn.Unlock()
	close(r.done)
	return r.err
}

// distrust notes that no later sync proves anything about the links under way.
func (d *folder) distrust() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.suspect == nil {
		d.suspect = make(map[blockstore.Key]struct{})
	}
	for key := range d.linking {
		d.suspect[key] = struct{}{}
	}
}

// link publishes the file from under the key's name and syncs the folder.
// fs.ErrExist if the key is taken, by a block that is durable.
func (d *folder) link(from string, key blockstore.Key) error {
	d.enter(key)
	defer d.leave(key)
	linkErr := d.fs.Link(from, filepath.Join(d.path, blockName(key)))
	if linkErr != nil && !errors.Is(linkErr, fs.ErrExist) {
		return linkErr
	}
	if err := d.settle(key); err != nil {
		return err
	}
	return linkErr
}

// settle returns nil when the key's link, made before the call, is durable.
func (d *folder) settle(key blockstore.Key) error {
	if err := d.sync(); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, ok := d.suspect[key]; ok {
		return errSuspect
	}
	return nil
}

// errSuspect says that an fsync of the block's folder failed after it was linked.
var errSuspect = errors.New("an earlier fsync of its folder failed: use another key")

func (d *folder) enter(key blockstore.Key) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.linking == nil {
		d.linking = make(map[blockstore.Key]int)
	}
	d.linking[key]++
}

func (d *folder) leave(key blockstore.Key) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.linking[key]--; d.linking[key] == 0 {
		delete(d.linking, key)
	}
}

func (d *folder) hasSuspects() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.suspect) > 0
}
