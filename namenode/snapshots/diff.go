package snapshots

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode/engine"
	"github.com/leasefs/leasefs/namenode/namespace"
	"github.com/leasefs/leasefs/namenode/namespace/calls"
	"github.com/leasefs/leasefs/namenode/namespace/snapshots"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// DiffSnapshots tells of a page of what differs: see namespace.Tree.SnapshotDiff. What is in a
// directory that the caller may not list, then or now, is left out, and the directory named; what was moved into one is told
// as deleted, what was moved out of one as created.
func (s *Service) DiffSnapshots(ctx context.Context, r *pb.DiffSnapshotsRequest) (*pb.DiffSnapshotsResponse, error) {
	c, err := s.Caller(ctx, r.GetCaller())
	if err != nil {
		return nil, err
	}
	d := differ{ctx: ctx, from: r.GetFrom(), to: r.GetTo(), c: c, at: calls.RefOf(r.GetAt())}
	if d.from == "" && d.to == "" {
		return nil, fserror.New(fserror.InvalidArgument, "", r.GetAt().GetPath(), "name one snapshot, or two, to be compared")
	}
	from, err := parse(r.GetCursor())
	if err != nil {
		return nil, err
	}
	if err := s.Engine.View(ctx, c, func(tx *engine.Tx) error { // for who may not, nothing is cloned
		_, _, err := tx.Tree.SnapshotDiff(c, calls.RefOf(r.GetAt()), d.from, d.to, 1<<snapshots.Bits-1, 1) // beyond all that could differ
		return err
	}); err != nil {
		return nil, err
	}
	end, err := s.Turn(ctx, c)
	if err != nil {
		return nil, err
	}
	defer end()
	t, err := s.Engine.Snapshot(ctx) // it is durable, and looking at much of it holds up nobody
	if err != nil {
		return nil, err
	}
	c.ResetAttempt()
	list, next, err := t.SnapshotDiff(c, d.at, d.from, d.to, from.next, page(r.GetLimit()))
	if err != nil {
		return nil, err
	}
	if err := d.begin(t); err != nil {
		return nil, err
	}
	to := d.cursor(next)
	if r.GetCursor() != "" && !from.continues(to) {
		return nil, fserror.New(fserror.NotFound, "", r.GetAt().GetPath(), "the directory, or a snapshot that is compared, is another one than when this began; compare again")
	}
	resp := new(pb.DiffSnapshotsResponse)
	resp.Changes, to.next, err = d.page(list, next)
	if resp.LeftOut = d.leftOut; to.next != 0 {
		resp.NextCursor = to.String()
	}
	return resp, err
}

// cursor is where a page ends, and what is compared: a name can be another's on the next page.
type cursor struct {
	next, dir namespace.InodeID
	old, new  snapshots.ID
}

const cursorText = "%d.%d.%d.%d"

func (c cursor) String() string {
	return fmt.Sprintf(cursorText, uint64(c.next), uint64(c.dir), uint64(c.old), uint64(c.new))
}

// parse reads a cursor; one that is empty is that of the first page.
func parse(text string) (c cursor, err error) {
	if text == "" {
		return cursor{}, nil
	}
	n, err := fmt.Sscanf(text, cursorText, &c.next, &c.dir, &c.old, &c.new)
	if err != nil || n != 4 || c.String() != text || c.next >= 1<<snapshots.Bits {
		return cursor{}, fserror.New(fserror.InvalidArgument, "", "", "%q is no cursor of this call", text)
	}
	return c, nil
}

// continues reports whether to is of a page of the same.
func (c cursor) continues(to cursor) bool {
	to.next = c.next
	return c == to
}

// differ describes the changes from one snapshot to another. Either can be the directory as it is
// now (an empty name).
type differ struct {
	ctx      context.Context //nolint:containedctx // one call's
	from, to string
	c        *namespace.Call
	at       namespace.Ref

	tree     *namespace.Tree
	old, new *snapshots.Snapshot // from, to; nil: as it is
	dir      namespace.InodeID
	lists    map[namespace.InodeID]bool
	entered  map[namespace.InodeID]bool // directories of which it is known whether their entries make them modified
	named    map[namespace.InodeID]bool // directories that are in leftOut
	leftOut  []string                   // paths of directories in which something was left out
	stayed   map[namespace.InodeID]bool // directories by whether they, and all that were above them, stayed
}

func (d *differ) begin(t *namespace.Tree) error {
	dir, err := t.Stat(d.c, d.at)
	d.tree, d.dir = t, dir.ID
	d.lists, d.named = map[namespace.InodeID]bool{}, map[namespace.InodeID]bool{}
	d.entered, d.stayed = map[namespace.InodeID]bool{}, map[namespace.InodeID]bool{dir.ID: true}
	d.old, d.new = t.SnapshotTable().Named(dir.ID, d.from), t.SnapshotTable().Named(dir.ID, d.to)
	return err
}

func (d *differ) cursor(next namespace.InodeID) cursor {
	c := cursor{next: next, dir: d.dir}
	if d.old != nil {
		c.old = d.old.ID
	}
	if d.new != nil {
		c.new = d.new.ID
	}
	return c
}

// inode is a number without that of a snapshot.
func inode(number namespace.InodeID) namespace.InodeID {
	_, id := snapshots.Split(number)
	return id
}

// number is that of an inode in a snapshot, or as it is.
func number(s *snapshots.Snapshot, id namespace.InodeID) namespace.InodeID {
	if s == nil {
		return id
	}
	return s.ID.Number(id)
}

// told is a change, and the directories that are modified by it: of their entries. They are on both sides.
type told struct {
	*pb.SnapshotChange
	dirs []namespace.InodeID
}

// page words what changed, in the order of inodes, with the directories that are modified by nothing
// but that. A nil change is one that the caller may not see. The next page begins at next, or at what
// is too much for this one.
func (d *differ) page(list []snapshots.Diff, next namespace.InodeID) (out []*pb.SnapshotChange, from namespace.InodeID, err error) {
	size, left := 0, 0
	for i := range list {
		if d.ctx.Err() != nil {
			return nil, 0, d.ctx.Err()
		}
		if size >= calls.PageBytes {
			return out, list[i].Inode, nil
		}
		before := len(out)
		change := d.change(&list[i])
		if change.SnapshotChange == nil {
			for ; left < len(d.leftOut); left++ {
				size += len(d.leftOut[left])
			}
			continue
		}
		for _, dir := range change.dirs {
			if m := d.modified(dir, list[i].Inode); m != nil {
				out = append(out, m)
			}
		}
		out = append(out, change.SnapshotChange)
		for _, one := range out[before:] {
			size += proto.Size(one)
		}
	}
	return out, next, d.ctx.Err()
}

// change is one change; none if the caller may not see it.
func (d *differ) change(one *snapshots.Diff) told {
	out := &pb.SnapshotChange{Of: pb.FileType(one.Type), Path: one.From, Inode: uint64(one.Inode)}
	was, wasSeen := d.parent(d.old, one)
	is, isSeen := d.parent(d.new, one)
	kind := one.Kind
	if kind == snapshots.Renamed && wasSeen != isSeen { // into what the caller may not see, or out of it
		if kind = snapshots.Deleted; isSeen {
			kind = snapshots.Created
		}
	}
	gone := kind != snapshots.Created && one.Inode != d.dir && d.wentWith(d.old, d.new, was)
	came := kind != snapshots.Deleted && one.Inode != d.dir && d.wentWith(d.new, d.old, is)
	switch {
	case kind == snapshots.Created && came, kind == snapshots.Deleted && gone:
		return told{}
	case kind != snapshots.Created && !wasSeen:
		d.leaveOut(d.old, inode(was))
		return told{}
	case kind != snapshots.Deleted && !isSeen:
		d.leaveOut(d.new, inode(is))
		return told{}
	}
	var dirs []namespace.InodeID
	switch kind {
	case snapshots.Created:
		out.Type, out.Path, was = pb.SnapshotChangeType_SNAPSHOT_CHANGE_TYPE_CREATED, one.To, is
	case snapshots.Deleted:
		out.Type, dirs = pb.SnapshotChangeType_SNAPSHOT_CHANGE_TYPE_DELETED, append(dirs, inode(was))
	case snapshots.Renamed:
		out.Type, out.Changed, out.NewPath = pb.SnapshotChangeType_SNAPSHOT_CHANGE_TYPE_RENAMED, one.Modified, one.To
		if out.NewParent = uint64(inode(is)); !gone {
			dirs = append(dirs, inode(was))
		}
	default:
		out.Type = pb.SnapshotChangeType_SNAPSHOT_CHANGE_TYPE_MODIFIED
	}
	if (kind == snapshots.Created || kind == snapshots.Renamed) && !came {
		if into := d.where(inode(is)); d.stays(inode(is)) {
			out.Into = &into
		}
		if !slices.Contains(dirs, inode(is)) {
			dirs = append(dirs, inode(is))
		}
	}
	out.Parent = uint64(inode(was))
	out.Gone = kind != snapshots.Created && one.Inode != d.dir && !d.stays(inode(was))
	out.Content = one.Modified && one.Type == namespace.TypeFile && d.content(one.Inode)
	return told{out, dirs}
}

// leaveOut notes that something in a directory is not told of, under the name of the topmost directory
// above it that the caller may not list.
func (d *differ) leaveOut(s *snapshots.Snapshot, dir namespace.InodeID) {
	for dir != d.dir {
		a, err := d.tree.Stat(nil, namespace.Inode(number(s, dir)))
		if err != nil || d.mayList(s, a.Parent) {
			break
		}
		dir = inode(a.Parent)
	}
	if !d.named[dir] {
		d.named[dir] = true
		path, _ := d.below(s, dir)
		d.leftOut = append(d.leftOut, path)
	}
}

// modified tells of a directory that is modified by its entries alone: with the first of these that
// is told of, and so once, whatever the pages.
func (d *differ) modified(dir, by namespace.InodeID) *pb.SnapshotChange {
	if d.entered[dir] {
		return nil // what is told now is not the first
	}
	d.entered[dir] = true
	itself, _, err := d.tree.SnapshotDiff(d.c, d.at, d.from, d.to, dir, 1)
	if err == nil && len(itself) == 1 && itself[0].Inode == dir && itself[0].Modified && d.change(&itself[0]).SnapshotChange != nil {
		return nil
	}
	if d.anyEarlier(d.old, d.new, dir, by) || d.anyEarlier(d.new, d.old, dir, by) {
		return nil
	}
	a, err := d.tree.Stat(nil, namespace.Inode(number(d.old, dir)))
	if err != nil {
		return nil // it is on both sides
	}
	return &pb.SnapshotChange{
		Type: pb.SnapshotChangeType_SNAPSHOT_CHANGE_TYPE_MODIFIED, Of: pb.FileType(a.Type), Path: d.where(dir),
		Inode: uint64(dir), Parent: uint64(inode(a.Parent)), Gone: !d.stays(dir),
	}
}

// anyEarlier reports whether something that a directory has on one side, and that the other side has
// elsewhere or not at all, has a lesser number than by and is told of.
func (d *differ) anyEarlier(side, other *snapshots.Snapshot, dir, by namespace.InodeID) bool {
	for after, more := "", true; more && d.ctx.Err() == nil; {
		_, list, next, err := d.tree.List(nil, namespace.Inode(number(side, dir)), after, maxPage)
		if err != nil {
			return false
		}
		for _, a := range list {
			id := inode(a.ID)
			if id >= by {
				continue
			}
			one := snapshots.Diff{Kind: snapshots.Renamed, Inode: id, Type: a.Type}
			b, err := d.tree.Stat(nil, namespace.Inode(number(other, id)))
			if _, is := d.below(other, id); err != nil || !is {
				if one.Kind = snapshots.Deleted; side == d.new {
					one.Kind = snapshots.Created
				}
			} else if inode(b.Parent) == dir && b.Name == a.Name {
				continue
			}
			if t := d.change(&one); t.SnapshotChange != nil && slices.Contains(t.dirs, dir) {
				return true
			}
		}
		after, more = next, next != ""
	}
	return false
}

// stays reports whether a directory, and all that were above it, are still there.
func (d *differ) stays(dir namespace.InodeID) bool {
	yes, known := d.stayed[dir]
	if !known {
		at := number(d.old, dir)
		a, err := d.tree.Stat(nil, namespace.Inode(at))
		yes = err == nil && !d.wentWith(d.old, d.new, at) && d.stays(inode(a.Parent))
		d.stayed[dir] = yes
	}
	return yes
}

// below is the path of an inode on one side, relative to the directory, and whether it is there.
func (d *differ) below(s *snapshots.Snapshot, id namespace.InodeID) (string, bool) {
	path, _ := d.tree.Path(number(s, id))
	top, _ := d.tree.Path(number(s, d.dir))
	if id == d.dir || path == "" {
		return "", path != ""
	}
	return strings.CutPrefix(path, strings.TrimSuffix(top, "/")+"/")
}

// where is the path of a directory that is on both sides: where it was, if the caller may see that.
func (d *differ) where(dir namespace.InodeID) string {
	side := d.old
	if _, seen := d.parent(side, &snapshots.Diff{Inode: dir}); !seen {
		side = d.new
	}
	path, _ := d.below(side, dir)
	return path
}

// parent is the directory that has an inode in a snapshot, or as it is, and whether the caller may
// see that: list it, and all above it up to the directory of the snapshots.
func (d *differ) parent(s *snapshots.Snapshot, one *snapshots.Diff) (dir namespace.InodeID, seen bool) {
	a, err := d.tree.Stat(nil, namespace.Inode(number(s, one.Inode)))
	return a.Parent, err == nil && (one.Inode == d.dir || d.mayList(s, a.Parent))
}

// wentWith reports whether a directory of one side is not on the other, or is told to have come or gone
// with a directory that it is, or that is above it: that one was renamed, and is not seen on the other side.
func (d *differ) wentWith(side, other *snapshots.Snapshot, dir namespace.InodeID) bool {
	if _, is := d.below(other, inode(dir)); !is {
		return true
	}
	for {
		id := inode(dir)
		a, aerr := d.tree.Stat(nil, namespace.Inode(dir))
		b, berr := d.tree.Stat(nil, namespace.Inode(number(other, id)))
		if id == d.dir || aerr != nil || berr != nil || d.mayList(other, b.Parent) {
			return false
		}
		if a.Parent != number(side, inode(b.Parent)) || a.Name != b.Name {
			return true
		}
		dir = a.Parent
	}
}

func (d *differ) mayList(s *snapshots.Snapshot, dir namespace.InodeID) bool {
	may, known := d.lists[dir]
	if !known {
		if _, _, _, err := d.tree.List(d.c, namespace.Inode(dir), "", 1); err == nil {
			a, err := d.tree.Stat(nil, namespace.Inode(dir))
			may = err == nil && (dir == number(s, d.dir) || d.mayList(s, a.Parent))
		}
		d.lists[dir] = may
	}
	return may
}

// content reports whether a file has other bytes, as far as blocks and tails tell.
func (d *differ) content(id namespace.InodeID) bool {
	a, aerr := d.tree.File(nil, namespace.Inode(number(d.old, id)))
	b, berr := d.tree.File(nil, namespace.Inode(number(d.new, id)))
	return aerr != nil || berr != nil || !slices.Equal(a.Blocks, b.Blocks) || !bytes.Equal(a.Tail, b.Tail)
}
