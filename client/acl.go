package client

import (
	"context"
	"io/fs"

	"github.com/leasefs/leasefs/internal/filemode"
	"github.com/leasefs/leasefs/internal/lowlevel/door"
	"github.com/leasefs/leasefs/internal/namecall"
	"github.com/leasefs/leasefs/internal/posixacl"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

type (
	// ACL is the access ACL of a file or directory and, of a directory that has one, its
	// default ACL, which what is made in it inherits: at most 32 entries each, in order.
	// Who is in several classes has the rights of the first: owner, user by name, groups,
	// others.
	ACL = posixacl.ACL
	// ACLEntry is one entry of an ACL.
	ACLEntry = posixacl.Entry
	// ACLChange is a change of an ACL.
	ACLChange = posixacl.Change
)

// Whom an entry of an ACL is for.
const (
	ACLOwner       = posixacl.Owner
	ACLUser        = posixacl.User // by name
	ACLOwningGroup = posixacl.OwningGroup
	ACLGroup       = posixacl.Group // by name
	ACLMask        = posixacl.Mask  // at most this for the three before
	ACLOther       = posixacl.Other
)

// How an ACLChange uses its entries.
const (
	ACLReplace       = posixacl.Replace
	ACLModify        = posixacl.Modify
	ACLRemove        = posixacl.Remove
	ACLRemoveDefault = posixacl.RemoveDefault
	ACLRemoveAll     = posixacl.RemoveAll
	ACLExact         = posixacl.Exact
	ACLWhole         = posixacl.Whole
)

// ParseACL reads an ACL as String writes it, or getfacl. InvalidArgument: it is none.
func ParseACL(text string) (ACL, error) { return posixacl.Parse(text) }

// ACL returns the ACL. If there is none but the mode, it has three entries that say the same.
// It takes no rights but to get there. NotFound, Permission.
func (x *Xattrs) ACL(ctx context.Context) (ACL, error) {
	path, err := x.where("getacl")
	if err != nil {
		return nil, err
	}
	return x.fs.acl(ctx, readKey{readACL, door.Ref{Base: x.inode, Path: path}, asOf(ctx)})
}

// where is the path, clean; empty if it is an inode.
func (x *Xattrs) where(op string) (string, error) {
	if x.inode != 0 {
		return x.path, nil
	}
	return clean(op, x.path)
}

func (f *engine) acl(ctx context.Context, k readKey) (ACL, error) {
	v, ok := f.kept(k)
	if !ok || k.throughLinks(ctx) {
		v.acl = new(pb.AclResponse)
		ticket := f.beginRead()
		req := &pb.AclRequest{Caller: f.by(ctx), At: k.ref(ctx), Cache: f.cache != nil}
		if err := f.nn.Do(ctx, &namecall.Call{Op: "getacl", Path: k.at.Path}, pb.Namenode_Acl_FullMethodName, req, v.acl); err != nil {
			return nil, err
		}
		f.keep(ticket, k, v, v.acl.GetKeys())
	}
	return posixacl.FromWire(v.acl.GetEntries()), nil
}

// SetACL makes an ACL the whole of what the file or directory has, and its mode what the ACL
// says. Only the owner may. InvalidArgument: it is no ACL, or a default ACL of a file;
// NoSpace: all files together have too many different ones.
func (x *Xattrs) SetACL(ctx context.Context, acl ACL) error {
	return x.ChangeACL(ctx, ACLChange{Action: ACLWhole, Entries: acl})
}

// ChangeACL changes the ACL that there is at that moment. Errors as of SetACL.
func (x *Xattrs) ChangeACL(ctx context.Context, c ACLChange) error {
	path, err := x.where("setacl")
	if err != nil {
		return err
	}
	at := pb.Inode(x.inode)
	if x.inode == 0 {
		at = followPath(ctx, path)
	}
	return x.fs.changeACL(ctx, path, at, c)
}

func (f *engine) changeACL(ctx context.Context, path string, at *pb.Ref, c ACLChange) error {
	req := &pb.ChangeAclRequest{Call: f.ids.Next(), Caller: f.by(ctx), At: at, Action: pb.AclAction(c.Action), Entries: c.Entries.Wire()}
	return f.mutate(ctx, "setacl", path, pb.Namenode_ChangeAcl_FullMethodName, req.Call, req)
}

func (f lowLevel) MkdirMasked(ctx context.Context, path string, mode, umask fs.FileMode, parents bool) error {
	_, err := f.mkdir(ctx, door.At(path), &pb.MkdirRequest{Mode: filemode.Unix(mode), Less: filemode.Unix(umask), Parents: parents})
	return err
}
