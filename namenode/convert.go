package namenode

import (
	"time"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/leasemanager"
	"github.com/leasefs/leasefs/namenode/leases"
	"github.com/leasefs/leasefs/namenode/namespace"
	"github.com/leasefs/leasefs/namenode/namespace/calls"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

func holderInfo(h leasemanager.Holder, since, idle time.Duration) *pb.HolderInfo {
	return &pb.HolderInfo{
		User: h.User, Client: h.Client, Session: pb.SessionName(h.Session[:]), Host: h.Host, Pid: h.PID,
		SinceMs: since.Milliseconds(), IdleMs: idle.Milliseconds(),
	}
}

// attr makes the wire form of an inode's attributes. The state of the lease is
// asked of the lease table; who holds the file is what the inode says.
func (s *desk) attr(a namespace.Attr) *pb.Attr {
	out := &pb.Attr{
		Inode: uint64(a.ID), Type: pb.FileType(a.Type), Mode: uint32(a.Mode), User: a.User, Group: a.Group,
		MtimeUnixMs: a.MTime, Length: a.Length, LinkTarget: a.LinkTarget,
		Entries: uint64(a.Entries), Snapshots: a.Snapshots, Blocks: uint64(a.Blocks), TailLength: a.TailLength, Lease: uint64(a.Lease), Xattrs: uint32(a.Xattrs), //nolint:gosec // a small number
	}
	if a.Xattr != "" {
		out.Xattr = []byte(a.Xattr)
	}
	if a.Access != nil {
		out.Acl = 1
	}
	if a.Default != nil {
		out.Acl |= 2
	}
	if a.Open != nil {
		out.Open = s.openState(*a.Open)
	}
	return out
}

func (s *desk) openState(f namespace.OpenFile) *pb.OpenState {
	st, _ := s.leases.State(uint64(f.Inode))
	return &pb.OpenState{
		Holder:      holderInfo(leases.HolderOf(f.Holder), s.since(f), st.Idle),
		Epoch:       f.Epoch,
		LeaseIdleMs: st.Idle.Milliseconds(), SoftExpired: st.SoftExpired, TakeableInMs: st.TakeableIn.Milliseconds(),
	}
}

// since is how long a file has been open under its epoch, by the journal's time.
func (s *desk) since(f namespace.OpenFile) time.Duration {
	return max(0, time.Duration(s.engine.Now()-f.Since)*time.Millisecond)
}

// held is the answer to one who wants a file that another has.
func (s *desk) held(f namespace.OpenFile, st leasemanager.State) error {
	h := f.Holder
	return &fserror.Error{
		Kind: fserror.Held, TakeableIn: st.TakeableIn,
		Holder: &fserror.Holder{User: h.User, Client: h.Client, Host: h.Host, PID: h.PID, Since: s.since(f), Idle: st.Idle},
	}
}

// ref is what a request is about.
func ref(r *pb.Ref) namespace.Ref { return calls.RefOf(r) }

func writerID(w *pb.WriterId) (namespace.Writer, error) {
	out := namespace.Writer{Inode: namespace.InodeID(w.GetInode()), Epoch: w.GetEpoch()}
	if w == nil || w.GetInode() == 0 || w.GetEpoch() == 0 || len(w.GetToken()) != len(out.Token) {
		return out, fserror.New(fserror.InvalidArgument, "", "", "the request names no writer (inode, epoch and a token of 16 bytes)")
	}
	copy(out.Token[:], w.GetToken())
	return out, nil
}

func blockOf(b *pb.Block) (namespace.Block, error) {
	var out namespace.Block
	if b == nil {
		return out, fserror.New(fserror.InvalidArgument, "", "", "the request names no block")
	}
	data, err := blockstore.DataLength(b.GetStoredLength())
	if err != nil || b.GetUsedLength() < 1 || b.GetUsedLength() > data || data > blockstore.MaxBlockSize {
		return out, fserror.New(fserror.InvalidArgument, "", "", "a block cannot have %d stored and %d used bytes", b.GetStoredLength(), b.GetUsedLength())
	}
	return namespace.Block{
		Key:    blockstore.Key{Term: b.GetTerm(), Seq: b.GetSeq()},
		Stored: uint32(b.GetStoredLength()), Used: uint32(b.GetUsedLength()), CRC: b.GetCrc32C(), //nolint:gosec // checked above
	}, nil
}
