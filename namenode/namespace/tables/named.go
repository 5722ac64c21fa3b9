package tables

// Named are the users and groups that something belongs to, or has belonged to.
type Named struct {
	UserNames, GroupNames Owners
	Uses                  OwnerUses // by user number; no state, and nil in a clone
}

// KnowsUser reports whether a user owns something, or has owned something.
func (t *Named) KnowsUser(user string) bool {
	_, ok := t.UserNames.Number(user)
	return ok
}

// KnowsGroup is KnowsUser for a group.
func (t *Named) KnowsGroup(group string) bool {
	_, ok := t.GroupNames.Number(group)
	return ok
}

// Users is how many users own something or have owned something, at most MaxOwners.
func (t *Named) Users() int { return t.UserNames.Len() - 1 }

// Groups is Users for groups.
func (t *Named) Groups() int { return t.GroupNames.Len() - 1 }

// OwnedTails is how much of Counts.TailBytes the files of a user take. It is not for
// clones, and for a caller that may change the tree.
func (t *Named) OwnedTails(user string) int64 {
	if i, ok := t.UserNames.Number(user); ok {
		return t.Uses.Of(i).Tails
	}
	return 0
}

// Fit says whether the names of a user and a group can be recorded.
func (t *Named) Fit(user, group string) error {
	return FitOwners(&t.UserNames, &t.GroupNames, user, group)
}
