package audit

import (
	"slices"
	"strings"

	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// reads are the methods that change nothing, without the name of their service.
var reads = map[string]bool{
	"Session": true, "RenewLease": true, "ListLeases": true, "LeaseHistory": true, "KeepAlive": true, "LeaseTimeToLive": true, "Watch": true,
	"GetFile": true, "Stat": true, "Xattrs": true, "Acl": true, "WhoAmI": true, "List": true, "Summary": true, "Find": true,
	"Status": true, "Fsck": true, "Carry": true, "ListDelegationTokens": true, "ListTrash": true, "GetQuota": true, "ListQuotas": true,
	"ListSnapshots": true, "ListSnapshotDirs": true, "DiffSnapshots": true,
}

// Asked fills in what a request to a method says: who asks, which call it is, and what for.
func (l *Line) Asked(method string, request any) {
	l.Reads = reads[method]
	if r, ok := request.(interface{ GetHello() *pb.Hello }); ok {
		request = r.GetHello()
	}
	if r, ok := request.(interface{ GetCaller() *pb.Caller }); ok {
		c := r.GetCaller()
		l.User, l.Client, l.Session = c.GetUser(), c.GetClient(), c.GetSession()
	}
	if r, ok := request.(interface{ GetCall() *pb.CallId }); ok && r.GetCall() != nil {
		l.Call, l.Session = r.GetCall().GetSeq(), r.GetCall().GetSession()
	}
	if r, ok := request.(interface{ GetWriter() *pb.WriterId }); ok && r.GetWriter() != nil {
		w := r.GetWriter()
		l.Inode, l.Epoch = w.GetInode(), w.GetEpoch()
		if len(l.Session) == 0 {
			l.Session = w.GetSession()
		}
	}
	switch r := request.(type) {
	case *pb.MakeSnapshotRequest:
		l.snapshots(r.GetAt(), r.GetName())
	case *pb.RenameSnapshotRequest:
		l.snapshots(r.GetAt(), r.GetName(), r.GetNewName())
	case *pb.DeleteSnapshotRequest:
		l.snapshots(r.GetAt(), r.GetName())
	case interface{ GetAt() *pb.Ref }:
		l.ref(r.GetAt())
	case *pb.RenameRequest:
		l.ref(r.GetFrom())
		l.ref(r.GetTo())
	case *pb.ConcatRequest:
		l.ref(r.GetTarget())
		for _, s := range r.GetSources() {
			l.ref(s)
		}
	case *pb.TransactRequest:
		for _, op := range r.GetOps() {
			l.path(0, op.GetPath())
			if to := op.GetRename().GetTo(); to != "" {
				l.path(0, to)
			}
		}
	case *pb.EmptyTrashRequest:
		l.ForGood = true
		for _, n := range r.GetInodes() {
			l.path(n, "")
		}
	case *pb.RestoreTrashRequest:
		l.path(r.GetInode(), "")
		l.ref(r.GetTo())
	case interface{ GetPath() string }:
		if p := r.GetPath(); p != "" {
			l.path(0, p)
		}
	}
	if r, ok := request.(interface{ GetSkipTrash() bool }); ok {
		l.ForGood = r.GetSkipTrash()
	}
	switch r := request.(type) {
	case *pb.ChangeDelegationTokenRequest:
		l.Token = r.GetId()
	case interface{ GetId() uint64 }: // of a granted lease
		l.Lease = r.GetId()
	case interface{ GetLease() uint64 }:
		l.Lease = r.GetLease()
	case *pb.WatchRequest:
		l.Inode = r.GetInode()
	}
}

// Answered fills in what the answer tells: what was made, and under which numbers.
func (l *Line) Answered(response any) {
	if r, ok := response.(interface{ GetTxid() uint64 }); ok && l.TxID == 0 && !l.Reads {
		l.TxID = r.GetTxid()
	}
	if r, ok := response.(interface{ GetAttr() *pb.Attr }); ok && l.Inode == 0 {
		l.Inode = r.GetAttr().GetInode()
	}
	switch r := response.(type) {
	case *pb.OpenResponse:
		if w := r.GetWriter(); w != nil {
			l.Epoch = w.GetEpoch()
		}
	case *pb.RecoverResponse:
		l.Epoch = r.GetEpoch()
	case *pb.GrantLeaseResponse:
		l.Lease = r.GetId()
	case *pb.DelegationTokenResponse:
		l.Token = r.GetId()
	}
}

// snapshots are the directory, and the paths of its snapshots that have a name, as the request has it:
// that was not checked, and may have /../ in it.
func (l *Line) snapshots(dir *pb.Ref, names ...string) {
	l.ref(dir)
	at := dir.GetPath()
	if at != "" && !strings.HasSuffix(at, "/") {
		at += "/"
	}
	for _, name := range names {
		if name != "" {
			l.path(dir.GetBase(), at+".snapshot/"+name)
		}
	}
}

func (l *Line) ref(r *pb.Ref) { l.path(r.GetBase(), r.GetPath()) }

func (l *Line) path(base uint64, path string) {
	switch p := (Path{base, path}); {
	case l.n < len(l.few):
		l.few[l.n] = p
		l.n++
	case l.many == nil:
		l.many = append(slices.Clone(l.few[:]), p)
	case len(l.many) < maxPaths:
		l.many = append(l.many, p)
	default:
		l.more++
	}
}

func (l *Line) paths() []Path {
	if l.many != nil {
		return l.many
	}
	return l.few[:l.n]
}
