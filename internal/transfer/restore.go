package transfer

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/client/snapshots"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fspath"
	"github.com/leasefs/leasefs/internal/lowlevel"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// RestoreOptions are those of Restore; the zero value removes nothing.
type RestoreOptions struct {
	Delete  bool // remove what is there now and not in the snapshot
	DryRun  bool // change nothing, and Tell what would be done
	Workers int  // copies under way at once; 0: 8
	// Progress, if set, is called often, by several goroutines at once.
	Progress func(Progress)
	// Tell, if set, is told of each step before it is done, Failed of each that failed. One
	// goroutine calls them at a time.
	Tell   func(RestoreStep)
	Failed func(path string, err error)
}

// What a RestoreStep does.
const (
	RestoreCopy   = "copy"       // a file, or makes a link
	RestoreMkdir  = "mkdir"      // makes a directory
	RestoreSet    = "attributes" // sets mode, owner, group, time, ACL and extended attributes
	RestoreRemove = "remove"     // removes something with all that is below
)

// RestoreStep is one step of Restore.
type RestoreStep struct {
	Do    string
	Path  string // in the directory as it is
	Bytes int64  // of a file that is copied
}

// Restored is what Restore did, or would do.
type Restored struct {
	Files, Directories, Symlinks int64 // that were missing, or others
	Attributes                   int64 // of so many things only these
	Removed                      int64 // what Delete removed, each with all below it
	Left                         int64 // what Delete would remove
	Bytes                        int64 // copied
	Failed                       int64
}

// Restore brings a directory, or what is at below in it (empty: all), back to what a snapshot of it has.
// What was changed or deleted since is copied back, each file whole by a rename, with mode, owner, group,
// modification time, ACL and extended attributes; what was made since stays, unless a file is in the
// place of another, or Delete says otherwise. It finds what to do by a diff, so it takes time for what
// was changed. It continues after an error, and returns the first one. NotFound: there is no such
// directory or snapshot, or nothing at below in it; Exists: something of another type, or a directory
// of another owner than the snapshot's, is in the way, for fserror.ReasonInWay; Held: a file is open
// for write. Of who is no superuser, that what is restored was another's is an error.
func Restore(ctx context.Context, fsys *client.FS, dir, name, below string, o RestoreOptions) (Restored, error) {
	r := &restorer{
		fs: lowlevel.Of(fsys), o: o, name: name, below: below, back: map[string]bool{}, made: map[string]uint64{},
		was: map[string]*client.FileInfo{}, dirs: map[string]uint64{}, new: map[string]bool{},
	}
	r.progress = o.Progress
	err := r.run(ctx, dir)
	if r.first != nil && (err == nil || ctx.Err() == nil) {
		err = r.first
	}
	n := r.result()
	r.did.Files, r.did.Directories, r.did.Symlinks, r.did.Bytes = n.Files, n.Directories, n.Symlinks, n.Bytes
	return r.did, err
}

const opRestore = "snapshot restore"

type restorer struct {
	counters
	fs               lowlevel.FS
	o                RestoreOptions
	dir, name, below string

	lease client.LeaseID // of temporary names
	id    uint64         // the snapshot's, whatever gets its name meanwhile

	back map[string]bool   // what to bring back, by its path in the snapshot; whether the content is to be, too
	made map[string]uint64 // what was made since, by its path; 0: whatever is there

	mu      sync.Mutex
	did     Restored
	first   error                       // of a step
	was     map[string]*client.FileInfo // what the snapshot has, as far as it was asked
	dirs    map[string]uint64           // the inodes of directories as they are, which are the snapshot's or take their place
	new     map[string]bool             // directories that are made
	cleared []string                    // where something was in the way
}

// live and old are where something is, and where the snapshot has it.
func (r *restorer) live(p string) string {
	if p == "" {
		return r.dir
	}
	return fspath.Join(r.dir, p)
}

func (r *restorer) old(p string) string { return snapshots.Path(r.dir, r.name, p) }

func (r *restorer) run(ctx context.Context, dir string) error {
	at, err := r.fs.Locate(ctx, lowlevel.At(dir))
	if err != nil {
		return fserror.With(err, opRestore, dir)
	}
	if !at.IsDir() {
		return fserror.New(fserror.NotDirectory, opRestore, dir, "is not a directory")
	}
	r.dir, ctx = at.Path, client.WithoutLinks(ctx)
	r.dirs[""] = at.Inode
	top, err := r.fs.Lstat(ctx, r.old(""))
	if err != nil {
		return fserror.With(err, opRestore, r.old(""))
	}
	r.id, _ = snapshots.Split(top.Inode)
	if _, err := r.snapshot(ctx, r.below); err != nil {
		return fserror.With(err, opRestore, r.old(r.below))
	}
	if err := r.plan(ctx); err != nil {
		return fserror.With(err, opRestore, r.dir)
	}
	if top, err = r.fs.Lstat(ctx, r.old("")); err == nil { // it may have compared another one of its name
		err = r.isOf(top)
	}
	if err != nil {
		return fserror.With(err, opRestore, r.old(""))
	}
	if !r.o.DryRun {
		end, err := r.grant(ctx)
		if err != nil {
			return fserror.With(err, opRestore, r.dir)
		}
		defer end()
	}
	paths := slices.Sorted(maps.Keys(r.back))
	content := func(ctx context.Context, i *client.FileInfo) error {
		p := r.relative(i)
		if i.Type() == fs.ModeSymlink {
			return r.step(ctx, p, r.link(ctx, p, i))
		}
		return r.step(ctx, p, r.file(ctx, p, i))
	}
	err = share(ctx, Options{Workers: r.o.Workers}.workers(), 0, func(ctx context.Context, send func(*client.FileInfo) error) error {
		if r.o.DryRun { // one after the other
			send = func(i *client.FileInfo) error { return content(ctx, i) }
		}
		for _, p := range paths {
			i, err := r.snapshot(ctx, p)
			if err == nil && !i.IsDir() {
				if err := send(i); err != nil {
					return err
				}
				continue
			}
			if err == nil {
				err = r.mkdir(ctx, p, i)
			}
			if err := r.step(ctx, p, err); err != nil {
				return err
			}
		}
		return nil
	}, content)
	if err != nil {
		return err
	}
	if err := r.extra(ctx); err != nil {
		return err
	}
	return r.finish(ctx)
}

// grant grants the lease of temporary names, and returns what ends it. What has one when this process
// dies is deleted with the lease.
func (r *restorer) grant(ctx context.Context) (end func(), err error) {
	leases := r.fs.Leases()
	g, err := leases.Grant(ctx, 2*time.Minute, 0)
	if err != nil {
		return nil, err
	}
	kept, err := leases.Hold(ctx, g.ID)
	if err != nil {
		return nil, err
	}
	r.lease = g.ID
	return func() {
		kept.Stop()
		late, cancel := lingering(ctx, stopGrace)
		defer cancel()
		_ = leases.Revoke(late, g.ID) // else it ends by itself
	}, nil
}

// finish gives directories what the snapshot has of them, those below others first: those that came
// back, and those that have another time by what was done in them.
func (r *restorer) finish(ctx context.Context) error {
	for _, p := range slices.Backward(slices.Sorted(maps.Keys(r.dirs))) {
		if _, back := r.back[p]; !back && !within(p, r.below) {
			continue
		}
		i, err := r.snapshot(ctx, p)
		if err == nil {
			err = r.finishOne(ctx, p, i)
		}
		if err := r.step(ctx, p, err); err != nil {
			return err
		}
	}
	return nil
}

func (r *restorer) finishOne(ctx context.Context, p string, i *client.FileInfo) error {
	is, _, err := r.fs.LstatKept(ctx, lowlevel.Inode(r.dirs[p]))
	if err != nil {
		return err
	}
	return r.attributes(ctx, p, i, is)
}

// snapshot is what the snapshot has at a path.
func (r *restorer) snapshot(ctx context.Context, p string) (*client.FileInfo, error) {
	r.mu.Lock()
	i := r.was[p]
	r.mu.Unlock()
	if i != nil {
		return i, nil
	}
	i, err := r.fs.Lstat(ctx, r.old(p))
	if err == nil {
		err = r.isOf(i)
	}
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.was[p] = i
	return i, nil
}

// isOf returns an error if something is in another snapshot.
func (r *restorer) isOf(i *client.FileInfo) error {
	if id, _ := snapshots.Split(i.Inode); id != r.id {
		return fserror.New(fserror.NotFound, opRestore, r.old(""), "the snapshot was deleted or renamed meanwhile, and another one has its name; restore again")
	}
	return nil
}

// step notes how a step ended, and returns an error if no other one is to follow.
func (r *restorer) step(ctx context.Context, p string, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.did.Failed++; r.first == nil {
		r.first = fserror.With(err, opRestore, r.live(p))
	}
	if r.o.Failed != nil {
		r.o.Failed(r.live(p), err)
	}
	return nil
}

// tell tells of a step, adds it to a number, and reports whether to do it.
func (r *restorer) tell(do, p string, size int64, n *int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n != nil {
		*n++
	}
	if r.o.Tell != nil {
		r.o.Tell(RestoreStep{do, r.live(p), size})
	}
	return !r.o.DryRun
}

// inWay is the error that something is in the place of what the snapshot has, and cannot take it.
func (r *restorer) inWay(p string, i, is *client.FileInfo) error {
	text, was, now := "there is a %s now, which was made since, and the snapshot has a %s", kind(i), kind(is)
	if i.IsDir() && is.IsDir() {
		text, was, now = "there is another directory now, which belongs to user %s and would get what was user %s's", i.User, is.User
	}
	return fserror.New(fserror.Exists, opRestore, r.live(p), text+"; move it elsewhere, or have it removed", now, was).Because(fserror.ReasonInWay)
}

// kind is what something is, in a word.
func kind(i *client.FileInfo) string {
	switch i.Type() {
	case fs.ModeDir:
		return "directory"
	case fs.ModeSymlink:
		return "symbolic link"
	}
	return "file"
}

// way returns what is at a path now, nil if nothing. What is of another type than the snapshot's is
// in the way, and removed if that is wanted; so is a directory that cannot take the place of another.
func (r *restorer) way(ctx context.Context, p string, i *client.FileInfo) (*client.FileInfo, error) {
	is, err := r.look(ctx, p)
	switch {
	case err != nil || is == nil:
		return nil, err
	case is.Type() == i.Type() && (!i.IsDir() || r.takes(p, i, is)):
		return is, nil
	case !r.o.Delete:
		return nil, r.inWay(p, i, is)
	}
	if err := r.unheld(ctx, p, is); err != nil {
		return nil, err
	}
	r.mu.Lock()
	r.cleared = append(r.cleared, p)
	r.mu.Unlock()
	if !r.tell(RestoreRemove, p, 0, &r.did.Removed) {
		return nil, nil
	}
	return nil, r.remove(ctx, p, is.Inode)
}

func (r *restorer) mkdir(ctx context.Context, p string, i *client.FileInfo) error {
	is, err := r.way(ctx, p, i)
	if err != nil || is != nil {
		return err
	}
	r.new[p] = true
	r.directories.Add(1)
	if !r.tell(RestoreMkdir, p, 0, nil) {
		return nil
	}
	at, err := r.at(ctx, p)
	if err != nil {
		return err
	}
	// Nobody else's until all is in it, but the owner's at once: else a second Restore finds another's.
	inode, err := r.fs.MkdirFor(ctx, at, 0o700, 0, client.Owner{User: i.User, Group: i.Group})
	if client.IsNotSuperuser(err) {
		inode, err = r.fs.MkdirFor(ctx, at, 0o700, 0, client.Owner{})
	}
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dirs[p] = inode
	return nil
}

func (r *restorer) link(ctx context.Context, p string, i *client.FileInfo) error {
	is, err := r.way(ctx, p, i)
	if err != nil {
		return err
	}
	if is != nil && is.LinkTarget == i.LinkTarget {
		if same, err := r.same(ctx, p, i, is); same || err != nil {
			return err
		}
	}
	r.symlinks.Add(1)
	if !r.tell(RestoreCopy, p, 0, nil) {
		return nil
	}
	var denied error
	err = r.publish(ctx, p, func(temp lowlevel.Ref) (uint64, error) {
		resp := new(pb.MutateResponse)
		err := r.fs.Ask(ctx, "symlink", r.live(p), pb.Namenode_Symlink_FullMethodName, func(id *pb.CallId, c *pb.Caller) any {
			return &pb.SymlinkRequest{Call: id, Caller: c, At: &pb.Ref{Base: temp.Base, Path: temp.Path}, Target: i.LinkTarget, Lease: uint64(r.lease)}
		}, resp)
		inode := resp.GetAttr().GetInode()
		if err == nil {
			denied, err = r.like(ctx, p, i, inode)
		}
		return inode, err
	})
	if err != nil {
		return err
	}
	return denied
}

// held is the error about a file that is open for write.
func (r *restorer) held(p string, is *client.FileInfo) error {
	if is == nil || is.Open == nil || is.Open.SoftExpired {
		return nil
	}
	e := fserror.New(fserror.Held, opRestore, r.live(p), "the file is open for write")
	e.Holder, e.TakeableIn = &is.Open.Holder, is.Open.TakeableIn
	return e
}

// unheld returns the error that something is a file that is open for write, or that one is below it.
func (r *restorer) unheld(ctx context.Context, p string, is *client.FileInfo) error {
	if !is.IsDir() {
		return r.held(p, is)
	}
	for i, err := range r.fs.Find(ctx, r.live(p), client.FindOptions{OpenOnly: true}) {
		if err == nil {
			err = r.held(path.Join(p, strings.TrimPrefix(i.Path, r.live(p))), i)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *restorer) file(ctx context.Context, p string, i *client.FileInfo) error {
	is, err := r.way(ctx, p, i)
	if err != nil {
		return err
	}
	src, _, err := r.fs.OpenInode(ctx, i.Inode, i.Path)
	if err != nil {
		return err
	}
	defer func() { _ = src.Close() }() // only read
	_, live := snapshots.Split(i.Inode)
	same := is != nil && !r.back[p] && is.Inode == live
	if is != nil && !same && is.Length == i.Length && is.ModTime().Equal(i.ModTime()) { // it was restored before, maybe
		if same, err = r.equal(ctx, src, is); err != nil {
			return err
		}
	}
	if same {
		if same, err := r.same(ctx, p, i, is); same || err != nil {
			return err
		}
	}
	r.found(i.Length)
	if !r.tell(RestoreCopy, p, i.Length, nil) {
		r.done(1, i.Length)
		return nil
	}
	if err := r.held(p, is); err != nil {
		return err
	}
	var denied error
	err = r.publish(ctx, p, func(temp lowlevel.Ref) (uint64, error) {
		w, err := r.fs.CreateAt(ctx, temp, r.live(p), client.WithMode(0o600), client.WithLease(r.lease))
		if err != nil {
			return 0, err
		}
		if err := r.copy(ctx, w, src); err != nil {
			_ = w.Detach() // it is removed next
			return w.Inode(), err
		}
		if err := w.CloseContext(ctx); err != nil {
			return w.Inode(), err
		}
		if denied, err = r.like(ctx, p, i, w.Inode()); err != nil {
			return w.Inode(), err
		}
		if is, err = r.look(ctx, p); err == nil { // it may have been opened meanwhile, and older namenodes do not look
			err = r.held(p, is)
		}
		return w.Inode(), err
	})
	if err != nil {
		return fserror.Under(err, opRestore, r.live(p))
	}
	r.done(1, 0)
	return denied
}

// copy copies a file's content, as long as ctx lasts.
func (r *restorer) copy(ctx context.Context, w *client.Writer, src *client.Reader) error {
	buf := make([]byte, 256<<10)
	for at := int64(0); at < src.Length(); {
		n, err := src.ReadAtContext(ctx, buf, at, true)
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if _, err := w.WriteContext(ctx, buf[:n]); err != nil {
			return err
		}
		r.moved(int64(n))
		at += int64(n)
	}
	return nil
}

// equal compares a file with another byte by byte.
func (r *restorer) equal(ctx context.Context, a *client.Reader, is *client.FileInfo) (bool, error) {
	b, _, err := r.fs.OpenInode(ctx, is.Inode, is.Path)
	if err != nil {
		return false, err
	}
	defer func() { _ = b.Close() }() // only read
	if a.Length() != b.Length() {
		return false, nil
	}
	x, y := make([]byte, 1<<20), make([]byte, 1<<20)
	for at := int64(0); at < a.Length(); {
		n, err := a.ReadAtContext(ctx, x, at, true)
		if err != nil && !errors.Is(err, io.EOF) {
			return false, err
		}
		if m, err := b.ReadAtContext(ctx, y[:n], at, true); m < n && err != nil {
			return false, err
		}
		if !bytes.Equal(x[:n], y[:n]) {
			return false, nil
		}
		at += int64(n)
	}
	return true, nil
}
