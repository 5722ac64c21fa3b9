package snapshots

import (
	"fmt"
	"strings"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode/namespace/codec"
	"github.com/leasefs/leasefs/namenode/namespace/content"
	"github.com/leasefs/leasefs/namenode/namespace/tables"
)

// Kind is the kind of records about snapshots.
const Kind = 46

// Action is what a record does with snapshots.
type Action uint8

// The actions.
const (
	Allow    Action = iota + 1 // a directory may have snapshots
	Disallow                   // it may not any longer
	Make                       // a snapshot is made
	Rename                     // it gets another name
	Delete                     // it goes
	Reclaim                    // of the blocks of deleted ones, which are not needed are garbage
)

// Change is a record about snapshots.
type Change struct {
	Do    Action
	Dir   tables.InodeID // of Allow, Disallow and Make
	ID    ID             // of Rename and Delete
	Name  string         // of Make and Rename
	Limit uint32         // of Reclaim: how many blocks are looked at, at most
}

// Code is the layout of a change.
func (c *Change) Code(to *codec.Coder) {
	to.U8((*uint8)(&c.Do))
	switch c.Do {
	case Allow, Disallow:
		to.U64((*uint64)(&c.Dir))
	case Make:
		to.U64((*uint64)(&c.Dir))
		to.Text(&c.Name)
	case Rename:
		to.U64((*uint64)(&c.ID))
		to.Text(&c.Name)
	case Delete:
		to.U64((*uint64)(&c.ID))
	case Reclaim:
		to.U32(&c.Limit)
	default:
		to.Fail("it does nothing known with snapshots")
	}
}

// Shown is the directory of which the change alters what stat shows; 0: none.
func (c *Change) Shown() tables.InodeID {
	if c.Do == Allow || c.Do == Disallow {
		return c.Dir
	}
	return 0
}

// Touches returns the inodes of which callers see something else after a change, s being what
// Apply returned: its directory, the list of the snapshots of that, and the list of all, with which
// goes how much each holds.
func (c *Change) Touches(s *Snapshot) (ids []tables.InodeID) {
	if c.Do == Reclaim {
		return []tables.InodeID{ListID.Number(0)}
	}
	if dir := c.Shown(); dir != 0 {
		ids = append(ids, dir)
	}
	return append(ids, ListID.Number(s.Dir), ListID.Number(0))
}

// Where is what of a change's directory the tree knows.
type Where struct {
	Dir    bool // it is a directory of the tree
	Taken  bool // it has an entry DirName
	Leased bool // it is attached to a granted lease, or one above it is
}

// May says why a change cannot be made.
func (t *Table) May(c *Change, at Where) error {
	s := t.Get(c.ID)
	switch {
	case c.Do <= Make && !at.Dir:
		return fmt.Errorf("inode %d is no directory of the tree", c.Dir)
	case (c.Do == Rename || c.Do == Delete) && s == nil:
		return fmt.Errorf("there is no snapshot %d", uint64(c.ID))
	}
	switch c.Do {
	case Allow:
		switch {
		case at.Taken:
			return fserror.New(fserror.Exists, "", "", "the directory has an entry %s, which would be hidden; rename that first", DirName)
		case t.Allowed() >= MaxAllowed:
			return fserror.New(fserror.NoSpace, "", "", "%d directories are allowed to have snapshots, and no more can be", MaxAllowed)
		}
	case Disallow:
		if n := t.Count(c.Dir); n > 0 {
			return fserror.New(fserror.NotEmpty, "", "", "the directory has %d snapshots; delete them first", n).Because(fserror.ReasonHasSnapshots)
		}
	case Make:
		switch {
		case !t.IsAllowed(c.Dir):
			return fmt.Errorf("directory %d is not allowed to have snapshots", c.Dir)
		case at.Leased:
			return fserror.New(fserror.InvalidArgument, "", "", "the directory, or one above it, is attached to a granted lease, whose end deletes it; so it can have no snapshots")
		}
		return t.Room(c.Dir, c.Name)
	case Rename:
		return t.free(s.Dir, c.Name)
	}
	return nil
}

// Apply makes a change that May be made, at a time, in Unix milliseconds. next is the number of
// the next inode, in the tree, of which a snapshot becomes a clone; free is as in Reclaim. It
// returns the snapshot, or what stands for one of the directory.
func (t *Table) Apply(c *Change, time int64, next tables.InodeID, in *In, free func(content.Block)) *Snapshot {
	s := t.Get(c.ID)
	switch c.Do {
	case Allow, Disallow:
		t.Allow(c.Dir, c.Do == Allow)
		return &Snapshot{Dir: c.Dir}
	case Make:
		return t.Make(c.Dir, strings.Clone(c.Name), time, next, in.Clone())
	case Rename:
		t.Rename(s, strings.Clone(c.Name))
	case Delete:
		t.Delete(s)
	case Reclaim:
		t.Reclaim(int(c.Limit), &in.Inodes, free)
	}
	return s
}
