package namespace

import "github.com/leasefs/leasefs/namenode/namespace/tables"

// owners are the users and groups that something belongs to, or has belonged to.
type owners struct {
	users, groups tables.Owners
	uses          tables.OwnerUses // by user number; no state, and nil in a clone
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
		return t.uses.Of(i).Tails
	}
	return 0
}

// fitOwners says whether the names of a user and a group can be recorded.
func (t *owners) fitOwners(user, group string) error {
	return tables.FitOwners(&t.users, &t.groups, user, group)
}
