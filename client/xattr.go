package client

import (
	"context"
	"slices"
	"unicode/utf8"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/lowlevel/door"
	"github.com/leasefs/leasefs/internal/namecall"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// XattrMode says how Xattrs.Set takes an extended attribute that is there, or is
// not.
type XattrMode int

// The modes.
const (
	XattrAny     XattrMode = iota // make or replace it
	XattrCreate                   // Exists if it is there
	XattrReplace                  // IsNoXattr if it is missing
)

// MaxXattrValue is how many bytes the value of an extended attribute may have.
const MaxXattrValue = 12 << 10

// noXattr is the reason of the NotFound error for an extended attribute that is
// missing, as opposed to the file.
const noXattr = "no such attribute"

// IsNoXattr tells whether an error says that a file, which is there, has no
// extended attribute of that name. It is of kind NotFound.
func IsNoXattr(err error) bool { return fserror.Has(err, fserror.NotFound, noXattr) }

// Xattr is an extended attribute.
type Xattr struct {
	Name  string // "user." and more, at most 255 bytes
	Value []byte // at most MaxXattrValue; all of a file with their names at most 16 KiB
}

// Xattrs are the extended attributes of one file or directory, and its ACL. It is safe
// for concurrent use.
type Xattrs struct {
	fs    *engine
	path  string
	inode uint64 // 0: of what is at path
}

// Xattrs returns the calls about extended attributes and the ACL of a file or directory; a
// symbolic link is followed.
func (f *FS) Xattrs(path string) *Xattrs { return &Xattrs{fs: f.engine, path: path} }

// Get returns the value of one. NotFound: see IsNoXattr.
func (x *Xattrs) Get(ctx context.Context, name string) ([]byte, error) {
	all, err := x.All(ctx)
	if err != nil {
		return nil, err
	}
	for _, a := range all {
		if a.Name == name {
			return a.Value, nil
		}
	}
	return nil, fserror.New(fserror.NotFound, "getxattr", x.path, "it has no extended attribute %q", name).Because(noXattr)
}

// All returns all of them, in the order of names.
func (x *Xattrs) All(ctx context.Context) ([]Xattr, error) {
	f, path, inode := x.fs, x.path, x.inode
	const op = "getxattr"
	if inode == 0 {
		var err error
		if path, err = clean(op, path); err != nil {
			return nil, err
		}
	}
	k := readKey{readXattrs, door.Ref{Base: inode, Path: path}, asOf(ctx)}
	v, ok := f.kept(k)
	if !ok {
		v.xattrs = new(pb.XattrsResponse)
		ticket := f.beginRead()
		req := &pb.XattrsRequest{Caller: f.by(ctx), At: k.ref(ctx), Cache: f.cache != nil}
		if err := f.nn.Do(ctx, &namecall.Call{Op: op, Path: path}, pb.Namenode_Xattrs_FullMethodName, req, v.xattrs); err != nil {
			return nil, err
		}
		f.keep(ticket, k, v, v.xattrs.GetKeys())
	}
	all := make([]Xattr, len(v.xattrs.GetXattrs()))
	for i, a := range v.xattrs.GetXattrs() {
		all[i] = Xattr{Name: a.GetName(), Value: slices.Clone(a.GetValue())}
	}
	return all, nil
}

// Set sets one. Its name begins with "user.": else Unsupported. TooLarge: the name
// or the value is; NoSpace: all together are. Exists, NotFound: see XattrMode.
func (x *Xattrs) Set(ctx context.Context, name string, value []byte, mode XattrMode) error {
	return x.change(ctx, &pb.SetXattrRequest{Name: name, Value: value, Action: xattrAction(mode)})
}

// Remove removes one. NotFound: see IsNoXattr.
func (x *Xattrs) Remove(ctx context.Context, name string) error {
	return x.change(ctx, &pb.SetXattrRequest{Name: name, Action: pb.XattrAction_XATTR_ACTION_REMOVE})
}

func xattrAction(mode XattrMode) pb.XattrAction {
	switch mode {
	case XattrCreate:
		return pb.XattrAction_XATTR_ACTION_CREATE
	case XattrReplace:
		return pb.XattrAction_XATTR_ACTION_REPLACE
	}
	return pb.XattrAction_XATTR_ACTION_SET
}

func (x *Xattrs) change(ctx context.Context, req *pb.SetXattrRequest) error {
	const op = "setxattr"
	f, path := x.fs, x.path
	req.At = pb.Inode(x.inode)
	if x.inode == 0 {
		var err error
		if path, err = clean(op, path); err != nil {
			return err
		}
		req.At = followPath(ctx, path)
	}
	if !utf8.ValidString(req.Name) {
		return fserror.New(fserror.InvalidArgument, op, path, "the name %q is not valid UTF-8; names here are", req.Name)
	}
	req.Call, req.Caller = f.ids.Next(), f.by(ctx)
	return f.mutate(ctx, op, path, pb.Namenode_SetXattr_FullMethodName, req.Call, req)
}
