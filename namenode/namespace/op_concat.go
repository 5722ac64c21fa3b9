package namespace

import (
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode/namespace/node"
	"github.com/leasefs/leasefs/namenode/namespace/snapshots"
)

// OpConcat moves the blocks (and the last one's tail) of the sources, in
// order, to the end of the target, and deletes the sources. All but the last
// non-empty one have no tail.
type OpConcat struct {
	sparing

	Target  InodeID
	Sources []InodeID
}

func (op *OpConcat) fields(c coder) {
	c.inode(&op.Target)
	c.inodes(&op.Sources)
}

// PlanConcat checks the joining of closed files: the bytes of the sources, 1 to
// MaxConcat, come after those of the target, in order, and the sources are
// deleted. A link as source is refused. It takes
// permission to write the target, to read and write the sources and to remove
// them. Errors: NotFound, IsDirectory, Permission, Held with the holder,
// InvalidArgument (too few, too many, or one twice). Tails that ConcatNeedsSeal
// lists must become blocks before the record fits.
func PlanConcat(t *Tree, c *Call, target Ref, sources []Ref) (*OpConcat, error) {
	v := view{t, c, "concat"}
	switch {
	case len(sources) == 0:
		return nil, v.errorf(fserror.InvalidArgument, target.Path, "no sources given")
	case len(sources) > MaxConcat:
		return nil, v.errorf(fserror.InvalidArgument, target.Path, "%d sources are over the limit of %d", len(sources), MaxConcat)
	}
	n, path, err := v.findWritable(target)
	if err != nil {
		return nil, err
	}
	if n.Open() != nil {
		return nil, held(v.op, path, n)
	}
	o, sharing := &OpConcat{Target: n.ID}, t.snaps.Sharing()
	seen := map[InodeID]bool{n.ID: true}
	for _, r := range sources {
		at, err := v.find(r)
		if err != nil {
			return nil, err
		}
		s, path := at.node, at.path
		switch {
		case s.Type == TypeDir:
			return nil, isDirectory(v.op, path)
		case s.Type == TypeSymlink:
			return nil, v.errorf(fserror.InvalidArgument, path, "it is a symbolic link; name the file itself")
		case seen[s.ID]:
			return nil, v.errorf(fserror.InvalidArgument, path, "the file is named twice")
		}
		if err := v.require(s, mayRead|mayWrite, path); err != nil {
			return nil, err
		}
		if err := v.requireRemove(at.dir, s, path); err != nil {
			return nil, err
		}
		if s.Open() != nil {
			return nil, held(v.op, path, s)
		}
		if err := shared(v, sharing(s)); err != nil {
			return nil, fserror.With(err, v.op, path)
		}
		seen[s.ID] = true
		o.Sources = append(o.Sources, s.ID)
	}
	return o, nil
}

// ConcatNeedsSeal returns those files of a concat whose tails would come before
// other bytes: they must be made blocks first (PlanMerge).
func ConcatNeedsSeal(t *Tree, op *OpConcat) []InodeID {
	files, _ := concatFiles(t, op) // none: the record does not fit
	ids, _ := node.Joined(files)
	return ids
}

// concatFiles returns the target and the sources of a concat, checked.
func concatFiles(t *Tree, op *OpConcat) (files []*inode, err error) {
	seen := make(map[InodeID]bool, len(op.Sources)+1)
	for _, id := range append([]InodeID{op.Target}, op.Sources...) {
		n, err := t.file(id)
		switch {
		case err != nil:
			return nil, err
		case n.Open() != nil:
			return nil, misfitf("file %d is open", id)
		case seen[id]:
			return nil, misfitf("file %d comes twice", id)
		case !t.reachable(n, nil):
			return nil, misfitf("file %d is deleted", id)
		}
		seen[id] = true
		files = append(files, n)
	}
	if len(files) == 1 {
		return nil, misfit("it has no sources")
	}
	return files, nil
}

// shared returns an error if a snapshot, unless it is nil, has blocks that a file has, too: they
// cannot become another file's.
func shared(v view, s *snapshots.Snapshot) error {
	if s == nil {
		return nil
	}
	path, _ := v.Path(s.Number())
	if v.requireSearch(v.get(s.Dir), path) != nil {
		path = "of another directory"
	}
	return v.errorf(fserror.Unsupported, "", "snapshot %s holds its blocks, so it cannot be concatenated; copy it instead", path)
}

func (op *OpConcat) apply(t applier) (Result, error) {
	files, err := concatFiles(t.Tree, op)
	if err != nil {
		return Result{}, err
	}
	switch ids, length := node.Joined(files); {
	case len(ids) > 0:
		return Result{}, misfitf("file %d has a tail, which would come before other bytes", ids[0])
	case length < 0:
		return Result{}, misfit("the whole would be too long")
	}
	sharing := t.snaps.Sharing()
	for _, s := range files[1:] {
		if err := shared(view{Tree: t.Tree}, sharing(s)); err != nil {
			return Result{}, err
		}
	}
	n := files[0].Edit()
	n.MTime = t.now.Time
	x := n.OwnExt()
	for _, s := range files[1:] {
		x.SetContent(n.Content().Join(s.Content()))
		// The source goes without its blocks, which have a new owner.
		if s.Ext != nil {
			s = s.Bare()
			t.put(s)
		}
		t.unlink(s)
	}
	t.store(n)
	return fileResult(n), nil
}

func (op *OpConcat) grows(g growing) { g.Joins(op.Target, op.Sources) }

func (op *OpConcat) affects(a affected) affected { return a.attr(op.Target).deleted(op.Sources...) }

func (op *OpConcat) events(n news) news {
	n = n.gone(op.Sources...)
	for _, id := range op.Sources {
		if s := n.t.get(id); s != nil && s.Length() > 0 {
			return n.after(EventLength, op.Target)
		}
	}
	return n
}
