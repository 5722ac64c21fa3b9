package namespace

import (
	"math"

	"github.com/leasefs/leasefs/internal/fserror"
)

// OpConcat moves the blocks (and the last one's tail) of the sources, in
// order, to the end of the target, and deletes the sources. All but the last
// non-empty one have no tail.
type OpConcat struct {
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
	o := &OpConcat{Target: n.ID}
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
		seen[s.ID] = true
		o.Sources = append(o.Sources, s.ID)
	}
	return o, nil
}

// ConcatNeedsSeal returns those files of a concat whose tails would come before
// other bytes: they must be made blocks first (PlanMerge).
func ConcatNeedsSeal(t *Tree, op *OpConcat) []InodeID {
	files, err := t.concatFiles(op)
	if err != nil {
		return nil
	}
	return tailsToSeal(files)
}

// concatFiles returns the target and the sources of a concat, checked.
func (t *Tree) concatFiles(op *OpConcat) (files []*inode, err error) {
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

// tailsToSeal returns the files, of those to be joined in this order, whose
// tails would come before other bytes.
func tailsToSeal(files []*inode) (ids []InodeID) {
	last := len(files) - 1
	for last > 0 && files[last].Length() == 0 {
		last--
	}
	for _, n := range files[:last] {
		if len(n.Tail()) > 0 {
			ids = append(ids, n.ID)
		}
	}
	return ids
}

func (op *OpConcat) apply(t applier) (Result, error) {
	files, err := t.concatFiles(op)
	if err != nil {
		return Result{}, err
	}
	if ids := tailsToSeal(files); len(ids) > 0 {
		return Result{}, misfitf("file %d has a tail, which would come before other bytes", ids[0])
	}
	length := int64(0)
	for _, f := range files {
		if length > math.MaxInt64-f.Length() {
			return Result{}, misfit("the whole would be too long")
		}
		length += f.Length()
	}
	n := files[0].Edit()
	n.MTime = t.now.Time
	x := n.OwnExt()
	for _, s := range files[1:] {
		x.SetContent(n.Content().Join(s.Content()))
		// The source goes without its blocks, which have a new owner.
		if s.Ext != nil {
			bare := s.Edit()
			y := bare.OwnExt()
			y.Blocks, y.Tail, y.N = nil, nil, 0
			bare.DropEmptyExt()
			t.put(bare)
			s = bare
		}
		t.unlink(s)
	}
	t.store(n)
	return fileResult(n), nil
}

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
