package namespace

// EventType is what happened to a file, directory or link.
type EventType uint8

// The types of events.
const (
	EventCreate EventType = iota + 1 // it was made
	EventClose                       // its writing ended: by its writer, by recovery, or with a directory that was deleted
	EventDelete                      // it, and all below it, was deleted or replaced
	EventRename                      // it, and all below it, moved
	EventLength                      // its length changed
	EventAttr                        // owner, group, mode or mtime were set
	EventLease                       // somebody has it open for write, or it was attached or detached
)

// Event is what a record did to one name.
type Event struct {
	Type   EventType
	Inode  InodeID
	Dir    InodeID // the directory of Path
	NewDir InodeID // of a rename: that of NewPath
	Path   string  // before the record, if it is a rename or a deletion
	// NewPath is where a rename leads.
	NewPath string
	Length  int64 // bytes, of a file after the record
	IsDir   bool
	Holder  string // of EventLease: the client name of who has it open; empty: nobody
}

// Events turns the making of events (Result.Events) on or off. It is off at
// first: each takes the building of a path.
func (t *Tree) Events(on bool) { t.events = on && !t.frozen }

// eventsBefore returns the events of what a record, which fits, takes away.
func (t *Tree) eventsBefore(op Op) (ev []Event) {
	gone := func(id InodeID) {
		if n := t.get(id); n != nil && t.reachable(n, nil) {
			ev = append(ev, t.event(EventDelete, n))
		}
	}
	switch op := op.(type) {
	case *OpCreate:
		gone(op.Replace)
	case *OpDelete:
		if n := t.get(op.Inode); n != nil && n.typ == TypeDir {
			for _, f := range t.openBelow(n) { // who reads one waits for news of it
				ev = append(ev, t.event(EventClose, f))
			}
		}
		gone(op.Inode)
	case *OpRename:
		gone(op.Replace)
		if n := t.lookup(op.FromParent, op.FromName); n != nil {
			if op.Detach && t.attachedTo(n.id) != 0 {
				ev = append(ev, t.event(EventLease, n))
			}
			ev = append(ev, t.event(EventRename, n))
		}
	case *OpHide:
		if n := t.get(op.Inode); n != nil {
			ev = append(ev, t.event(EventRename, n))
		}
		if n := t.lookup(op.FromParent, op.FromName); n != nil {
			if op.Detach && t.attachedTo(n.id) != 0 {
				ev = append(ev, t.event(EventLease, n))
			}
			ev = append(ev, t.event(EventRename, n))
		}
	case *OpConcat:
		for _, id := range op.Sources {
			gone(id)
		}
	case *OpEndLease:
		for _, id := range t.toDelete(endFiles, op.ID) {
			gone(id)
		}
	case *OpReap:
		for _, id := range t.toDelete(int(op.Limit), op.ID) {
			gone(id)
		}
	}
	return ev
}

// event is an event about an inode as it is now.
func (t *Tree) event(typ EventType, n *inode) Event {
	path, _ := t.Path(n.id)
	e := Event{Type: typ, Inode: n.id, Dir: n.parent, Path: path, Length: n.length(), IsDir: n.typ == TypeDir}
	if typ == EventLease && n.open() != nil {
		e.Holder = n.openFile().Holder.Client
	}
	return e
}

// eventsAfter adds the events of what an applied record made or changed.
// longer tells that the file it is about has another length than before.
func (t *Tree) eventsAfter(op Op, r *Result, ev []Event, longer bool) []Event {
	add := func(typ EventType, id InodeID) {
		if n := t.get(id); n != nil && t.reachable(n, nil) {
			ev = append(ev, t.event(typ, n))
		}
	}
	// made is for a chain of new inodes, the last of which is id.
	made := func(id InodeID, dirs int) {
		for d := id - InodeID(dirs); d <= id; d++ { //nolint:gosec // a length
			add(EventCreate, d)
		}
	}
	switch op := op.(type) {
	case *OpMkdir:
		made(r.Inode, len(op.Names)-1)
	case *OpSymlink:
		made(r.Inode, len(op.Dirs))
	case *OpCreate:
		made(r.Inode, len(op.Dirs))
	case *OpCreateAs:
		add(EventCreate, r.Inode)
	case *OpRename, *OpHide:
		for i := range ev {
			if n := t.get(ev[i].Inode); ev[i].Type == EventRename && n != nil {
				ev[i].NewDir = n.parent
				ev[i].NewPath, _ = t.Path(n.id)
			}
		}
		if op, ok := op.(*OpHide); ok {
			add(EventLease, op.Inode)
		}
	case *OpXattr:
		add(EventAttr, op.Inode)
	case *OpSetAttr:
		add(EventAttr, op.Inode)
	case *OpAttach:
		add(EventLease, op.Inode)
	case *OpDetach:
		add(EventLease, op.Inode)
	case *OpAppendTail, *OpTruncate, *OpCut, *OpConcat, *OpCommit:
		if longer {
			add(EventLength, r.Inode)
		}
	case *OpClose, *OpRecover:
		if longer {
			add(EventLength, r.Inode)
		}
		add(EventClose, r.Inode)
	}
	if f := r.Opened; f != nil {
		add(EventLease, f.Inode)
	}
	return ev
}

// lengthOf is the length of the file that a record is about, before it.
func (t *Tree) lengthOf(op Op) int64 {
	var id InodeID
	switch op := op.(type) {
	case *OpAppendTail:
		id = op.Inode
	case *OpTruncate:
		id = op.Inode
	case *OpCut:
		id = op.Inode
	case *OpConcat:
		id = op.Target
	case *OpCommit:
		id = op.Inode
	case *OpClose:
		id = op.Inode
	case *OpRecover:
		id = op.Inode
	}
	if n := t.get(id); id != 0 && n != nil {
		return n.length()
	}
	return 0
}
