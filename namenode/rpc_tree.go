package namenode

import (
	"context"
	"errors"
	"sync"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fspath"
	"github.com/leasefs/leasefs/namenode/blocks"
	"github.com/leasefs/leasefs/namenode/engine"
	"github.com/leasefs/leasefs/namenode/namespace"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

const maxConcat = 1000

// Mkdir makes a directory, with parents if asked.
func (s *tree) Mkdir(ctx context.Context, r *pb.MkdirRequest) (*pb.MutateResponse, error) {
	m := uint16(defaultDirMode)
	if r.GetHasMode() {
		var err error
		if m, err = mode(r.GetMode()); err != nil {
			return nil, err
		}
	}
	less, err := mode(r.GetLess())
	if err != nil {
		return nil, err
	}
	return s.mutate(ctx, r, true, func(tx *engine.Tx, c *namespace.Call) (namespace.Op, error) {
		c.DirLess = less
		if lease := namespace.LeaseID(r.GetLease()); lease != 0 {
			return engine.OrNil(namespace.PlanMkdirLeased(tx.Tree, c, ref(r.GetAt()), m, r.GetParents(), lease))
		}
		return engine.OrNil(namespace.PlanMkdir(tx.Tree, c, ref(r.GetAt()), m, r.GetParents()))
	})
}

// Rename moves a file or directory. A file open for write continues under its
// new name; one that is replaced loses its writer, as in POSIX, unless the request
// spares it.
func (s *tree) Rename(ctx context.Context, r *pb.RenameRequest) (*pb.MutateResponse, error) {
	return s.mutate(ctx, r, true, func(tx *engine.Tx, c *namespace.Call) (namespace.Op, error) {
		op, err := engine.OrNil(namespace.PlanRename(tx.Tree, c, ref(r.GetFrom()), ref(r.GetTo()), r.GetOverwrite(), r.GetDetach()))
		if o, ok := op.(*namespace.OpRename); ok && r.GetUnheld() {
			h, _ := s.holder(r.GetCaller()) // who can hold no file can take none
			err = s.mayReplace(tx, false, o.Replace, h)
		}
		return hiding(tx, c, op, err, r.GetHide())
	})
}

// Delete takes a file or, if recursive, a directory with all below it out of
// the tree at once; memory and blocks are given back behind.
func (s *tree) Delete(ctx context.Context, r *pb.DeleteRequest) (*pb.MutateResponse, error) {
	if as := r.GetKeptAs(); as != "" {
		if err := fspath.CheckName(as); err != nil {
			return nil, err
		}
	}
	checked := &removal{}
	if r.GetRecursive() {
		defer s.removals.unregister(checked)
		if err := s.mayRemoveAll(ctx, r, checked); err != nil {
			return nil, err
		}
	}
	resp, err := s.remove(ctx, r, checked)
	if err == nil {
		s.blocks.Wake()
	}
	return resp, err
}

// removal is a directory that is about to be removed with all below it, of which it
// is checked that the caller may.
type removal struct {
	dir namespace.InodeID // 0: none
	// moved: a directory came into it since the check began, out of the trash too, from where
	// nothing was checked, or was not yet. Guarded by removals.mu.
	moved bool
}

// removals are those under way.
type removals struct {
	mu  sync.Mutex
	all map[*removal]struct{}
}

// register has a removal told of directories that are moved into its own.
func (l *removals) register(r *removal, dir namespace.InodeID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r.dir = dir
	if l.all == nil {
		l.all = make(map[*removal]struct{})
	}
	l.all[r] = struct{}{}
}

func (l *removals) unregister(r *removal) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.all, r)
}

// disturbed reports whether a directory came into that of a removal.
func (l *removals) disturbed(r *removal) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return r.moved
}

// tell reports the removals of a record that was just applied.
func (l *removals) tell(t *namespace.Tree, op namespace.Op) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.all) == 0 {
		return
	}
	for _, part := range namespace.Parts(op) {
		var to namespace.Ref // that something comes to
		switch p := part.(type) {
		case *namespace.OpRename:
			to = namespace.Ref{Base: p.ToParent, Path: p.ToName}
		case *namespace.OpTrash:
			to = namespace.Ref{Base: p.Parent, Path: p.Name}
		}
		if to.Base == 0 {
			continue
		}
		if a, err := t.Stat(nil, to); err == nil && a.Type != namespace.TypeDir {
			continue
		}
		for r := range l.all {
			r.moved = r.moved || t.IsBelow(to.Base, r.dir)
		}
	}
}

// remove is Delete once the caller may remove all that is below the directory
// checked. If the name is another one's by now, or a directory has come into it, the
// caller has to try again.
func (s *tree) remove(ctx context.Context, r *pb.DeleteRequest, checked *removal) (*pb.MutateResponse, error) {
	return s.mutate(ctx, r, false, func(tx *engine.Tx, c *namespace.Call) (namespace.Op, error) {
		c.SkipTrash, c.TrashAs = r.GetSkipTrash(), r.GetKeptAs()
		op, err := namespace.PlanDelete(tx.Tree, c, ref(r.GetAt()), r.GetRecursive(), namespace.Type(r.GetOnly())) //nolint:gosec // an unknown type matches nothing
		if err == nil && r.GetRecursive() && !c.Super && (op.Inode != checked.dir || s.removals.disturbed(checked)) && tx.Tree.IsDir(op.Inode) {
			return nil, &fserror.Error{Kind: fserror.Retry, Message: "another directory got this name, or was moved into it, while the permissions below it were checked; try again"}
		}
		out, err := engine.OrNil(op, err)
		return hiding(tx, c, out, err, r.GetHide())
	})
}

// hiding makes of a planned rename or delete one that hides the file, if asked for.
func hiding(tx *engine.Tx, c *namespace.Call, op namespace.Op, err error, h *pb.Hide) (namespace.Op, error) {
	if err != nil || op == nil || h == nil {
		return op, err
	}
	return namespace.PlanHide(tx.Tree, c, op, namespace.Hide{Inode: namespace.InodeID(h.GetInode()), Name: h.GetName(), Lease: namespace.LeaseID(h.GetLease())})
}

// SetAttr is chmod, chown and utimes.
func (s *tree) SetAttr(ctx context.Context, r *pb.SetAttrRequest) (*pb.MutateResponse, error) {
	op := namespace.OpSetAttr{SetMode: r.GetSetMode(), User: r.GetUser(), Group: r.GetGroup(), SetMTime: r.GetSetMtime(), MTime: r.GetMtimeUnixMs()}
	if err := checkNames(op.User, op.Group); err != nil {
		return nil, err
	}
	if op.SetMode {
		var err error
		if op.Mode, err = mode(r.GetMode()); err != nil {
			return nil, err
		}
	}
	return s.mutate(ctx, r, true, func(tx *engine.Tx, c *namespace.Call) (namespace.Op, error) {
		return engine.OrNil(namespace.PlanSetAttr(tx.Tree, c, ref(r.GetAt()), op))
	})
}

// Symlink makes a symbolic link.
func (s *tree) Symlink(ctx context.Context, r *pb.SymlinkRequest) (*pb.MutateResponse, error) {
	return s.mutate(ctx, r, true, func(tx *engine.Tx, c *namespace.Call) (namespace.Op, error) {
		if lease := namespace.LeaseID(r.GetLease()); lease != 0 {
			return engine.OrNil(namespace.PlanSymlinkLeased(tx.Tree, c, ref(r.GetAt()), r.GetTarget(), r.GetParents(), lease))
		}
		return engine.OrNil(namespace.PlanSymlink(tx.Tree, c, ref(r.GetAt()), r.GetTarget(), r.GetParents()))
	})
}

// Truncate shrinks a closed file.
func (s *tree) Truncate(ctx context.Context, r *pb.TruncateRequest) (*pb.MutateResponse, error) {
	return s.mutate(ctx, r, false, func(tx *engine.Tx, c *namespace.Call) (namespace.Op, error) {
		op, err := namespace.PlanTruncate(tx.Tree, c, ref(r.GetAt()), r.GetLength())
		return engine.OrNil(op, s.withLease(tx, err))
	})
}

// Concat moves the blocks of the sources to the end of the target. Tails that
// would come to stand in the middle are sealed into blocks first.
func (s *tree) Concat(ctx context.Context, r *pb.ConcatRequest) (*pb.MutateResponse, error) {
	if n := len(r.GetSources()); n < 1 || n > maxConcat {
		return nil, fserror.New(fserror.InvalidArgument, "", "", "concat takes 1 to %d sources, not %d", maxConcat, n)
	}
	sources := make([]namespace.Ref, len(r.GetSources()))
	for i, f := range r.GetSources() {
		sources[i] = ref(f)
	}
	for range 3 {
		var unsealed []namespace.InodeID
		resp, err := s.mutate(ctx, r, true, func(tx *engine.Tx, c *namespace.Call) (namespace.Op, error) {
			op, err := namespace.PlanConcat(tx.Tree, c, ref(r.GetTarget()), sources)
			if err != nil {
				return nil, s.withLease(tx, err)
			}
			if unsealed = namespace.ConcatNeedsSeal(tx.Tree, op); len(unsealed) > 0 {
				return nil, fserror.New(fserror.Retry, "", "", "the files change while they are being joined; try again")
			}
			return op, nil
		})
		if len(unsealed) == 0 {
			return resp, err
		}
		for _, id := range unsealed {
			if err := s.blocks.Seal(ctx, id); err != nil && !errors.Is(err, blocks.ErrStale) {
				return nil, err
			}
		}
	}
	return nil, fserror.New(fserror.Retry, "", "", "the files change while they are being joined; try again")
}

// withLease adds to a HELD error what the lease table knows of the holder.
func (s *desk) withLease(tx *engine.Tx, err error) error {
	var held *fserror.Error
	if !errors.As(err, &held) || held.Kind != fserror.Held || held.Path == "" {
		return err
	}
	a, serr := tx.Tree.Stat(&namespace.Call{Super: true}, namespace.Follow(held.Path))
	if serr != nil || a.Open == nil {
		return err
	}
	_, st := s.leases.Take(*a.Open, namespace.Holder{})
	return fserror.With(s.held(*a.Open, st), "", held.Path)
}

// removeSlice is how many inodes one look at a subtree's permissions covers
// under the lock.
const removeSlice = 2000

// mayRemoveAll checks, a slice at a time, that the caller may write every
// non-empty directory below the path, as rm -r would find out on its way. It
// notes the directory that it checks: what the path names when it begins; none if
// that is no directory. A call that happened before is not checked: it gets its
// first answer.
func (s *tree) mayRemoveAll(ctx context.Context, r *pb.DeleteRequest, checked *removal) error {
	c, err := s.caller(ctx, r.GetCaller())
	if err != nil || c.Super {
		return err
	}
	id, err := callID(r, r.GetCall())
	if err != nil {
		return err
	}
	var dir namespace.InodeID
	err = s.engine.View(ctx, c, func(tx *engine.Tx) error {
		if _, known, err := tx.Tree.CallResult(id); known || err != nil {
			return nil //nolint:nilerr // the change itself answers
		}
		if a, err := tx.Tree.Stat(c, ref(r.GetAt())); err == nil && a.Type == namespace.TypeDir {
			dir = a.ID
		}
		return nil // the change itself says what is wrong
	})
	if err != nil || dir == 0 {
		return err
	}
	s.removals.register(checked, dir)
	var check namespace.RemoveCheck
	for done := false; !done && err == nil; {
		err = s.engine.View(ctx, c, func(tx *engine.Tx) (err error) {
			done, err = tx.Tree.CanRemoveAll(c, dir, &check, removeSlice)
			return err
		})
	}
	return err
}

// mutate is the shape of all changes of the tree that open no file.
func (s *desk) mutate(ctx context.Context, r request, grows bool, plan func(*engine.Tx, *namespace.Call) (namespace.Op, error)) (*pb.MutateResponse, error) {
	c, id, err := s.asked(ctx, r)
	if err != nil {
		return nil, err
	}
	out, err := s.engine.DoAnswer(ctx, engine.Request{Call: c, ID: id, Grows: grows, Plan: func(tx *engine.Tx) (namespace.Op, error) { return plan(tx, c) }})
	if err != nil {
		return nil, err
	}
	resp := &pb.MutateResponse{Txid: out.TxID, Hidden: out.Flag, Trashed: out.Op == namespace.TrashKind}
	if out.Inode != 0 {
		resp.Attr = &pb.Attr{Inode: uint64(out.Inode), Length: out.Length}
	}
	return resp, nil
}
