package hdfs

import (
	"context"
	"io/fs"
	"math"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/gateway/hadoop"
	pb "github.com/leasefs/leasefs/gateway/hdfs/hadoop"
	"github.com/leasefs/leasefs/internal/fspath"
)

// mode is a file's mode; as HDFS, it forgets bits that are none of a mode.
func mode(p *pb.FsPermissionProto) fs.FileMode {
	m, _ := hadoop.Mode(p.GetPerm() & 0o1777)
	return m
}

// unmasked is the mode of something new as the client has it before its umask, and what the
// umask takes from that: where a default ACL is inherited, no umask counts.
func unmasked(masked, whole *pb.FsPermissionProto) (m, less fs.FileMode) {
	if whole == nil {
		return mode(masked), 0
	}
	return mode(whole), mode(whole) &^ mode(masked)
}

func (q change) mkdirs(ctx context.Context, m *pb.MkdirsRequestProto) (proto.Message, error) {
	p, err := q.path(ctx, m.GetSrc())
	if err != nil {
		return nil, err
	}
	perm, less := unmasked(m.GetMasked(), m.GetUnmasked())
	err = q.fs.MkdirMasked(ctx, p, perm, less, m.GetCreateParent())
	if client.KindOf(err) == client.ErrExists {
		if i, serr := q.fs.Stat(ctx, p); serr == nil && i.IsDir() {
			err = nil
		}
	}
	return yes(true, err)
}

func (q change) createSymlink(ctx context.Context, m *pb.CreateSymlinkRequestProto) (proto.Message, error) {
	p, err := q.path(ctx, m.GetLink())
	if err != nil {
		return nil, err
	}
	if dir, _ := fspath.Split(p); m.GetCreateParent() {
		if err := q.fs.MkdirAll(ctx, dir, mode(m.GetDirPerm())); err != nil {
			return nil, err
		}
	}
	return done(q.fs.Symlink(ctx, m.GetTarget(), p))
}

// both are the two paths of a rename.
func (q change) both(ctx context.Context, src, dst string) (from, to string, err error) {
	if from, err = q.path(ctx, src); err == nil {
		to, err = q.path(ctx, dst)
	}
	return from, to, err
}

func (q change) rename(ctx context.Context, m *pb.RenameRequestProto) (proto.Message, error) {
	from, to, err := q.both(ctx, m.GetSrc(), m.GetDst())
	if err != nil {
		return nil, err
	}
	return yes(q.fs.RenameInto(ctx, from, to))
}

func (q change) rename2(ctx context.Context, m *pb.Rename2RequestProto) (proto.Message, error) {
	from, to, err := q.both(ctx, m.GetSrc(), m.GetDst())
	if err != nil {
		return nil, err
	}
	return done(q.fs.RenameStrictly(ctx, from, to, m.GetOverwriteDest()))
}

func (q change) delete(ctx context.Context, m *pb.DeleteRequestProto) (proto.Message, error) {
	p, err := q.path(ctx, m.GetSrc())
	if err != nil {
		return nil, err
	}
	return yes(q.fs.Delete(ctx, p, m.GetRecursive()))
}

func (q change) concat(ctx context.Context, m *pb.ConcatRequestProto) (proto.Message, error) {
	p, err := q.path(ctx, m.GetTrg())
	if err != nil {
		return nil, err
	}
	return done(q.fs.Join(ctx, p, m.GetSrcs()))
}

func (q change) setReplication(ctx context.Context, m *pb.SetReplicationRequestProto) (proto.Message, error) {
	p, err := q.path(ctx, m.GetSrc())
	if err != nil {
		return nil, err
	}
	return yes(q.fs.SetReplication(ctx, p, int64(m.GetReplication())))
}

func (q change) setQuota(ctx context.Context, m *pb.SetQuotaRequestProto) (proto.Message, error) {
	p, err := q.path(ctx, m.GetPath())
	switch {
	case err != nil:
		return nil, err
	case m.StorageType != nil:
		return nil, hadoop.Refuse(hadoop.Unsupported, "%s: leasefs has no quotas by storage type; see docs/HADOOP.md", q.call.Method)
	}
	return done(q.fs.SetQuota(ctx, p, int64(m.GetNamespaceQuota()), int64(m.GetStoragespaceQuota()))) //nolint:gosec // as Java has it
}

func (q change) setOwner(ctx context.Context, m *pb.SetOwnerRequestProto) (proto.Message, error) {
	p, err := q.path(ctx, m.GetSrc())
	if err != nil {
		return nil, err
	}
	if m.GetUsername() == "" && m.GetGroupname() == "" {
		return nil, hadoop.Refuse(hadoop.IllegalArgument, "Both owner and group are empty.")
	}
	return done(q.fs.Chown(ctx, p, m.GetUsername(), m.GetGroupname()))
}

func (q change) setPermission(ctx context.Context, m *pb.SetPermissionRequestProto) (proto.Message, error) {
	p, err := q.path(ctx, m.GetSrc())
	if err != nil {
		return nil, err
	}
	return done(q.fs.Chmod(ctx, p, mode(m.GetPermission())))
}

// maxMillis is the end of the year 9999.
const maxMillis = 253402300799999

// setTimes sets the time of modification. There is none of access.
func (q change) setTimes(ctx context.Context, m *pb.SetTimesRequestProto) (proto.Message, error) {
	p, err := q.path(ctx, m.GetSrc())
	if err != nil {
		return nil, err
	}
	if m.GetMtime() > math.MaxInt64 { // below 0 in Java: it stays
		_, err = q.fs.Stat(ctx, p)
		return done(err)
	}
	if m.GetMtime() > maxMillis {
		return nil, hadoop.Refuse(hadoop.HadoopIllegal, "%d ms after 1970 are after the year 9999", m.GetMtime())
	}
	return done(q.fs.Chtimes(ctx, p, time.UnixMilli(int64(m.GetMtime())))) //nolint:gosec // it was looked at
}

// Bits of a flag of setXAttr.
const (
	createXattr  = 1
	replaceXattr = 2
)

func (q change) setXattr(ctx context.Context, m *pb.SetXAttrRequestProto) (proto.Message, error) {
	p, err := q.path(ctx, m.GetSrc())
	if err != nil {
		return nil, err
	}
	name, err := hadoop.XattrName(m.GetXAttr().GetNamespace().String(), m.GetXAttr().GetName())
	if err != nil {
		return nil, err
	}
	how := client.XattrAny
	switch m.GetFlag() {
	case createXattr:
		how = client.XattrCreate
	case replaceXattr:
		how = client.XattrReplace
	}
	return done(hadoop.NoXattr(q.fs.Xattrs(p).Set(ctx, name, m.GetXAttr().GetValue(), how)))
}

func (q change) removeXattr(ctx context.Context, m *pb.XAttrsRequestProto) (proto.Message, error) {
	p, err := q.path(ctx, m.GetSrc())
	if err != nil {
		return nil, err
	}
	if len(m.GetXAttrs()) != 1 {
		return nil, hadoop.Refuse(hadoop.HadoopIllegal, "removeXAttr: it removes one attribute, not %d", len(m.GetXAttrs()))
	}
	x := m.GetXAttrs()[0]
	name, err := hadoop.XattrName(x.GetNamespace().String(), x.GetName())
	if err != nil {
		return nil, err
	}
	err = q.fs.Xattrs(p).Remove(ctx, name)
	if client.IsNoXattr(err) {
		return nil, hadoop.Refuse(hadoop.XattrNotFound, "No matching attributes found for remove operation")
	}
	return done(err)
}

// setSafeMode is the operators' call, of which clients ask the state, too.
func (q change) setSafeMode(ctx context.Context, m *pb.SetSafeModeRequestProto) (proto.Message, error) {
	how := client.SafeModeGet
	switch m.GetAction() {
	case pb.SetSafeModeRequestProto_SAFEMODE_ENTER:
		how = client.SafeModeEnter
	case pb.SetSafeModeRequestProto_SAFEMODE_LEAVE, pb.SetSafeModeRequestProto_SAFEMODE_FORCE_EXIT:
		how = client.SafeModeLeave
	}
	st, err := q.fs.Admin().SafeMode(ctx, how)
	return yes(st.On, err)
}
