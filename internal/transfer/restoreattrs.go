package transfer

import (
	"bytes"
	"context"
	"io/fs"
	"maps"
	"slices"
	"time"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/client/snapshots"
	"github.com/leasefs/leasefs/internal/filemode"
	"github.com/leasefs/leasefs/internal/lowlevel"
)

// same reports whether what is there, which has the content that the snapshot has, can stay, and gives it
// the attributes then. Another inode is replaced if it has others: it may have been moved there, for it
// to get the rights that the snapshot gives.
func (r *restorer) same(ctx context.Context, p string, i, is *client.FileInfo) (bool, error) {
	if _, live := snapshots.Split(i.Inode); is.Inode == live {
		return true, r.attributes(ctx, p, i, is)
	}
	c, err := r.compare(ctx, i, is)
	return c.none(), err
}

// like gives a new inode the attributes of the snapshot's. That the owner cannot be given is denied.
func (r *restorer) like(ctx context.Context, p string, i *client.FileInfo, inode uint64) (denied, err error) {
	is, _, err := r.fs.LstatKept(ctx, lowlevel.Inode(inode))
	if err != nil {
		return nil, err
	}
	c, err := r.compare(ctx, i, is)
	if err != nil {
		return nil, err
	}
	owner := client.AttrChange{User: c.attr.User, Group: c.attr.Group}
	c.attr.User, c.attr.Group = "", ""
	if err := r.apply(ctx, p, inode, c); err != nil || owner == (client.AttrChange{}) {
		return nil, err
	}
	return r.fs.SetAttrInode(ctx, inode, r.live(p), owner), nil
}

// change is what makes the attributes of something equal to those of something else.
type change struct {
	set    []client.Xattr
	remove []string
	list   client.ACL
	attr   client.AttrChange
}

func (c change) none() bool {
	return len(c.set)+len(c.remove)+len(c.list) == 0 && c.attr == (client.AttrChange{})
}

// compare finds what makes is equal to the snapshot's i.
func (r *restorer) compare(ctx context.Context, i, is *client.FileInfo) (c change, err error) {
	if c.set, c.remove, err = r.xattrs(ctx, i, is); err != nil {
		return change{}, err
	}
	if c.list, err = r.acl(ctx, i, is); err != nil {
		return change{}, err
	}
	if !i.ModTime().Equal(is.ModTime()) {
		c.attr.SetMTime, c.attr.MTime = true, i.ModTime()
	}
	differs := (i.Mode() ^ is.Mode()) & filemode.Changeable
	if c.list != nil { // which has the permission bits
		differs &= fs.ModeSticky
	}
	if differs != 0 {
		c.attr.SetMode, c.attr.Mode = true, i.Mode()&filemode.Changeable
	}
	if i.User != is.User {
		c.attr.User = i.User
	}
	if i.Group != is.Group {
		c.attr.Group = i.Group
	}
	return c, nil
}

// attributes makes those of what is there equal to the snapshot's. That a directory has another time
// goes without saying.
func (r *restorer) attributes(ctx context.Context, p string, i, is *client.FileInfo) error {
	c, err := r.compare(ctx, i, is)
	if err != nil || c.none() {
		return err
	}
	told := c
	if i.IsDir() {
		told.attr.SetMTime, told.attr.MTime = false, time.Time{}
	}
	if !told.none() && !(i.IsDir() && r.new[p]) {
		r.tell(RestoreSet, p, 0, &r.did.Attributes)
	}
	if r.o.DryRun {
		return nil
	}
	return r.apply(ctx, p, is.Inode, c)
}

func (r *restorer) apply(ctx context.Context, p string, inode uint64, c change) error {
	low := r.fs.XattrsInode(inode)
	for _, x := range c.set {
		if err := low.Set(ctx, x.Name, x.Value, client.XattrAny); err != nil {
			return err
		}
	}
	for _, name := range c.remove {
		if err := low.Remove(ctx, name); err != nil {
			return err
		}
	}
	if c.list != nil {
		if err := low.ChangeACL(ctx, client.ACLChange{Action: client.ACLWhole, Entries: c.list}); err != nil {
			return err
		}
	}
	if c.attr == (client.AttrChange{}) {
		return nil
	}
	return r.fs.SetAttrInode(ctx, inode, r.live(p), c.attr)
}

// xattrs are the extended attributes to set and to remove.
func (r *restorer) xattrs(ctx context.Context, i, is *client.FileInfo) (set []client.Xattr, remove []string, err error) {
	if i.Xattrs == 0 && is.Xattrs == 0 {
		return nil, nil, nil
	}
	want, err := r.fs.XattrsInode(i.Inode).All(ctx)
	if err != nil {
		return nil, nil, err
	}
	have, err := r.fs.XattrsInode(is.Inode).All(ctx)
	if err != nil {
		return nil, nil, err
	}
	values := map[string][]byte{}
	for _, x := range have {
		values[x.Name] = x.Value
	}
	for _, x := range want {
		if v, ok := values[x.Name]; !ok || !bytes.Equal(v, x.Value) {
			set = append(set, x)
		}
		delete(values, x.Name)
	}
	return set, slices.Sorted(maps.Keys(values)), nil
}

// acl is the ACL to set; nil: it is the same.
func (r *restorer) acl(ctx context.Context, i, is *client.FileInfo) (client.ACL, error) {
	if !i.HasACL && !i.HasDefault && !is.HasACL && !is.HasDefault {
		return nil, nil
	}
	want, err := r.fs.XattrsInode(i.Inode).ACL(ctx)
	if err != nil {
		return nil, err
	}
	have, err := r.fs.XattrsInode(is.Inode).ACL(ctx)
	if err != nil || want.String() == have.String() {
		return nil, err
	}
	return want, nil
}
