package namenode

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode/engine"
	"github.com/leasefs/leasefs/namenode/namespace"
	"github.com/leasefs/leasefs/namenode/namespace/calls"
	"github.com/leasefs/leasefs/namenode/touched"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// Limits of a transaction.
const (
	maxCompares = 64
	maxTxnOps   = 64 // and as many attributes of what they make
)

// Transact does several operations together or not at all, if all compares hold.
func (s *writers) Transact(ctx context.Context, r *pb.TransactRequest) (*pb.MutateResponse, error) {
	size, grows, err := checkTransact(r)
	if err != nil {
		return nil, err
	}
	h, err := s.holder(r.GetCaller())
	if err != nil {
		return nil, err
	}
	resp, err := s.mutate(ctx, r, grows, func(tx *engine.Tx, c *namespace.Call) (namespace.Op, error) {
		for i, x := range r.GetCompares() {
			if err := s.compare(tx, c, x); err != nil {
				return nil, inTxn("compare", i, x.GetPath(), err)
			}
		}
		if err := s.checkTailBudget(ctx, tx, c, c.User, size); err != nil {
			return nil, err
		}
		plans, of := s.txnPlans(tx, c, r.GetOps(), h)
		op, failed, err := namespace.PlanTxn(tx.Tree, plans...)
		if err != nil {
			return nil, inTxn("operation", of[failed], r.GetOps()[of[failed]].GetPath(), err)
		}
		return engine.OrNil(op, nil)
	})
	if err == nil {
		s.blocks.Wake() // something may be deleted
	}
	return resp, err
}

// inTxn names in an error the part of a transaction that it is about.
func inTxn(what string, i int, path string, err error) error {
	var e *fserror.Error
	if !errors.As(err, &e) {
		return err
	}
	out := *e
	out.Message = fmt.Sprintf("%s %d: %s", what, i+1, e.Message)
	return fserror.With(&out, "", path)
}

// checkTransact checks what does not depend on the tree: limits, paths, and that no two
// operations touch the same names. size is the number of bytes that files get.
func checkTransact(r *pb.TransactRequest) (size int, grows bool, err error) {
	wrong := func(format string, args ...any) error {
		return fserror.New(fserror.InvalidArgument, "", "", format, args...)
	}
	ops := r.GetOps()
	switch {
	case len(r.GetCompares()) > maxCompares:
		return 0, false, wrong("a transaction has at most %d compares, not %d", maxCompares, len(r.GetCompares()))
	case len(ops) == 0 || len(ops) > maxTxnOps:
		return 0, false, wrong("a transaction has 1 to %d operations, not %d", maxTxnOps, len(ops))
	}
	var names touched.Names
	all, attrs := 0, 0
	for i, o := range ops {
		paths := []string{o.GetPath()}
		var file *pb.TxFile
		marks := false
		switch w := o.GetOp().(type) {
		case *pb.TxOp_Create:
			file = w.Create
		case *pb.TxOp_Write:
			file = w.Write
		case *pb.TxOp_Rename:
			paths = append(paths, w.Rename.GetTo())
			grows = true
		case *pb.TxOp_SetXattr:
			all += len(w.SetXattr.GetName()) + len(w.SetXattr.GetValue())
			grows, marks = true, true
		case *pb.TxOp_Mkdir:
			grows = true
		case *pb.TxOp_Attach, *pb.TxOp_Detach, *pb.TxOp_RemoveXattr:
			marks = true
		case *pb.TxOp_Delete:
		default:
			return 0, false, wrong("operation %d is of no kind that this namenode knows", i+1)
		}
		for _, path := range paths {
			if err := names.Add(i, path, marks); err != nil {
				return 0, false, inTxn("operation", i, path, err)
			}
			all += len(path)
		}
		if file != nil {
			grows = true
			size += len(file.GetData())
			if err := checkData(file.GetData(), file.GetDataCrc32C()); err != nil {
				return 0, false, inTxn("operation", i, o.GetPath(), err)
			}
		}
		attrs += len(o.GetXattrs())
		for _, x := range o.GetXattrs() {
			all += len(x.GetName()) + len(x.GetValue())
		}
	}
	switch {
	case attrs > maxTxnOps:
		return 0, false, wrong("what a transaction makes has at most %d extended attributes, not %d", maxTxnOps, attrs)
	case size+all > SmallFile:
		return 0, false, fserror.New(fserror.TooLarge, "", "", "a transaction carries at most %d bytes of contents, names and attributes, not %d; make large files before it, under names of their own, and rename them in it", SmallFile, size+all)
	}
	return size, grows, nil
}

// compare returns nil if a compare holds, and otherwise an error of kind CompareFailed that
// says what was found.
func (s *writers) compare(tx *engine.Tx, c *namespace.Call, x *pb.TxCompare) error {
	failed := func(format string, args ...any) error {
		return fserror.New(fserror.CompareFailed, "", x.GetPath(), format, args...)
	}
	switch w := x.GetWhat().(type) {
	case nil:
		return fserror.New(fserror.InvalidArgument, "", x.GetPath(), "this namenode does not know what to compare")
	case *pb.TxCompare_Lease:
		l, ok := tx.Tree.Lease(c, namespace.LeaseID(w.Lease))
		if remaining, _, alive := s.leases.TimeToLive(w.Lease); !ok || l.Ended != 0 || !alive || remaining == 0 { // its end may take a while
			return failed("there is no lease %x: it has ended, or never was", w.Lease)
		}
		return nil
	case *pb.TxCompare_Exists:
		a, err := tx.Tree.Stat(c, namespace.At(x.GetPath()))
		switch {
		case absent(err) && w.Exists:
			return failed("there is nothing of that name")
		case err == nil && !w.Exists:
			return failed("there is something of that name, inode %d", uint64(a.ID))
		case absent(err):
			return nil
		}
		return err
	}
	a, err := tx.Tree.Stat(c, namespace.Follow(x.GetPath()))
	if absent(err) {
		return failed("there is nothing of that name")
	}
	if err != nil {
		return err
	}
	switch w := x.GetWhat().(type) {
	case *pb.TxCompare_Inode:
		if uint64(a.ID) != w.Inode {
			return failed("it is inode %d, not %d", uint64(a.ID), w.Inode)
		}
	case *pb.TxCompare_Epoch:
		switch {
		case a.Open == nil:
			return failed("it is not open for write, not under epoch %d either", w.Epoch)
		case a.Open.Epoch != w.Epoch:
			return failed("it is open for write under epoch %d, not %d", a.Open.Epoch, w.Epoch)
		}
	case *pb.TxCompare_Length:
		switch {
		case a.Type != namespace.TypeFile:
			return failed("it is no file")
		case a.Length != w.Length:
			return failed("it has %d bytes, not %d", a.Length, w.Length)
		}
	case *pb.TxCompare_Xattr:
		return s.compareXattr(tx, c, x.GetPath(), w.Xattr)
	}
	return nil
}

func (s *writers) compareXattr(tx *engine.Tx, c *namespace.Call, path string, want *pb.TxXattr) error {
	all, err := tx.Tree.Xattrs(c, namespace.Follow(path))
	if err != nil {
		return err
	}
	for _, a := range all {
		if a.Name != want.GetName() {
			continue
		}
		if !bytes.Equal(a.Value, want.GetValue()) {
			return fserror.New(fserror.CompareFailed, "", path, "its extended attribute %q has another value", a.Name) // which is no text for a log
		}
		return nil
	}
	return fserror.New(fserror.CompareFailed, "", path, "it has no extended attribute %q", want.GetName())
}

// absent reports whether an error says that there is nothing of a name.
func absent(err error) bool {
	return errors.Is(err, fserror.NotFound) || errors.Is(err, fserror.NotDirectory)
}

// txnPlans makes the plans of all operations, and says to which operation each belongs.
func (s *writers) txnPlans(tx *engine.Tx, c *namespace.Call, ops []*pb.TxOp, h namespace.Holder) (plans []func(*namespace.Tree) (namespace.Op, error), of []int) {
	add := func(i int, plan func(*namespace.Tree) (namespace.Op, error)) {
		plans, of = append(plans, plan), append(of, i)
	}
	for i, o := range ops {
		add(i, func(t *namespace.Tree) (namespace.Op, error) { return s.planOp(tx, t, c, o, h) })
		for _, x := range o.GetXattrs() {
			add(i, func(t *namespace.Tree) (namespace.Op, error) {
				switch o.GetOp().(type) {
				case *pb.TxOp_Create, *pb.TxOp_Write:
					return planMade(t, c, namespace.Follow(o.GetPath()), x)
				case *pb.TxOp_Mkdir: // it may have been there
					return planXattr(t, c, o.GetPath(), x, calls.XattrSet)
				}
				return nil, fserror.New(fserror.InvalidArgument, "", "", "only an operation that makes something can set extended attributes on it")
			})
		}
	}
	return plans, of
}

// planOp plans one operation on t, which is tx.Tree as the earlier operations leave it.
func (s *writers) planOp(tx *engine.Tx, t *namespace.Tree, c *namespace.Call, o *pb.TxOp, h namespace.Holder) (namespace.Op, error) {
	path := o.GetPath()
	switch w := o.GetOp().(type) {
	case *pb.TxOp_Create:
		return s.planFile(tx, t, c, namespace.CreateRequest{At: namespace.At(path), Holder: h}, w.Create)
	case *pb.TxOp_Write:
		return s.planFile(tx, t, c, namespace.CreateRequest{At: namespace.Follow(path), Overwrite: true, KeepMode: !w.Write.GetHasMode(), Holder: h}, w.Write)
	case *pb.TxOp_Mkdir:
		m, err := uint16(defaultDirMode), error(nil)
		c.DirLess = 0
		if w.Mkdir.GetHasMode() {
			if m, err = mode(w.Mkdir.GetMode()); err != nil {
				return nil, err
			}
		}
		return engine.OrNil(namespace.PlanMkdir(t, c, namespace.At(path), m, w.Mkdir.GetParents()))
	case *pb.TxOp_Rename:
		return engine.OrNil(namespace.PlanRename(t, c, namespace.At(path), namespace.At(w.Rename.GetTo()), w.Rename.GetOverwrite(), false))
	case *pb.TxOp_Delete:
		return engine.OrNil(namespace.PlanDelete(t, c, namespace.At(path), false, 0))
	case *pb.TxOp_Attach:
		return engine.OrNil(namespace.PlanAttach(t, c, namespace.LeaseID(w.Attach), namespace.At(path)))
	case *pb.TxOp_Detach:
		return engine.OrNil(namespace.PlanDetach(t, c, namespace.At(path)))
	case *pb.TxOp_SetXattr:
		return planXattr(t, c, path, w.SetXattr, calls.XattrSet)
	case *pb.TxOp_RemoveXattr:
		return planXattr(t, c, path, &pb.TxXattr{Name: w.RemoveXattr}, calls.XattrRemove)
	}
	return nil, fserror.New(fserror.InvalidArgument, "", "", "it is of no kind that this namenode knows")
}

func planXattr(t *namespace.Tree, c *namespace.Call, path string, x *pb.TxXattr, action calls.XattrAction) (namespace.Op, error) {
	return engine.OrNil(namespace.PlanXattr(t, c, namespace.Follow(path), x.GetName(), x.GetValue(), action))
}

// planMade plans an attribute of a file that the same record makes.
func planMade(t *namespace.Tree, c *namespace.Call, at namespace.Ref, x *pb.TxXattr) (namespace.Op, error) {
	c.Made = true
	defer func() { c.Made = false }()
	return engine.OrNil(namespace.PlanXattr(t, c, at, x.GetName(), x.GetValue(), calls.XattrSet))
}

func (s *writers) planFile(tx *engine.Tx, t *namespace.Tree, c *namespace.Call, req namespace.CreateRequest, f *pb.TxFile) (namespace.Op, error) {
	req.Close, req.Data, req.Parents, req.Lease = true, f.GetData(), f.GetParents(), namespace.LeaseID(f.GetLease())
	var err error
	if req.Mode, req.DirMode, err = modes(c, f.GetHasMode(), f.GetMode(), 0, f.Umask); err != nil {
		return nil, err
	}
	op, err := namespace.PlanCreate(t, c, req)
	if err != nil {
		return nil, err
	}
	if op.Replace != 0 {
		if err := s.mayReplace(tx, false, op.Replace, req.Holder); err != nil {
			return nil, err
		}
	}
	return op, nil
}
