package calls

import (
	"slices"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode/namespace/acl"
	"github.com/leasefs/leasefs/namenode/namespace/tables"
)

// Call is the caller of an operation. It also collects what the answer depends on: the
// number of the newest record, not yet durable, that changed an inode or a name which
// the call looked at. The zero value is a user without a name or rights; a nil
// *Call is the namenode itself, which may do everything and collects nothing.
// A Call is for one goroutine.
type Call struct {
	User   string
	Groups []string
	Super  bool // may do everything: the superuser, or a member of the supergroup

	Client, Host string // of the process that calls, as it says

	// SessionUser is whose session the call belongs to, if not User's: what that user may
	// do with granted leases the call may, too.
	SessionUser string
	// Nobody tells that the call has the rights of others only, and owns nothing of User's.
	Nobody bool

	// ForUser and ForGroup, which only a superuser may set, own what the call makes;
	// empty: the caller, and the group of the directory.
	ForUser, ForGroup string

	// FileLess and DirLess are bits that the modes of files and directories that the call
	// makes do not have, unless they inherit a default ACL.
	FileLess, DirLess uint16

	// Made tells that the call has just made the file that it changes now, so that its mode
	// does not stand in the way.
	Made bool

	// SkipTrash deletes for good what would be kept in the trash. TrashAs is the name under
	// which the trash shows what is deleted, empty: that which it has.
	SkipTrash bool
	TrashAs   string

	// NoNewUser refuses (NoSpace) to make anybody an owner who owns nothing yet, NoNewGroup the same of groups.
	NoNewUser, NoNewGroup bool

	// Xattr is the name of an extended attribute whose value the call wants with attributes.
	Xattr string

	// Looks collects what the call has looked at, if Collect is set, so that the answer
	// can be cached for as long as none of that changes. A call whose answer cannot be
	// cached clears Collect.
	Collect bool
	Looks   []Change
	// DirLooks is how many of Looks a List had collected before it looked at the
	// first entry of the directory.
	DirLooks int

	asOf  uint64
	links int // bytes of the targets of links that were followed since ResetAttempt
}

// MaxLinkBytes is how long the targets are, in all, of the symbolic links that an attempt
// of a call leads through: each of their names is looked up under the namespace's lock.
const MaxLinkBytes = 256 << 10

// ResetAttempt is called when an attempt of the call begins.
func (c *Call) ResetAttempt() {
	if c != nil {
		c.links = 0
	}
}

// Follow counts a link with a target of so many bytes, and reports whether the attempt may
// follow it. The namenode itself follows any.
func (c *Call) Follow(target int) bool {
	if c == nil {
		return true
	}
	c.links += target
	return c.links <= MaxLinkBytes
}

// AsOf returns the number of the record that must be durable before the answer
// may leave; 0 if there is none to wait for. It counts also what calls that
// failed have looked at.
func (c *Call) AsOf() uint64 {
	if c == nil {
		return 0
	}
	return c.asOf
}

// Less is FileLess and DirLess; nothing for the namenode itself.
func (c *Call) Less() (file, dir uint16) {
	if c == nil {
		return 0, 0
	}
	return c.FileLess, c.DirLess
}

// Asker is the caller as records name him.
func (c *Call) Asker() *tables.LeaseOwner {
	return &tables.LeaseOwner{User: c.User, Client: c.Client, Host: c.Host}
}

// MayBring returns an error (NoSpace) if what a user and a group are to own would make one of them known,
// and the call may bring no new ones.
func (c *Call) MayBring(known *tables.Named, user, group string) error {
	switch {
	case c == nil:
	case c.NoNewUser && !known.KnowsUser(user):
		return fserror.New(fserror.NoSpace, "", "", "the namespace knows %d users of %d, and the room that is left is for addresses that have brought few new ones (%s would be one)", known.Users(), tables.MaxOwners, user)
	case c.NoNewGroup && !known.KnowsGroup(group):
		return fserror.New(fserror.NoSpace, "", "", "the namespace knows %d groups of %d, and the room that is left is for users and addresses that have brought few new ones (%s would be one)", known.Groups(), tables.MaxOwners, group)
	}
	return nil
}

// Wants returns the name of the extended attribute that the call wants of an inode, or "" if
// it wants none, or may not read that.
func (c *Call) Wants(mayRead func() bool) string {
	if c == nil || c.Xattr == "" || !mayRead() {
		return ""
	}
	return c.Xattr
}

// IsSuper reports whether a caller may do everything.
func (c *Call) IsSuper() bool { return c == nil || c.Super }

// Owns reports whether a caller owns what a user owns.
func (c *Call) Owns(user string) bool { return user == c.User && !c.Nobody }

// MayUse reports whether a caller may use the granted leases of a user.
func (c *Call) MayUse(user string) bool {
	return c.IsSuper() || c.Owns(user) || c.SessionUser != "" && user == c.SessionUser
}

// NotOwner is the Reason of errors that say that only an owner may do something, whatever
// the mode.
const NotOwner = "not the owner"

// Allowed reports whether a caller has all the permission bits in want on an inode, by the
// one class of the mode (owner, group, others) that applies to the caller, or by an access
// ACL, nil if there is none.
func (c *Call) Allowed(mode uint16, user, group string, access *acl.ACL, want uint16) bool {
	switch {
	case c.IsSuper():
		return true
	case c.Owns(user):
		mode >>= 6
	case access != nil:
		user := c.User
		if c.Nobody { // whom no entry names
			user = ""
		}
		return access.Allowed(user, c.Groups, group, mode, want)
	case slices.Contains(c.Groups, group):
		mode >>= 3
	}
	return mode&want == want
}

// MayList reports whether a caller may list a directory and continue below it.
func (c *Call) MayList(a Attr) bool {
	return c.Allowed(a.Mode, a.User, a.Group, a.Access, MayRead|MayExecute)
}

// What a caller may want of an inode, as permission bits.
const (
	MayRead    uint16 = 4
	MayWrite   uint16 = 2
	MayExecute uint16 = 1
)

// MayTrash returns nil if the caller may do with an entry of the trash what he likes: he has
// deleted it, it was his, or he is a superuser. Errors: NotFound, Permission.
func (c *Call) MayTrash(t *tables.Trash, id tables.InodeID) error {
	e := t.Get(id)
	switch {
	case e == nil:
		return fserror.New(fserror.NotFound, "", "", "there is no entry %d in the trash: it was restored or removed, or its number is wrong", uint64(id))
	case !c.IsSuper() && (c.Nobody || !e.IsOf(c.User)):
		return fserror.New(fserror.Permission, "", "", "user %s neither deleted entry %d of the trash nor owned it; only its deleter, its owner or a superuser may access it", c.User, uint64(id)).Because(NotOwner)
	}
	return nil
}

// TakenOver makes err, of a writer that has lost its file, say who has the file now.
func TakenOver(err *fserror.Error, h *tables.Holder) {
	err.Holder, err.Reason = h.ForError(), ReasonTakenOver
	err.Message = "lease lost: taken over by " + h.Client + " (host " + h.Host + ")"
}
