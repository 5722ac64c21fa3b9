package namespace

import (
	"github.com/leasefs/leasefs/namenode/namespace/calls"
	"github.com/leasefs/leasefs/namenode/namespace/node"
)

// OpMkdir makes one directory or, for -p, a chain of them: Names[1:] each
// inside the one before.
type OpMkdir struct {
	sparing

	Parent      InodeID
	Names       []string
	Mode        uint16
	User, Group string
}

func (op *OpMkdir) fields(c coder) {
	c.inode(&op.Parent)
	c.strings(&op.Names)
	c.U16(&op.Mode)
	c.owner(&op.User, &op.Group)
}

// PlanMkdir checks the making of a directory, with parents of all that are
// missing on the way. Both results are nil if parents is set and the directory
// is there already. Errors: Exists, NotFound (a parent), NotDirectory,
// Permission (write and search on the deepest directory that exists), Loop,
// NoSpace (MaxOwners), and those of a bad path.
func PlanMkdir(t *Tree, c *Call, r Ref, mode uint16, parents bool) (*OpMkdir, error) {
	v := view{t, c, "mkdir"}
	at, err := v.resolve(r)
	if err != nil {
		return nil, err
	}
	if at.node != nil {
		n := at.node
		if parents && n.Type == TypeSymlink {
			r.How |= FollowLast
			if to, err := v.resolve(r); err == nil && to.node != nil {
				n = to.node
			}
		}
		if parents && n.Type == TypeDir {
			return nil, nil
		}
		return nil, calls.Exists(v.op, at.path, at.node.Type)
	}
	dirs, name, err := v.planNew(at, parents)
	if err != nil {
		return nil, err
	}
	_, less := c.Less()
	return &OpMkdir{
		Parent: at.dir.ID, Names: append(dirs, name), Mode: v.masked(mode, less, at),
		User: v.caller(), Group: v.groupIn(at.dir),
	}, nil
}

func (op *OpMkdir) apply(t applier) (Result, error) {
	last := len(op.Names) - 1
	if last < 0 {
		return Result{}, misfit("it has no name")
	}
	c := chain{
		parent: op.Parent, dirs: op.Names[:last], name: op.Names[last],
		// Its maker can make more in what mkdir -p makes on the way (POSIX).
		dirMode: op.Mode | 0o300,
		leaf:    &inode{Type: TypeDir, Mode: op.Mode & node.ModeBits, MTime: t.now.Time},
		user:    op.User, group: op.Group,
	}
	if _, err := t.checkChain(&c, 0); err != nil {
		return Result{}, err
	}
	return Result{Inode: t.makeChain(&c, nil).ID}, nil
}

func (op *OpMkdir) grows(g growing) {
	g.Adds(op.Parent, len(op.Names), 0)
	g.Clears(op.Parent, op.Names[0])
}

func (op *OpMkdir) affects(a affected) affected { return a.entry(op.Parent, op.Names[0]) }
func (op *OpMkdir) events(n news) news          { return n.made(op.Parent, op.Names...) }
