package namespace

import (
	"slices"
	"strings"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode/namespace/calls"
	"github.com/leasefs/leasefs/namenode/namespace/node"
)

// OpSymlink makes a symbolic link.
type OpSymlink struct {
	sparing

	Parent      InodeID
	Dirs        []string
	DirMode     uint16
	Name        string
	Target      string
	User, Group string
}

func (op *OpSymlink) fields(c coder) {
	c.inode(&op.Parent)
	c.strings(&op.Dirs)
	c.U16(&op.DirMode)
	c.Text(&op.Name)
	c.Text(&op.Target)
	c.owner(&op.User, &op.Group)
}

// PlanSymlink checks the making of a symbolic link. The target, 1 to MaxTarget
// bytes without NUL, is taken as it is. Errors: as of PlanMkdir, and
// InvalidArgument.
func PlanSymlink(t *Tree, c *Call, r Ref, target string, parents bool) (*OpSymlink, error) {
	v := view{t, c, "symlink"}
	switch {
	case target == "":
		return nil, v.errorf(fserror.InvalidArgument, r.Path, "the target of a symbolic link must not be empty")
	case len(target) > MaxTarget:
		return nil, v.errorf(fserror.NameTooLong, r.Path, "target of %d bytes is over the limit of %d", len(target), MaxTarget)
	case strings.IndexByte(target, 0) >= 0:
		return nil, v.errorf(fserror.InvalidArgument, r.Path, "the target contains a NUL byte")
	}
	at, err := v.resolve(r)
	if err != nil {
		return nil, err
	}
	if at.node != nil {
		return nil, calls.Exists(v.op, at.path, at.node.Type)
	}
	dirs, name, err := v.planNew(at, parents)
	if err != nil {
		return nil, err
	}
	return &OpSymlink{
		Parent: at.dir.ID, Dirs: dirs, DirMode: 0o755, Name: name, Target: target,
		User: v.caller(), Group: v.groupIn(at.dir),
	}, nil
}

func (op *OpSymlink) apply(t applier) (Result, error) {
	if op.Target == "" {
		return Result{}, misfit("the link has no target")
	}
	target := []byte(op.Target)
	c := chain{
		parent: op.Parent, dirs: op.Dirs, name: op.Name, dirMode: op.DirMode,
		leaf: &inode{Type: TypeSymlink, Mode: 0o777, MTime: t.now.Time, Ext: &node.Ext{Tail: target[:len(target):len(target)]}},
		user: op.User, group: op.Group,
	}
	if _, err := t.checkChain(&c, 0); err != nil {
		return Result{}, err
	}
	return Result{Inode: t.makeChain(&c, nil).ID}, nil
}

func (op *OpSymlink) grows(g growing) {
	g.Adds(op.Parent, len(op.Dirs)+1, 0)
	g.Clears(op.Parent, top(op.Dirs, op.Name))
}

func (op *OpSymlink) affects(a affected) affected { return a.newEntry(op.Parent, op.Dirs, op.Name) }
func (op *OpSymlink) events(n news) news {
	return n.made(op.Parent, append(slices.Clone(op.Dirs), op.Name)...)
}
