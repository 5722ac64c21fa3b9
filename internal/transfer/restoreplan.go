package transfer

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/client/snapshots"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/lowlevel"
)

// within reports whether p is dir or below it. All is in "".
func within(p, dir string) bool {
	return dir == "" || p == dir || strings.HasPrefix(p, dir+"/")
}

// plan finds out what to bring back and what was made since.
func (r *restorer) plan(ctx context.Context) error {
	dir := ""
	for name := range strings.SplitSeq(r.below, "/") { // those above may be gone
		if dir = path.Join(dir, name); dir == r.below {
			break
		}
		if _, err := r.fs.Lstat(ctx, r.live(dir)); errors.Is(err, fserror.NotFound) {
			r.back[dir] = false
		}
	}
	leftOut, err := snapshots.Compare(ctx, r.fs.FS, r.dir, r.name, "", func(c *snapshots.Change) error {
		if c.Type == snapshots.Created || c.Type == snapshots.Renamed {
			p, inode := c.Path, c.Inode
			if c.Type == snapshots.Renamed {
				p = c.NewPath
			}
			if within(r.below, p) && p != r.below {
				p, inode = r.below, 0
			}
			if within(p, r.below) {
				r.made[p] = inode
			}
		}
		if c.Type == snapshots.Created {
			return nil
		}
		// What was in a directory that was deleted or renamed is gone from there with it.
		if moved := c.Type != snapshots.Modified; moved && c.Kind == fs.ModeDir {
			p := c.Path
			if within(r.below, p) {
				p = r.below
			}
			if within(p, r.below) && !r.back[p] {
				return r.walk(ctx, p)
			}
		} else if within(c.Path, r.below) {
			r.back[c.Path] = r.back[c.Path] || moved || c.Content
		}
		return nil
	})
	for _, p := range leftOut {
		if within(p, r.below) || within(r.below, p) {
			_ = r.step(ctx, p, fserror.New(fserror.Permission, opRestore, r.live(p), "what was changed in this directory is not restored, since you may not list it; ask its owner or a superuser"))
		}
	}
	return err
}

// walk brings all back that the snapshot has at a path and below. Directories that the caller may not
// list fail, and stay away: nobody would see that they are not whole.
func (r *restorer) walk(ctx context.Context, p string) error {
	for i, err := range r.fs.Find(ctx, r.old(p), client.FindOptions{}) {
		if errors.Is(err, fserror.Permission) { // it ends at the first such directory
			return r.walkEach(ctx, p)
		}
		if err == nil {
			err = r.bringBack(i)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// walkEach is walk, one directory after the other.
func (r *restorer) walkEach(ctx context.Context, p string) error {
	dir, err := r.snapshot(ctx, p)
	if err != nil {
		return err
	}
	r.back[p] = true
	if !dir.IsDir() {
		return nil
	}
	for i, err := range r.fs.Entries(ctx, r.old(p)) {
		switch {
		case errors.Is(err, fserror.Permission):
			delete(r.back, p)
			return r.step(ctx, p, err)
		case err == nil:
			err = r.bringBack(i)
		}
		if err == nil && i.IsDir() {
			err = r.walkEach(ctx, r.relative(i))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// bringBack notes that something of the snapshot comes back, if it is of that.
func (r *restorer) bringBack(i *client.FileInfo) error {
	if err := r.isOf(i); err != nil {
		return err
	}
	p := r.relative(i)
	r.back[p], r.was[p] = true, i
	return nil
}

// extra removes what was made since, or counts it.
func (r *restorer) extra(ctx context.Context) error {
	byName := func(a, b string) int { // what is below something comes just after it
		return strings.Compare(strings.ReplaceAll(a, "/", "\x00"), strings.ReplaceAll(b, "/", "\x00"))
	}
	gone := "\x00" // the last that is not to be looked at any more
	for _, p := range slices.SortedFunc(maps.Keys(r.made), byName) {
		if within(p, gone) {
			continue
		}
		gone = p
		if err := r.step(ctx, p, r.prune(ctx, p, r.made[p])); err != nil {
			return err
		}
	}
	return nil
}

// prune removes what is at a path, or below, and not in the snapshot, if it is that inode still.
func (r *restorer) prune(ctx context.Context, p string, inode uint64) error {
	if slices.ContainsFunc(r.cleared, func(dir string) bool { return within(p, dir) }) {
		return nil
	}
	is, err := r.look(ctx, p)
	if err != nil || is == nil || inode != 0 && is.Inode != inode {
		return err
	}
	if _, there := r.back[p]; !there {
		if !r.o.Delete {
			r.did.Left++
			return nil
		}
		if err := r.unheld(ctx, p, is); err != nil {
			return err
		}
		if !r.tell(RestoreRemove, p, 0, &r.did.Removed) {
			return nil
		}
		return r.remove(ctx, p, is.Inode)
	}
	if !is.IsDir() || is.Inode != r.dirs[p] {
		return nil
	}
	for after, more := "", true; more; {
		var list []*client.FileInfo
		if list, more, err = r.fs.ListAt(ctx, lowlevel.Inode(is.Inode), after, 1000); err != nil {
			return err
		}
		for _, i := range list {
			after = path.Base(i.Path)
			if err := r.prune(ctx, path.Join(p, after), i.Inode); err != nil {
				return err
			}
		}
	}
	return nil
}
