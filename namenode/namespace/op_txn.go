package namespace

import (
	"cmp"
	"fmt"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode/namespace/codec"
	"github.com/leasefs/leasefs/namenode/namespace/quota"
	"github.com/leasefs/leasefs/namenode/namespace/tables"
)

// MaxTxn is the largest number of records in one OpTxn.
const MaxTxn = 128

// OpTxn is several records that take effect together or not at all, in their order.
// Parts can be an OpMkdir, OpSymlink, OpCreate, OpRename, OpDelete, OpAttach, OpDetach,
// OpXattr and OpSetACL. An OpCreate that is not Closed can only be the first part, and only
// have OpXattr after it. Result.Inode and Length are the last part's.
type OpTxn struct {
	sparing

	Parts []Op

	tried *Tree        // the tree that all parts are known to fit,
	at    uint64       // while its last txid is at
	adds  quota.Growth // of a planned one
}

// part reports whether a record can be a part of an OpTxn whose first part is first.
func part(op, first Op) bool {
	opens := func(op Op) bool { c, ok := op.(*OpCreate); return ok && !c.Closed }
	switch op.(type) {
	case *OpXattr:
		return true
	case *OpCreate, *OpMkdir, *OpSymlink, *OpRename, *OpDelete, *OpAttach, *OpDetach, *OpSetACL:
		return op == first || !opens(first) && !opens(op)
	}
	return false
}

// Parts returns the records that a record consists of: for most kinds, only itself.
func Parts(op Op) []Op {
	switch t := op.(type) {
	case *OpTxn:
		return t.Parts
	case *OpTrash:
		if t.Do == TrashKeep {
			return Parts(t.Op)
		}
	}
	return []Op{op}
}

func (op *OpTxn) fields(c coder) {
	codec.List(c.Coder, &op.Parts, 2, func(p *Op) {
		c.op(p, op)
	})
}

// PlanTxn plans several changes, each on the tree as the earlier ones leave it, and makes
// one record of them. A plan that returns a nil Op without an error changes nothing; if
// no plan changes anything, the record is nil, too. If a plan fails, failed is its number,
// from 0 on.
func PlanTxn(t *Tree, plans ...func(*Tree) (Op, error)) (op *OpTxn, failed int, err error) {
	trial := applier{trial(t), stamp{TxID: t.txid + 1, Time: t.time, reigned: t.reigned}, keeper{}}
	op = new(OpTxn)
	for i, plan := range plans {
		p, err := plan(trial.Tree)
		if err != nil {
			return nil, i, err
		}
		if p == nil {
			continue
		}
		if op.Parts = append(op.Parts, p); !part(p, op.Parts[0]) {
			return nil, i, fserror.New(fserror.Internal, "txn", "", "a record of kind %s cannot be a part of another", opName(p))
		}
		grows(trial.Tree, p, &op.adds)
		if _, err := p.apply(trial); err != nil {
			return nil, i, fserror.Wrap(fserror.Internal, "txn", "", err)
		}
	}
	if len(op.Parts) == 0 {
		return nil, 0, nil
	}
	op.tried, op.at = t, t.txid
	return op, 0, nil
}

// PlanMade makes one record of a planned create and of the extended attributes of the new file,
// as PlanTxn would; it needs no copy of the tree. Errors: as of PlanXattr.
func PlanMade(t *Tree, c *Call, r CreateRequest, file *OpCreate) (*OpTxn, error) {
	v, op := view{t, c, "setxattr"}, &OpTxn{Parts: []Op{file}, tried: t, at: t.txid}
	for _, x := range r.Xattrs {
		if x.Name == tables.TrashXattr {
			return nil, mayTrash(v, &inode{Type: TypeFile}, "", tables.XattrSet, r.At.Path)
		}
		op.Parts = append(op.Parts, &OpXattr{Inode: file.makes(t), Name: x.Name, Value: x.Value})
	}
	user, _ := t.UserNames.Number(file.User)
	memory, err := op.made(t)
	if err = cmp.Or(err, xattrRoom(v, user, memory, "")); err != nil {
		return nil, fserror.With(err, v.op, r.At.Path)
	}
	grows(t, file, &op.adds)
	return op, nil
}

// made returns how much memory the extended attributes take that a record gives the file that it
// makes, and an error if they do not fit, or if the record does anything else.
func (op *OpTxn) made(t *Tree) (memory int64, err error) {
	file, is := op.Parts[0].(*OpCreate)
	its := tables.NewXattrs()
	for _, p := range op.Parts[1:] {
		x, sets := p.(*OpXattr)
		if is = is && sets && !x.Remove && x.Inode == file.makes(t); !is {
			break
		}
		set := tables.Xattr{Inode: x.Inode, Name: x.Name, Value: string(x.Value)}
		if _, err := its.Plan(set, tables.XattrSet); err != nil {
			return 0, err
		}
		memory += its.Put(set)
	}
	if !is {
		return 0, misfit("it does not only make a file")
	}
	return memory, nil
}

// trial returns a copy of the tree on which records can be tried out. A call that looks at
// it has to wait for what is not durable in the tree. It is valid until the tree changes.
func trial(t *Tree) *Tree {
	c := copied(t)
	c.tracker = t.tracker.Still()
	c.Uses = append(tables.OwnerUses(nil), t.Uses...)
	return &c
}

// try applies all parts to a copy, unless they are planned or seen to fit: what fits there fits the tree.
func (op *OpTxn) try(t applier) error {
	if len(op.Parts) == 0 || len(op.Parts) > MaxTxn {
		return misfitf("it has %d parts; 1 to %d can be", len(op.Parts), MaxTxn)
	}
	tried := op.tried == t.Tree && op.at == t.txid && t.keep == keeper{}
	if op.tried = nil; tried {
		return nil
	}
	if _, err := op.made(t.Tree); err == nil { // the first part is refused, or all fit
		return nil
	}
	trial := applier{trial(t.Tree), t.now, t.keep}
	for i, p := range op.Parts {
		if !part(p, op.Parts[0]) {
			return misfitf("part %d cannot be of kind %s", i, opName(p))
		}
		if _, err := p.apply(trial); err != nil {
			return misfitf("part %d (%s): %v", i, opName(p), err)
		}
	}
	return nil
}

func (op *OpTxn) apply(t applier) (Result, error) {
	if err := op.try(t); err != nil {
		return Result{}, err
	}
	all, n := Result{}, news{t: t.Tree}
	for i, p := range op.Parts {
		if n.list = nil; t.events {
			n = p.events(n)
		}
		r, err := p.apply(t)
		switch {
		case err != nil && i == 0: // nothing was changed
			return Result{}, err
		case err != nil: // it fitted a copy of this tree
			panic(fmt.Sprintf("part %d (%s) of a record, whose parts before are applied: %v", i, opName(p), err))
		}
		all.Opened, r.Opened = cmp.Or(all.Opened, r.Opened), nil // whose news come last
		all.Inode, all.Length = r.Inode, r.Length
		all.Closed = append(all.Closed, r.Closed...)
		if t.events {
			all.Events = append(all.Events, n.of(&r)...)
		}
	}
	return all, nil
}

func (op *OpTxn) grows(g growing) { *g.Sum = op.adds }

// affects asks each part on the tree as it is before all of them. That is enough for a part
// about something that an earlier part makes or moves: it names inodes, and whatever else it
// changes is among what the earlier part affects.
func (op *OpTxn) affects(a affected) affected {
	for _, p := range op.Parts {
		a = p.affects(a)
	}
	return a
}

// events are collected by apply, part by part.
func (op *OpTxn) events(n news) news { return n }
