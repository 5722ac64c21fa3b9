package fuse

import (
	"math"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// answers is what the kernel talks to: go-fuse's file system, but for what a node
// is not told, or cannot say.
type answers struct{ fuse.RawFileSystem }

// appendAt is the offset that stands for the end of a file.
const appendAt = math.MaxInt64

// Writev implements fuse.RawFileSystem: appends are told as such, whatever offset
// the kernel computed from the size that it believes in. What is to be durable at once
// (O_SYNC, O_DSYNC, or RWF_SYNC and RWF_DSYNC of this write alone) is synced; no signal
// ends that, since who gets EINTR writes the same bytes again.
func (a answers) Writev(cancel <-chan struct{}, in *fuse.WriteIn, data [][]byte) (uint32, fuse.Status) {
	if in.Flags&syscall.O_APPEND != 0 {
		in.Offset = appendAt
	}
	n, s := a.RawFileSystem.Writev(cancel, in, data)
	if !s.Ok() || in.Flags&(syscall.O_SYNC|syscall.O_DSYNC) == 0 {
		return n, s
	}
	if s = a.Fsync(nil, &fuse.FsyncIn{InHeader: in.InHeader, Fh: in.Fh}); !s.Ok() {
		if s == fuse.EAGAIN { // it invites to write the same bytes again, too
			s = fuse.EIO
		}
		return 0, s
	}
	return n, s
}

// askAttrs marks an answer to LOOKUP, or to CREATE: its attributes are known without
// a call, so it is worthwhile to give the kernel some to keep.
func askAttrs(out *fuse.EntryOut) { out.AttrValid = 1 }

// Lookup implements fuse.RawFileSystem: a name is looked up, and then, if that is
// asked for, answered GETATTR of what it stands for. Only now is it sure which
// node the kernel gets to know, and that it does not forget it before this answer.
func (a answers) Lookup(cancel <-chan struct{}, in *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	s := a.RawFileSystem.Lookup(cancel, in, name, out)
	a.attrs(cancel, in, s, out)
	return s
}

// Create implements fuse.RawFileSystem, as Lookup does. The kernel would ask for
// the attributes of each new file before it opens it.
func (a answers) Create(cancel <-chan struct{}, in *fuse.CreateIn, name string, out *fuse.CreateOut) fuse.Status {
	in.Mode |= in.Umask << umaskShift
	s := a.RawFileSystem.Create(cancel, in, name, out)
	a.attrs(cancel, &in.InHeader, s, &out.EntryOut)
	return s
}

// Mkdir implements fuse.RawFileSystem: a node is told the umask with the mode.
func (a answers) Mkdir(cancel <-chan struct{}, in *fuse.MkdirIn, name string, out *fuse.EntryOut) fuse.Status {
	in.Mode |= in.Umask << umaskShift
	return a.RawFileSystem.Mkdir(cancel, in, name, out)
}

// Mknod implements fuse.RawFileSystem, as Mkdir does.
func (a answers) Mknod(cancel <-chan struct{}, in *fuse.MknodIn, name string, out *fuse.EntryOut) fuse.Status {
	in.Mode |= in.Umask << umaskShift
	return a.RawFileSystem.Mknod(cancel, in, name, out)
}

// attrs answers GETATTR of a node that the kernel is about to be told of, if that
// is asked for.
func (a answers) attrs(cancel <-chan struct{}, in *fuse.InHeader, s fuse.Status, out *fuse.EntryOut) {
	asked := out.AttrValid != 0
	out.SetAttrTimeout(0)
	if !s.Ok() || !asked {
		return
	}
	get := fuse.GetAttrIn{InHeader: *in}
	get.NodeId = out.NodeId
	var attr fuse.AttrOut
	if a.RawFileSystem.GetAttr(cancel, &get, &attr).Ok() {
		out.Attr = attr.Attr
		out.SetAttrTimeout(attr.Timeout())
	}
}
