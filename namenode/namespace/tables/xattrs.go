package tables

import (
	"cmp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode/namespace/codec"
)

// Limits of extended attributes.
const (
	// XattrPrefix begins the name of each.
	XattrPrefix = "user."
	// MaxXattrName is how many bytes a name may have, the prefix included, as in
	// Linux.
	MaxXattrName = 255
	// MaxXattrValue is how many bytes a value may have.
	MaxXattrValue = 12 << 10
	// MaxXattrs is how many bytes the names and values of one inode may have.
	MaxXattrs = 16 << 10
	// XattrOverhead is how many bytes of memory one takes besides name and value.
	XattrOverhead = 128
)

// Xattr is one extended attribute of an inode. It is replaced, never changed.
type Xattr struct {
	Inode InodeID
	Name  string
	Value string
}

// Size is how much of MaxXattrs it takes.
func (x Xattr) Size() int { return len(x.Name) + len(x.Value) }

// Memory is how many bytes of memory it takes.
func (x Xattr) Memory() int64 { return int64(x.Size() + XattrOverhead) }

// CheckXattrName returns an error unless an extended attribute may have this
// name: Unsupported outside of the user namespace, TooLarge, InvalidArgument.
func CheckXattrName(name string) error {
	switch {
	case !strings.HasPrefix(name, XattrPrefix):
		return fserror.New(fserror.Unsupported, "", "", "%q is not a name for an extended attribute here; choose one that begins with %q, such as %scolor", name, XattrPrefix, XattrPrefix)
	case len(name) == len(XattrPrefix):
		return fserror.New(fserror.InvalidArgument, "", "", "the name of the extended attribute has nothing after %q", XattrPrefix)
	case len(name) > MaxXattrName:
		return fserror.New(fserror.TooLarge, "", "", "the name of the extended attribute has %d bytes; the limit is %d", len(name), MaxXattrName)
	case !utf8.ValidString(name) || strings.IndexByte(name, 0) >= 0:
		return fserror.New(fserror.InvalidArgument, "", "", "the name of the extended attribute, %q, is not UTF-8 or has a NUL", name)
	}
	return nil
}

// Xattrs are the extended attributes of all inodes. What they take is counted by the
// tree, which knows the owners.
type Xattrs struct {
	set     Set[Xattr]
	trashes int   // how many are TrashXattr
	version *byte // another one after each change
}

// NewXattrs returns an empty table.
func NewXattrs() Xattrs {
	return Xattrs{set: NewSet(func(a, b Xattr) bool {
		return cmp.Or(cmp.Compare(a.Inode, b.Inode), cmp.Compare(a.Name, b.Name)) < 0
	})}
}

// Clone returns a snapshot.
func (t *Xattrs) Clone() Xattrs { return Xattrs{t.set.Clone(), t.trashes, t.version} }

// Len is how many there are.
func (t *Xattrs) Len() int { return t.set.Len() }

// Get returns the one of an inode and a name, and whether there is one.
func (t *Xattrs) Get(inode InodeID, name string) (Xattr, bool) {
	return t.set.Get(Xattr{Inode: inode, Name: name})
}

// Put makes or replaces one, and returns how many bytes of memory that takes.
func (t *Xattrs) Put(x Xattr) (more int64) {
	old, had := t.set.ReplaceOrInsert(x)
	t.version = new(byte)
	switch {
	case had:
		return x.Memory() - old.Memory()
	case x.Name == TrashXattr:
		t.trashes++
	}
	return x.Memory()
}

// Delete deletes one, and returns how many bytes of memory it took.
func (t *Xattrs) Delete(x Xattr) (less int64) {
	old, had := t.set.Delete(x)
	t.version = new(byte)
	if !had {
		return 0
	}
	if x.Name == TrashXattr {
		t.trashes--
	}
	return old.Memory()
}

// Trash is for how many milliseconds what is deleted below an inode is kept, as that says
// itself, and whether it says so.
func (t *Xattrs) Trash(inode InodeID) (ms int64, says bool) {
	if t.trashes == 0 {
		return 0, false
	}
	x, says := t.Get(inode, TrashXattr)
	if says {
		ms, _ = TrashKeep(x.Value)
	}
	return ms, says
}

// KeptFor is for how many milliseconds an inode is kept when it is deleted: as the nearest
// directory says that says something, from itself on. up is the directory above one that is there;
// 0: none.
func (t *Xattrs) KeptFor(id InodeID, up func(InodeID) InodeID) int64 {
	for ; id != 0 && t.AnyTrash(); id = up(id) {
		if ms, says := t.Trash(id); says {
			return ms
		}
	}
	return 0
}

// AnyTrash reports whether any inode says something about the trash.
func (t *Xattrs) AnyTrash() bool { return t.trashes > 0 }

// Of calls fn for those of an inode in the order of names.
func (t *Xattrs) Of(inode InodeID, fn func(Xattr)) {
	t.set.From(Xattr{Inode: inode}, func(x Xattr) bool {
		if x.Inode != inode {
			return false
		}
		fn(x)
		return true
	})
}

// All returns those of an inode in the order of names.
func (t *Xattrs) All(inode InodeID) (list []Xattr) {
	t.Of(inode, func(x Xattr) { list = append(list, x) })
	return list
}

// Drop takes those of an inode away, and returns how many bytes of memory they took.
func (t *Xattrs) Drop(inode InodeID) (less int64) {
	for _, x := range t.All(inode) {
		less += t.Delete(x)
	}
	return less
}

// Memory is how many bytes of memory those of an inode take.
func (t *Xattrs) Memory(inode InodeID) (sum int64) {
	t.Of(inode, func(x Xattr) { sum += x.Memory() })
	return sum
}

// Look returns how many an inode has, and the value of the one of a name.
func (t *Xattrs) Look(inode InodeID, name string) (n int, value string) {
	t.Of(inode, func(x Xattr) {
		n++
		if x.Name == name {
			value = x.Value
		}
	})
	return n, value
}

// Fits reports whether those of an inode fit into the limits, with x for the one of
// its name; and how many bytes they have then.
func (t *Xattrs) Fits(x Xattr) (sum int, fits bool) {
	t.Of(x.Inode, func(o Xattr) {
		if o.Name != x.Name {
			sum += o.Size()
		}
	})
	sum += x.Size()
	return sum, len(x.Value) <= MaxXattrValue && sum <= MaxXattrs
}

// Code is the layout in an image. put keeps one that was read, or returns false if
// there is no such inode.
func (t *Xattrs) Code(c *codec.Coder, put func(Xattr) bool) {
	sum := 0
	t.set.Code(c, func(x *Xattr) {
		c.U64((*uint64)(&x.Inode))
		c.Text(&x.Name)
		c.Text(&x.Value)
	}, func(last, x Xattr) bool {
		if x.Inode != last.Inode {
			sum = 0
		}
		sum += x.Size()
		return CheckXattrName(x.Name) == nil && len(x.Value) <= MaxXattrValue && sum <= MaxXattrs && put(x)
	})
}

// DifferOf reports whether those of an inode differ.
func (t *Xattrs) DifferOf(o *Xattrs, inode InodeID) bool {
	if t.version == o.version {
		return false
	}
	return !slices.Equal(t.All(inode), o.All(inode))
}

// CodeChange codes how a table of inodes below a number differs from a newer one, for the inodes
// that each calls its argument with, until that returns false; with true for one of which the newer
// table is taken to have none. One that is read is a clone of the newer one. It returns the inodes
// that it has read.
func (t *Xattrs) CodeChange(c *codec.Coder, newer *Xattrs, below InodeID, each func(func(id InodeID, only bool) bool)) (inodes []InodeID) {
	if c.Writes() {
		each(func(id InodeID, only bool) bool {
			switch {
			case only:
				t.writeChange(c, id, nil)
			case t.version != newer.version:
				t.writeChange(c, id, newer.All(id))
			}
			return c.Next()
		})
		c.Put(0)
		return nil
	}
	for c.Next() {
		var x Xattr
		var gone bool
		if c.U64((*uint64)(&x.Inode)); x.Inode == 0 {
			break
		}
		c.Text(&x.Name)
		if c.Bool(&gone); !gone {
			c.Text(&x.Value)
		}
		if x.Inode >= below || CheckXattrName(x.Name) != nil || len(x.Value) > MaxXattrValue {
			c.Fail("an extended attribute cannot be")
		}
		if gone {
			t.Delete(x)
		} else {
			t.Put(x)
		}
		inodes = append(inodes, x.Inode)
	}
	return inodes
}

// writeChange writes how those of an inode differ from what it is in a newer table.
func (t *Xattrs) writeChange(c *codec.Coder, inode InodeID, is []Xattr) {
	one := func(x Xattr, gone bool) {
		c.Put(uint64(x.Inode))
		c.Text(&x.Name)
		if c.Bool(&gone); !gone {
			c.Text(&x.Value)
		}
	}
	was := t.All(inode)
	for _, x := range was {
		if !slices.Contains(is, x) {
			one(x, false)
		}
	}
	for _, x := range is {
		if !slices.ContainsFunc(was, func(y Xattr) bool { return y.Name == x.Name }) {
			one(x, true)
		}
	}
}

// XattrAction is what is to be done with an extended attribute.
type XattrAction uint8

// The actions.
const (
	XattrSet     XattrAction = iota // make or replace it
	XattrCreate                     // Exists if it is there
	XattrReplace                    // NotFound if it is missing
	XattrRemove                     // NotFound if it is missing
)

// NoXattr is the reason of the NotFound error for an extended attribute that is
// missing, as opposed to the file.
const NoXattr = "no such attribute"

// Plan checks whether the one of an inode and a name can be set to a value, or removed, and
// returns how much more memory that takes; -1 if it has that value already. Errors:
// InvalidArgument (the action), Exists, NotFound, TooLarge and NoSpace (all of the inode).
func (t *Xattrs) Plan(x Xattr, action XattrAction) (more int64, err error) {
	if err := CheckXattrName(x.Name); err != nil {
		return 0, err
	}
	old, had := t.Get(x.Inode, x.Name)
	switch {
	case action > XattrRemove:
		return 0, fserror.New(fserror.InvalidArgument, "", "", "unknown action %d", action)
	case had && action == XattrCreate:
		return 0, fserror.New(fserror.Exists, "", "", "it has an extended attribute %q already", x.Name)
	case !had && (action == XattrReplace || action == XattrRemove):
		err := fserror.New(fserror.NotFound, "", "", "it has no extended attribute %q", x.Name)
		err.Reason = NoXattr
		return 0, err
	case action == XattrRemove:
		return 0, nil
	case len(x.Value) > MaxXattrValue:
		return 0, fserror.New(fserror.TooLarge, "", "", "the value has %d bytes; the limit is %d", len(x.Value), MaxXattrValue)
	case had && old == x:
		return -1, nil
	}
	if sum, fits := t.Fits(x); !fits {
		return 0, fserror.New(fserror.NoSpace, "", "", "its extended attributes would have %d bytes; the limit is %d", sum, MaxXattrs)
	}
	return max(x.Memory()-int64(old.Size()), 0), nil
}

// Check checks that all belong to inodes and keep the limits. use returns where what those
// of an inode take is counted; nil: it is not there.
func (t *Xattrs) Check(problem Problem, use func(InodeID) *int64) (bytes int64) {
	t.set.Ascend(func(x Xattr) bool {
		bytes += x.Memory()
		if u := use(x.Inode); u != nil {
			*u += x.Memory()
		} else {
			problem("extended attribute %q is of inode %d, which is not there", x.Name, x.Inode)
		}
		if _, fits := t.Fits(x); CheckXattrName(x.Name) != nil || !fits {
			problem("extended attribute %q of inode %d is over a limit", x.Name, x.Inode)
		}
		return true
	})
	return bytes
}
