package namespace

import "github.com/leasefs/leasefs/internal/fspath"

// Events turns the making of events (Result.Events) on or off. It is off at
// first: each takes the building of a path.
func (t *Tree) Events(on bool) { t.events = on && !t.frozen }

// event is an event about an inode as it is now.
func (t *Tree) event(typ EventType, n *inode) Event {
	path, ok := t.Path(n.ID)
	if !ok && n.Parent != 0 { // it is dead
		path, _ = t.Path(n.Parent)
		path = fspath.Join(path, n.Name())
	}
	e := Event{Type: typ, Inode: n.ID, Dir: n.Parent, Path: fspath.Begin(path), Length: n.Length(), IsDir: n.Type == TypeDir}
	if typ == EventLease && n.Open() != nil {
		e.Holder = n.OpenFile().Holder.Client
	}
	return e
}

// news collects the events of a record that is about to be applied. What it takes
// away is described as it is before, without a path is what will be described as
// it is afterwards.
type news struct {
	t     *Tree
	list  []Event
	named int // what the paths of closed files take
}

// mostNamed bounds what the paths of the files that one record closes take in its events, each
// counted with 1 KiB more: a directory may have any number of open files below it, and events
// are kept in memory for all watchers.
const mostNamed = 1 << 20

// closed is for files that are no longer open because of what is above them, or of their
// lease. Who reads one waits for news of it, by its number; the paths that are left out are below
// one whose deletion is reported, or soon will be.
func (n news) closed(files []*inode) news {
	for _, f := range files {
		e := Event{Type: EventClose, Inode: f.ID, Dir: f.Parent, Length: f.Length()}
		if n.named < mostNamed {
			e = n.t.event(EventClose, f)
			n.named += len(e.Path) + 1<<10
		}
		n.list = append(n.list, e)
	}
	return n
}

// gone is for inodes that are deleted.
func (n news) gone(ids ...InodeID) news {
	for _, id := range ids {
		if f := n.t.get(id); f != nil && n.t.reachable(f, nil) {
			n.list = append(n.list, n.t.event(EventDelete, f))
		}
	}
	return n
}

// buried reports the removal of a dead inode as a deletion, unless the record of the
// lease's end has reported that already.
func (n news) buried(f *inode) news {
	if f.ID > n.t.Grants.Of(f.ID).Told && n.t.reachable(n.t.get(f.Parent), nil) {
		n.list = append(n.list, n.t.event(EventDelete, f))
	}
	return n
}

// taken is for a name that something gets: a dead entry of that name is removed.
func (n news) taken(dir InodeID, name string) news {
	if f := n.t.named(dir, name); f != nil && n.t.isDead(f) {
		return n.buried(f)
	}
	return n
}

// moved is for what has a name, if anything has, and gets another; detach if it is
// also taken from the lease that it may be attached to.
func (n news) moved(dir InodeID, name string, detach bool) news {
	f := n.t.lookup(dir, name)
	if f == nil {
		return n
	}
	if detach && n.t.LeaseOf(f.ID) != 0 {
		n.list = append(n.list, n.t.event(EventLease, f))
	}
	n.list = append(n.list, n.t.event(EventRename, f))
	return n
}

// made reports new inodes, which get the next numbers: the first name is in dir, each
// later one in the directory before it.
func (n news) made(dir InodeID, names ...string) news {
	if len(names) > 0 {
		n = n.taken(dir, names[0])
	}
	for i := range names {
		n = n.after(EventCreate, n.t.nextInode+InodeID(i)) //nolint:gosec // a length
	}
	return n
}

// length is for a file that gets this length.
func (n news) length(id InodeID, length int64) news {
	if f := n.t.get(id); f == nil || f.Length() == length {
		return n
	}
	return n.after(EventLength, id)
}

// after is for an inode that is in the tree afterwards.
func (n news) after(typ EventType, id InodeID) news {
	n.list = append(n.list, Event{Type: typ, Inode: id})
	return n
}

// of returns the events now that the record was applied.
func (n news) of(r *Result) []Event {
	if r.Opened != nil {
		n = n.after(EventLease, r.Opened.Inode)
	}
	told := n.list[:0]
	for _, e := range n.list {
		f := n.t.get(e.Inode)
		e.Trashed = e.Type == EventDelete && n.t.trash.Get(e.Inode) != nil
		switch {
		case e.Path == "" && e.Dir == 0 && (f == nil || !n.t.reachable(f, nil)):
			continue
		case e.Path == "" && e.Dir == 0:
			e = n.t.event(e.Type, f)
		case e.Type == EventRename:
			path, _ := n.t.Path(f.ID)
			e.NewDir, e.NewPath = f.Parent, fspath.Begin(path)
		}
		told = append(told, e)
	}
	return told
}
