package client

import (
	"io/fs"
	"time"

	"github.com/leasefs/leasefs/internal/fserror"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// OpenOption changes how Create, Append, WriteFile, WriteFiles and WriteFrom open a file.
// An option that does not apply to the call is ignored.
type OpenOption func(*openOptions)

type openOptions struct {
	mode      fs.FileMode
	hasMode   bool
	less      fs.FileMode // bits that mode loses, unless a default ACL takes their place
	overwrite bool
	steal     bool
	parents   bool
	mtime     time.Time
	create    bool
	expected  int64
	hasLength bool
	wait      time.Duration
	lease     LeaseID
	length    int64        // with cut
	unchanged time.Time    // with hasLength
	inode     uint64       // instead of the path
	writer    *pb.WriterId // that the new one replaces
	xattrs    []Xattr
	owner     Owner
	acl       ACL
	describe  bool // as CreateRequest has it

	cut, resume bool // to length; as AppendRequest has it
}

func gather(opts []OpenOption) openOptions {
	var o openOptions
	for _, f := range opts {
		f(&o)
	}
	return o
}

// WithMode sets the permission bits (and the sticky bit) of a file that is
// made, or that Create replaces. Without it they are 0644 (see Config.Umask), and
// a file that is replaced hands its own on. Append changes them of no file that
// exists.
func WithMode(mode fs.FileMode) OpenOption {
	return func(o *openOptions) { o.mode, o.hasMode = mode, true }
}

// WithACL gives a file its ACL before it gets its name. It is for WriteFrom and WriteFile alone,
// and the mode is then what the ACL says. Errors as of SetACL.
func WithACL(acl ACL) OpenOption {
	return func(o *openOptions) { o.acl = acl }
}

// WithUmask takes bits from the mode of WithMode, unless the file is made in a directory
// with a default ACL: what it inherits takes their place, as with umask(2).
func WithUmask(mask fs.FileMode) OpenOption {
	return func(o *openOptions) { o.less = mask }
}

// Owner is a user and a group. An empty one is not said.
type Owner struct{ User, Group string }

func (o Owner) wire() *pb.Owner {
	if o == (Owner{}) {
		return nil
	}
	return &pb.Owner{User: o.User, Group: o.Group}
}

// notSuper is the reason of the Permission error for who gives away and may not.
const notSuper = "no superuser"

// IsNotSuperuser tells whether an error says that the caller cannot make
// something for another (WithOwner), whatever it is. It is of kind Permission.
func IsNotSuperuser(err error) bool { return fserror.Has(err, fserror.Permission, notSuper) }

// WithOwner gives a file that Create, WriteFile or WriteFiles makes, and missing
// parents of it, to another in the same step. What is not said is as without it:
// the user who asks, the group of the directory. Only a superuser may: IsNotSuperuser.
func WithOwner(owner Owner) OpenOption { return func(o *openOptions) { o.owner = owner } }

// WithOverwrite lets Create replace an existing file. One that another holds
// for write is still refused (kind Held).
func WithOverwrite() OpenOption { return func(o *openOptions) { o.overwrite = true } }

// WithSteal goes with WithOverwrite: a file that another holds is replaced too;
// the holder is fenced and gets LeaseLost with its next call.
func WithSteal() OpenOption { return func(o *openOptions) { o.steal = true } }

// WithParents makes missing parent directories.
func WithParents() OpenOption { return func(o *openOptions) { o.parents = true } }

// WithMTime gives a file made by Create, WriteFile or WriteFiles a modification
// time (milliseconds count) other than that of its close.
func WithMTime(t time.Time) OpenOption { return func(o *openOptions) { o.mtime = t } }

// WithExpectedLength lets Append succeed only if the file's length is n bytes;
// else kind NotAtEnd, with the true length. So a writer that resumes after a
// crash appends each record exactly once.
func WithExpectedLength(n int64) OpenOption {
	return func(o *openOptions) { o.expected, o.hasLength = n, true }
}

// WithCreate lets Append make a file that is missing.
func WithCreate() OpenOption { return func(o *openOptions) { o.create = true } }

// WithWait lets Append wait up to d for a holder to finish or to lapse.
func WithWait(d time.Duration) OpenOption { return func(o *openOptions) { o.wait = d } }

// WithLease attaches a file that is made to a granted lease: it is deleted when
// the lease ends.
func WithLease(id LeaseID) OpenOption { return func(o *openOptions) { o.lease = id } }

// WithCut makes Append cut the file to n bytes, not more than it has (else
// Unsupported), in one step with taking its lease.
func WithCut(n int64) OpenOption { return func(o *openOptions) { o.cut, o.length = true, n } }

// WithXattrs gives a file that is made extended attributes: it is there with all of
// them or not at all. All but WriteFrom take 64 at most. Errors as of Xattrs.Set.
func WithXattrs(all []Xattr) OpenOption { return func(o *openOptions) { o.xattrs = all } }

// WithExpectedModTime makes Append, with WithExpectedLength, refuse a file whose
// modification time is another: NotAtEnd.
func WithExpectedModTime(t time.Time) OpenOption { return func(o *openOptions) { o.unchanged = t } }
