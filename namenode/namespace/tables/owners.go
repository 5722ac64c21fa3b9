package tables

import (
	"fmt"
	"maps"
	"strings"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode/namespace/codec"
)

// MaxOwners is how many different users, and how many groups, may own
// something. Names are never forgotten.
const MaxOwners = 65535

// Owners numbers the names of users or groups, in the order in which records bring
// them; number 0 is the empty name.
type Owners struct {
	names  []string // append-only: clones share a prefix
	index  map[string]uint16
	shared bool // index is a clone's, too
}

// NewOwners returns a table with the empty name alone.
func NewOwners() Owners { return Owners{names: []string{""}, index: map[string]uint16{"": 0}} }

// Clone returns a snapshot.
func (t *Owners) Clone() Owners {
	t.shared = true
	return *t
}

// Fits reports whether a name has a number or can get one.
func (t *Owners) Fits(name string) bool {
	if _, ok := t.index[name]; ok {
		return true
	}
	return len(t.names) <= MaxOwners
}

// Add returns the number of a name that fits.
func (t *Owners) Add(name string) uint16 {
	if i, ok := t.index[name]; ok {
		return i
	}
	if t.shared {
		t.index, t.shared = maps.Clone(t.index), false
	}
	i := uint16(len(t.names)) //nolint:gosec // at most MaxOwners, see Fits
	t.names = append(t.names, strings.Clone(name))
	t.index[t.names[i]] = i
	return i
}

// Name returns the name of a number.
func (t *Owners) Name(i uint16) string { return t.names[i] }

// Number returns the number of a name, if it has one.
func (t *Owners) Number(name string) (i uint16, ok bool) {
	i, ok = t.index[name]
	return i, ok
}

// Len is how many numbers there are, that of the empty name included.
func (t *Owners) Len() int { return len(t.names) }

// FitOwners returns an error (NoSpace) if a user and a group cannot both get numbers.
func FitOwners(users, groups *Owners, user, group string) error {
	switch {
	case !users.Fits(user):
		return fserror.New(fserror.NoSpace, "", "", "the namespace knows %d users already and can take no new one (%s)", MaxOwners, user)
	case !groups.Fits(group):
		return fserror.New(fserror.NoSpace, "", "", "the namespace knows %d groups already and can take no new one (%s)", MaxOwners, group)
	}
	return nil
}

// OwnerUse is the memory, in bytes, that the files of one owner take of what all share.
type OwnerUse struct{ Tails, Xattrs, ACLs int64 }

// OwnerUses are by the number of the user.
type OwnerUses []OwnerUse

// Of returns that of a user, to be changed.
func (u *OwnerUses) Of(user uint16) *OwnerUse {
	if missing := int(user) + 1 - len(*u); missing > 0 {
		*u = append(*u, make([]OwnerUse, missing)...)
	}
	return &(*u)[user]
}

// Code is the layout in an image.
func (t *Owners) Code(c *codec.Coder) {
	names := t.names[1:]
	codec.List(c, &names, 2, c.Text)
	if c.Writes() {
		return
	}
	for _, name := range names {
		if before := len(t.names); before > MaxOwners || int(t.Add(name)) != before {
			c.Fail(fmt.Sprintf("user or group %q comes twice, or is one too many", name))
		}
	}
}
