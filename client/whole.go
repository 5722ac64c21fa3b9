package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fspath"
	"github.com/leasefs/leasefs/internal/lowlevel/door"
	"github.com/leasefs/leasefs/internal/turn"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

const (
	// scratchTTL is how long a temporary file can outlive its process, and an FS
	// be cut off without losing those that it writes.
	scratchTTL = 2 * time.Minute
	// scratchEnd is how long Close tries to revoke the lease of temporary files.
	scratchEnd = 2 * time.Second
)

// WriteFrom makes a file of all that r gives until io.EOF, whole or not at all,
// and returns how many bytes that are. They are written under a temporary name
// beside it, attached to a granted lease of this FS, and published when the
// file is closed: should this process die, what it wrote is deleted two
// minutes later. Options as of Create, and WithXattrs; an existing file needs
// WithOverwrite, and is there until the new one is. Errors of r come back as they are.
func (f *FS) WriteFrom(ctx context.Context, path string, r io.Reader, opts ...OpenOption) (n int64, err error) {
	err = f.scratch.write(ctx, path, opts, func(w *Writer) (err error) {
		n, err = w.readFrom(ctx, r)
		return err
	})
	return n, err
}

// setXattrs sets those of a file that is being made.
func setXattrs(ctx context.Context, w *Writer, all []Xattr) error {
	for _, x := range all {
		err := (&Xattrs{fs: w.fs, inode: w.key.Inode}).Set(ctx, x.Name, x.Value, XattrAny)
		var e *fserror.Error
		if errors.As(err, &e) {
			c := *e
			c.Path, c.Message = w.path, fmt.Sprintf("extended attribute %q: %s", x.Name, e.Message)
			return &c
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// write makes a file of what fill writes.
func (s *scratch) write(ctx context.Context, path string, opts []OpenOption, fill func(*Writer) error) error {
	path, err := clean("create", path)
	if err != nil {
		return err
	}
	o := gather(opts)
	place, err := s.mayPlace(ctx, path, &o)
	if err != nil {
		return err
	}
	shut := len(o.xattrs) > 0 && o.hasMode && o.mode&0o200 == 0
	if opts = opts[:len(opts):len(opts)]; len(o.acl) > 0 { // nobody else until it has its ACL
		opts = append(opts, WithMode(o.mode&fs.ModeSticky|0o600))
	} else if shut { // who may not write a file may not set them
		opts = append(opts, WithMode(o.mode|0o200))
	} else if o.hasMode {
		opts = append(opts, WithMode(o.mode))
	}
	publish := &pb.RenameRequest{Overwrite: o.replaces(), Unheld: !o.steal} // what is attached to the caller's own lease stays so
	if o.lease == 0 {
		id, err := s.lease(ctx)
		if err != nil {
			return fserror.Under(err, "create", path)
		}
		opts = append(opts, WithLease(id))
		publish.Detach = true
	}
	opts = append(opts, WithXattrs(nil)) // there may be more than one call takes
	dir, name := fspath.Split(place)
	temp := fspath.Join(dir, fspath.TempName(name))
	err = s.make(ctx, temp, opts, func(w *Writer) error {
		err := setXattrs(ctx, w, o.xattrs)
		if err == nil && len(o.acl) > 0 {
			err = s.f.changeACL(ctx, w.path, pb.Inode(w.key.Inode), ACLChange{Action: ACLWhole, Entries: o.acl})
		} else if err == nil && shut {
			err = s.f.changeAttr(ctx, w.path, pb.Inode(w.key.Inode), AttrChange{SetMode: true, Mode: o.mode})
		}
		if err != nil {
			return err
		}
		return fill(w)
	})
	if err == nil && o.replaces() { // it may have been opened meanwhile, and older namenodes do not look
		_, err = s.mayPlace(ctx, place, &o)
	}
	if err == nil {
		_, err = s.f.rename(ctx, door.At(temp), door.At(place), 0, publish)
	}
	if err != nil {
		// The caller may have given up, and Create have made it all the same.
		late, cancel := lingering(ctx)
		_, _ = s.f.remove(late, door.At(temp), 0, &pb.DeleteRequest{SkipTrash: true}) // else the lease's end deletes it
		cancel()
	}
	return untemp(err, temp, path)
}

func (s *scratch) make(ctx context.Context, temp string, opts []OpenOption, fill func(*Writer) error) error {
	w, err := s.f.Create(ctx, temp, opts...)
	if err != nil {
		return err
	}
	if err := fill(w); err != nil {
		_ = w.Detach() // it is removed next
		return err
	}
	return w.CloseContext(ctx)
}

// untemp makes errors name the file that the temporary one becomes.
func untemp(err error, temp, path string) error {
	var e *fserror.Error
	if errors.As(err, &e) && e.Path == temp {
		return fserror.Under(err, "create", path)
	}
	return err
}

// replaces tells whether an existing file is to be replaced.
func (o *openOptions) replaces() bool { return o.overwrite || o.steal }

// mayPlace refuses what Create would refuse for what is there already, and
// returns where the file goes: what a link points to is replaced, not the link,
// unless it points to nothing (or nothing that the caller may read). The mode of
// what is replaced becomes the option's, if that says none.
func (s *scratch) mayPlace(ctx context.Context, path string, o *openOptions) (string, error) {
	const op = "create"
	info, err := s.f.stat(ctx, op, path, false)
	if errors.Is(err, fserror.NotFound) {
		return path, nil
	}
	if err != nil {
		return "", err
	}
	place := path
	if o.replaces() && info.Type() == fs.ModeSymlink {
		resp, _, err := s.f.getFile(ctx, op, path, &pb.GetFileRequest{At: followPath(ctx, path), NoUrls: true, MaxBlocks: 1})
		switch {
		case err == nil:
			place = resp.GetPath()
			info = fileInfo(place, resp.GetAttr())
		case !errors.Is(err, fserror.NotFound) && !errors.Is(err, fserror.Permission):
			return "", err
		}
	}
	switch {
	case info.Open != nil && !info.Open.SoftExpired && !o.steal:
		e := fserror.New(fserror.Held, op, path, "the file is open for write")
		e.Holder, e.TakeableIn = &info.Open.Holder, info.Open.TakeableIn
		return "", e
	case !o.replaces():
		return "", fserror.New(fserror.Exists, op, path, "it exists already")
	case info.IsDir():
		return "", fserror.New(fserror.IsDirectory, op, path, "it is a directory")
	}
	if !o.hasMode && info.Mode().IsRegular() {
		o.mode, o.hasMode = info.Mode(), true
	}
	return place, nil
}

// scratch writes files under temporary names, which a granted lease of the FS has.
type scratch struct {
	f    *FS
	turn turn.Turn // of who uses kept
	kept *KeptLease
}

// lease returns the lease, granted and kept alive from its first use on.
func (s *scratch) lease(ctx context.Context) (LeaseID, error) {
	unlock, err := s.turn.Lock(ctx)
	if err != nil {
		return 0, fserror.Ended(ctx, "create", "")
	}
	defer unlock()
	if err := s.f.mayOpen("create", ""); err != nil {
		return 0, err
	}
	if s.kept != nil && s.kept.Context().Err() == nil {
		if s.kept.Remaining() > 0 {
			return s.kept.id, nil
		}
		// It may have ended: this machine stood still, or no answer came, for longer than it lives.
		if err := s.keep(ctx, s.kept.id); !errors.Is(err, fserror.NotFound) {
			return s.kept.id, err
		}
	}
	g, err := s.f.Leases().Grant(ctx, scratchTTL, 0)
	if err == nil {
		err = s.keep(ctx, g.ID)
	}
	return g.ID, err
}

// keep makes a lease that lives the one that is kept.
func (s *scratch) keep(ctx context.Context, id LeaseID) error {
	w := s.f.nn.Waits("create", "")
	return w.Try(ctx, func() error {
		kept, err := s.f.Leases().Hold(ctx, id)
		if err != nil {
			return err
		}
		if s.kept != nil {
			s.kept.Stop()
		}
		kept.l.UntilTold() // what is attached has to outlive an outage of the namenodes
		s.kept = kept
		return nil
	})
}

// end revokes it: what is still attached was not published. If nobody answers
// it ends by itself.
func (s *scratch) end() {
	ctx, cancel := context.WithTimeout(context.Background(), scratchEnd)
	defer cancel()
	unlock, err := s.turn.Lock(ctx)
	if err != nil {
		return
	}
	defer unlock()
	if s.kept != nil && s.kept.Context().Err() == nil {
		s.kept.Stop()
		_ = s.f.Leases().Revoke(ctx, s.kept.id)
	}
}
