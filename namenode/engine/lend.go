package engine

import (
	"slices"

	"github.com/leasefs/leasefs/leasemanager/readlease"
	"github.com/leasefs/leasefs/namenode/namespace"
)

const (
	// maxLooks is how much an answer that may be kept can depend on.
	maxLooks = 1024
	// maxKeptEntries is how many entries of one page of a listing a session may keep.
	maxKeptEntries = 2000
)

// Lend lets a session keep the answer to c, if c collects what it looks at
// (c.Looks), and reports whether it may. The holder of an open file may keep the
// answer to its own call, if own: nobody else may, since each flush would have to wait
// for its readers.
func (tx *Tx) Lend(c *namespace.Call, session []byte, own bool) bool {
	return c.Collect && len(c.Looks) <= maxLooks && c.AsOf() <= tx.e.journal.Durable() && tx.lend(session, c.Looks, own)
}

// lend lends a session what an answer was seen from. The lock is held for reading, as
// it was when the answer was made, so no change comes in between.
func (tx *Tx) lend(session []byte, looks []namespace.Change, own bool) bool {
	if len(session) != len(readlease.SessionID{}) {
		return false
	}
	id := readlease.SessionID(session)
	for _, l := range looks {
		if l.Kind != namespace.ChangeAttr {
			continue
		}
		if f, open := tx.Tree.OpenFile(l.Inode); open && !(own && f.Holder.Session == id) {
			return false
		}
	}
	return tx.e.Caches().Grant(id, cacheKeys(looks))
}

// LendEntries is Lend for the entries of a directory that c has listed. c.Looks
// becomes what all of them depend on; keep says which of them the session may keep as
// if it had asked for each. An entry that depends on more may be revoked alone.
func (tx *Tx) LendEntries(c *namespace.Call, session []byte, dir namespace.Attr, entries []namespace.Attr) (keep []bool) {
	if !c.Collect || !c.MayList(dir) {
		return nil // who may not search it may list it, but stat nothing in it
	}
	// Which other entries there are does not matter to one of them.
	c.Looks = slices.DeleteFunc(c.Looks[:min(c.DirLooks, len(c.Looks))], func(l namespace.Change) bool { return l.Kind == namespace.ChangeEntries })
	if !tx.Lend(c, session, false) {
		return nil
	}
	keep = make([]bool, min(len(entries), maxKeptEntries))
	for i := range keep {
		keep[i] = tx.lend(session, entryLooks(dir.ID, entries[i]), false)
	}
	return keep
}

// entryLooks is what the attributes of an entry depend on, besides its directory.
func entryLooks(dir namespace.InodeID, a namespace.Attr) []namespace.Change {
	looks := []namespace.Change{{Kind: namespace.ChangeName, Inode: dir, Name: a.Name}, {Kind: namespace.ChangeAttr, Inode: a.ID}}
	if a.Lease != 0 {
		looks = append(looks, namespace.Change{Kind: namespace.ChangeLease, Inode: namespace.InodeID(a.Lease)})
	}
	if a.Type == namespace.TypeDir {
		looks = append(looks, namespace.Change{Kind: namespace.ChangeEntries, Inode: a.ID})
	}
	return looks
}

// Delegate delegates a directory to a session, which alone may then make files in it
// without asking; false if others may, or look at the directory, or a quota limits what is
// made there.
func (tx *Tx) Delegate(session namespace.SessionID, dir namespace.InodeID) bool {
	return len(namespace.QuotasAbove(tx.Tree, nil, dir)) == 0 && tx.e.Caches().GrantAlone(readlease.SessionID(session), delegation(dir))
}

// Delegated reports whether a directory is delegated to a session.
func (e *Engine) Delegated(session namespace.SessionID, dir namespace.InodeID) bool {
	return e.Caches().Holds(readlease.SessionID(session), delegation(dir))
}

func delegation(dir namespace.InodeID) readlease.Key {
	return readlease.Key{Kind: KeyDelegation, Inode: uint64(dir)}
}
