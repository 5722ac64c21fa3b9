package namespace

import (
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode/namespace/tables"
)

// owners are the users and groups that something belongs to, or has belonged to.
type owners struct {
	users, groups tables.Owners
	uses          ownerUses // by user number; no state, and nil in a clone
}

// ownerUse is the memory that the files of one owner take of what all share.
type ownerUse struct{ tails, xattrs int64 }

// ownerUses are by the number of the user.
type ownerUses []ownerUse

// of is what the files of one user take, to be changed.
func (u *ownerUses) of(user uint16) *ownerUse {
	if missing := int(user) + 1 - len(*u); missing > 0 {
		*u = append(*u, make([]ownerUse, missing)...)
	}
	return &(*u)[user]
}

// KnowsUser reports whether a user owns something, or has owned something.
func (t *owners) KnowsUser(user string) bool {
	_, ok := t.users.Number(user)
	return ok
}

// Users is how many users own something or have owned something, at most MaxOwners.
func (t *owners) Users() int { return t.users.Len() - 1 }

// OwnedTails is how much of Counts.TailBytes the files of a user take. It is not for
// clones, and for a caller that may change the tree.
func (t *owners) OwnedTails(user string) int64 {
	if i, ok := t.users.Number(user); ok {
		return t.uses.of(i).tails
	}
	return 0
}

// fitOwners says whether the names of a user and a group can be recorded.
func (t *owners) fitOwners(user, group string) error {
	switch {
	case !t.users.Fits(user):
		return fserror.New(fserror.NoSpace, "", "", "the namespace knows %d users already and can take no new one (%s)", MaxOwners, user)
	case !t.groups.Fits(group):
		return fserror.New(fserror.NoSpace, "", "", "the namespace knows %d groups already and can take no new one (%s)", MaxOwners, group)
	}
	return nil
}
