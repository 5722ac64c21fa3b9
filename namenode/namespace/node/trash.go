package node

import (
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode/namespace/calls"
	"github.com/leasefs/leasefs/namenode/namespace/tables"
)

// MayTrash returns nil if a caller may do with an entry of the trash what he likes: he has
// deleted it, it was his, or he is a superuser. Errors: NotFound, Permission.
func MayTrash(t *tables.Trash, c *calls.Call, id tables.InodeID) error {
	e := t.Get(id)
	switch {
	case e == nil:
		return fserror.New(fserror.NotFound, "", "", "there is no entry %d in the trash: it was restored or removed, or its number is wrong", uint64(id))
	case !c.IsSuper() && (c.Nobody || !e.IsOf(c.User)):
		return fserror.New(fserror.Permission, "", "", "user %s neither deleted entry %d of the trash nor owned it; only who did, and superusers, may have it", c.User, uint64(id)).Because(calls.NotOwner)
	}
	return nil
}
