package tables

import (
	"cmp"
	"strconv"
	"strings"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fspath"
	"github.com/leasefs/leasefs/namenode/namespace/codec"
	"github.com/leasefs/leasefs/namenode/share"
)

// Limits of the trash.
const (
	// TrashXattr is the extended attribute of a directory that says for how long what is
	// deleted below it stays in the trash, such as 7d, 12h, 30m or 90s; or off. It counts for
	// the directory and all below it that have none of their own.
	TrashXattr = XattrPrefix + "leasefs.trash"
	// MaxTrashDays is the longest time that TrashXattr may say.
	MaxTrashDays = 365
	// MaxTrashMemory is how many bytes of memory the entries of the trash may take, what is
	// deleted itself not counted.
	MaxTrashMemory = 256 << 20
	// TrashOverhead is how many bytes of memory an entry takes besides its path.
	TrashOverhead = 384
)

// TrashKeep is how many milliseconds a value of TrashXattr says, 0 for off. The error is of
// kind InvalidArgument.
func TrashKeep(value string) (ms int64, err error) {
	if value == "off" {
		return 0, nil
	}
	unit, digits := uint64(0), value
	if n := len(value) - 1; n > 0 {
		unit, digits = map[byte]uint64{'s': 1000, 'm': 60_000, 'h': 3600_000, 'd': dayMS}[value[n]], value[:n]
	}
	n, err := strconv.ParseUint(digits, 10, 32)
	if err != nil || unit == 0 || n == 0 || n > MaxTrashDays*dayMS/unit {
		return 0, fserror.New(fserror.InvalidArgument, "", "", "%q does not say for how long deleted files are kept; give a number with s, m, h or d, such as 7d, up to %d days, or off", value, MaxTrashDays)
	}
	return int64(n * unit), nil //nolint:gosec // at most a year
}

const dayMS = 24 * 3600_000

// Trashed is what was deleted and can be restored. It is replaced, never changed.
type Trashed struct {
	Inode InodeID
	User  string // who deleted it
	Owner string // whose it was
	Path  string // that it had
	Time  int64  // of the record that deleted it, in Unix milliseconds
	At    int64  // what Tree.Reigned was then
	Due   int64  // what it is when the entry may be removed
}

// TrashDue is Trashed.Due of what is deleted at and kept for so many milliseconds: the time of
// reigns may run fast, by a twentieth at most (package engine).
func TrashDue(at, ms int64) int64 { return at + ms + ms/20 }

// Left is for how many milliseconds the entry is still kept, if time runs as it should.
func (e *Trashed) Left(now int64) int64 { return max(0, e.At+(e.Due-e.At)/21*20-now) }

// Memory is how many bytes of memory the entry takes.
func (e *Trashed) Memory() int64 { return TrashOverhead + int64(len(e.Path)) }

// IsOf reports whether it is among a user's: he deleted it, or it was his.
func (e *Trashed) IsOf(user string) bool { return user == e.User || user == e.Owner }

// TrashUse is how many entries a user has deleted, and what they take.
type TrashUse struct {
	User            string
	Entries, Memory int64
}

// Trash are the entries of the trash.
type Trash struct {
	byInode, byDue Set[*Trashed]
	byUser         Set[trashOf]
	uses           Set[TrashUse]
	memory, most   int64
}

// trashOf is an entry as one of a user's: of who deleted it, and of whose it was.
type trashOf struct {
	user string
	*Trashed
}

// NewTrash returns an empty trash.
func NewTrash() Trash {
	return Trash{
		byInode: NewSet(func(a, b *Trashed) bool { return a.Inode < b.Inode }),
		byUser: NewSet(func(a, b trashOf) bool { // the newest first
			return cmp.Or(cmp.Compare(a.user, b.user), cmp.Compare(b.At, a.At), cmp.Compare(b.Inode, a.Inode)) < 0
		}),
		byDue: NewSet(func(a, b *Trashed) bool { return cmp.Or(cmp.Compare(a.Due, b.Due), cmp.Compare(a.Inode, b.Inode)) < 0 }),
		uses:  NewSet(func(a, b TrashUse) bool { return a.User < b.User }),
		most:  MaxTrashMemory,
	}
}

// Clone returns a snapshot.
func (t *Trash) Clone() Trash {
	return Trash{t.byInode.Clone(), t.byDue.Clone(), t.byUser.Clone(), t.uses.Clone(), t.memory, t.most}
}

// Len is how many entries there are.
func (t *Trash) Len() int { return t.byInode.Len() }

// Get returns the entry of an inode, nil if it is not in the trash.
func (t *Trash) Get(id InodeID) *Trashed {
	if t.byInode.Len() == 0 {
		return nil // for most, without making a key
	}
	e, _ := t.byInode.Get(&Trashed{Inode: id})
	return e
}

// Use is what a user has deleted that is in the trash.
func (t *Trash) Use(user string) TrashUse {
	u, _ := t.uses.Get(TrashUse{User: user})
	u.User = user
	return u
}

// Fits reports whether there is memory for what a user is about to delete. The last quarter is
// for users who have few, the last sixteenth only for reserve.
func (t *Trash) Fits(user string, more int64, reserve bool) bool {
	return t.memory+more <= share.Room(t.most, t.Use(user).Memory, more, reserve)
}

// Crowded are entries that have to go before their time, at most so many: the oldest of the
// user who has most, while all take more than five eighths of their memory. That is less
// than anybody is allowed (Fits), so that nobody is refused for long.
func (t *Trash) Crowded(limit int) (ids []InodeID) {
	excess, most := t.memory-t.most/8*5, TrashUse{}
	if excess <= 0 {
		return nil
	}
	t.uses.Ascend(func(u TrashUse) bool {
		if u.Memory > most.Memory {
			most = u
		}
		return true
	})
	t.Oldest(most.User, func(e *Trashed) bool {
		ids, excess = append(ids, e.Inode), excess-e.Memory()
		return excess > 0 && len(ids) < limit
	})
	return ids
}

// Oldest calls fn for the entries that a user has deleted, the oldest first, until it returns
// false.
func (t *Trash) Oldest(user string, fn func(*Trashed) bool) {
	t.byUser.DescendLessOrEqual(trashOf{user, &Trashed{At: -1}}, func(e trashOf) bool {
		return e.user == user && (e.User != user || fn(e.Trashed))
	})
}

// Put adds an entry. Nothing else has its inode.
func (t *Trash) Put(e *Trashed) {
	t.byInode.ReplaceOrInsert(e)
	t.byUser.ReplaceOrInsert(trashOf{e.User, e})
	t.byUser.ReplaceOrInsert(trashOf{e.Owner, e})
	t.byDue.ReplaceOrInsert(e)
	t.count(e, 1)
}

// Take takes the entry of an inode out, and reports whether there was one.
func (t *Trash) Take(id InodeID) bool {
	e := t.Get(id)
	if e == nil {
		return false
	}
	t.byInode.Delete(e)
	t.byUser.Delete(trashOf{e.User, e})
	t.byUser.Delete(trashOf{e.Owner, e})
	t.byDue.Delete(e)
	t.count(e, -1)
	return true
}

func (t *Trash) count(e *Trashed, sign int64) {
	u := t.Use(e.User)
	u.Entries += sign
	u.Memory += sign * e.Memory()
	t.memory += sign * e.Memory()
	if u.Entries == 0 {
		t.uses.Delete(u)
		return
	}
	t.uses.ReplaceOrInsert(u)
}

// Due calls fn for the entries in the order in which they are due, until it returns false.
func (t *Trash) Due(fn func(*Trashed) bool) { t.byDue.Ascend(fn) }

// List calls fn for the entries of a user (IsOf), the newest first, behind the entry after, if
// that is not nil; or if user is empty for all, by inode; until it returns false.
func (t *Trash) List(user string, after *Trashed, fn func(*Trashed) bool) {
	if user == "" {
		first := new(Trashed)
		if after != nil {
			first.Inode = after.Inode + 1
		}
		t.byInode.AscendGreaterOrEqual(first, fn)
		return
	}
	first := trashOf{user, &Trashed{At: 1<<63 - 1}}
	if after != nil {
		first.Trashed = after
	}
	t.byUser.AscendGreaterOrEqual(first, func(e trashOf) bool {
		return e.user == user && (after != nil && e.Inode == after.Inode || fn(e.Trashed))
	})
}

// Code is the layout in an image.
func (t *Trash) Code(c *codec.Coder, next InodeID, reigned int64) {
	t.byInode.Code(c, func(e **Trashed) {
		if !c.Writes() {
			*e = new(Trashed)
		}
		x := *e
		c.U64((*uint64)(&x.Inode))
		c.Text(&x.User)
		c.Text(&x.Owner)
		c.Text(&x.Path)
		c.I64(&x.Time)
		c.I64(&x.At)
		c.I64(&x.Due)
		x.User, x.Owner, x.Path = strings.Clone(x.User), strings.Clone(x.Owner), strings.Clone(x.Path)
	}, func(_, e *Trashed) bool {
		if !e.can(next, reigned) || t.Get(e.Inode) != nil {
			return false
		}
		t.Put(e)
		return true
	})
}

func (e *Trashed) can(next InodeID, reigned int64) bool {
	return e.Inode > 0 && e.Inode < next && e.User != "" && e.Owner != "" && fspath.Check(e.Path) == nil && e.At >= 0 && e.At <= reigned && e.Due >= e.At
}

// Check finds entries that cannot be, and wrong counts.
func (t *Trash) Check(problem Problem, next InodeID, reigned int64) {
	again := NewTrash()
	t.byInode.Ascend(func(e *Trashed) bool {
		if !e.can(next, reigned) {
			problem("the entry of inode %d in the trash cannot be: %+v", e.Inode, *e)
		}
		again.Put(e)
		return true
	})
	if n := t.Len(); t.byUser.Len() != again.byUser.Len() || t.byDue.Len() != n || t.memory != again.memory || t.uses.Len() != again.uses.Len() {
		problem("the trash has %d entries, but %d by user, %d by time, and %d bytes of %d", n, t.byUser.Len(), t.byDue.Len(), t.memory, again.memory)
	}
	again.uses.Ascend(func(u TrashUse) bool {
		if t.Use(u.User) != u {
			problem("the trash has %+v, but counts %+v", u, t.Use(u.User))
		}
		return true
	})
}
