package client

import (
	"context"
	"time"

	"google.golang.org/grpc"

	"github.com/leasefs/leasefs/internal/blockio"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/namecall"
	"github.com/leasefs/leasefs/internal/report"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// statusTime is how long Status waits for namenodes.
const statusTime = 5 * time.Second

// Status asks every namenode of the configuration, at once, how it is. If none
// of them is active, the one that they say is active is asked too, and comes
// last. One that has not answered when Status has taken five seconds has Err set.
// The error is that of the context alone.
func (f *FS) Status(ctx context.Context) ([]NamenodeStatus, error) {
	return report.OfAll(ctx, f.nn, f.caller, statusTime)
}

// QueryStatus is FS.Status without an FS: it opens no session, so it needs no
// active namenode. It takes cfg.Timeout (0: five seconds) at most; one that has not
// answered by then has Err set. InvalidArgument: the configuration makes no sense.
func QueryStatus(ctx context.Context, cfg Config) ([]NamenodeStatus, error) {
	limit := cfg.Timeout
	if limit <= 0 {
		limit = statusTime
	}
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	defer cfg.prover.Close()
	caller := &pb.Caller{User: cfg.User, RealUser: cfg.RealUser, Client: cfg.Client, Host: cfg.Host, Pid: cfg.PID}
	nn, err := namecall.New(ctx, cfg.namenodes(caller))
	if err != nil {
		return nil, err
	}
	defer nn.Close()
	return report.OfAll(ctx, nn, caller, limit)
}

// Admin is what operators do. All of it needs the superuser: Permission
// otherwise. It is safe for concurrent use.
type Admin struct{ fs *FS }

// Admin returns the operators' calls.
func (f *FS) Admin() *Admin { return &Admin{fs: f} }

// Failover makes the active namenode hand over to the next one, whose address
// it returns. It happens once, however often replies are lost: what is asked for
// is the end of the term that is active when it begins. As long as no standby has
// room and all changes it is asked for again, until the Timeout: then Retry, with the
// reason of each, or that there is none. Unsupported if the namenode serves alone.
func (a *Admin) Failover(ctx context.Context) (next string, err error) {
	term, err := a.activeTerm(ctx)
	if err != nil {
		return "", err
	}
	r := new(pb.FailoverResponse)
	err = a.fs.nn.Do(ctx, &namecall.Call{Op: "failover"}, pb.Admin_Failover_FullMethodName, &pb.FailoverRequest{Caller: a.fs.caller, Term: term}, r)
	return r.GetNext(), err
}

// activeTerm is the term of whoever is active now.
func (a *Admin) activeTerm(ctx context.Context) (term uint64, err error) {
	w := a.fs.nn.Waits("failover", "")
	err = w.Try(ctx, func() error {
		// This is answered by the active one alone, wherever it is.
		q := &pb.SafeModeRequest{Caller: a.fs.caller, Action: pb.SafeModeRequest_ACTION_GET}
		if err := a.fs.nn.Do(ctx, &namecall.Call{Op: "failover"}, pb.Admin_SafeMode_FullMethodName, q, new(pb.SafeModeResponse)); err != nil {
			return err
		}
		asking, cancel := context.WithTimeout(ctx, statusTime)
		defer cancel()
		s := report.Of(asking, a.fs.nn.Active(), a.fs.caller)
		if s.Err != nil || s.Role != "active" {
			return fserror.New(fserror.Unavailable, "failover", "", "no namenode stays active for long enough to be asked")
		}
		term = s.Term
		return nil
	})
	return term, err
}

// Checkpoint has the active namenode write an image of the tree now.
func (a *Admin) Checkpoint(ctx context.Context) (CheckpointResult, error) {
	r := new(pb.CheckpointResponse)
	c := namecall.Call{Op: "checkpoint", Wait: namecall.NoLimit}
	if err := a.fs.nn.Do(ctx, &c, pb.Admin_Checkpoint_FullMethodName, &pb.CheckpointRequest{Caller: a.fs.caller}, r); err != nil {
		return CheckpointResult{}, err
	}
	return CheckpointResult{TxID: r.GetTxid(), Bytes: r.GetBytes(), Duration: ms(r.GetDurationMs())}, nil
}

// SafeMode enters or leaves safe mode, in which changes are refused (Retry)
// and no lease expires, or tells whether it is on.
func (a *Admin) SafeMode(ctx context.Context, action SafeModeAction) (SafeModeState, error) {
	req := &pb.SafeModeRequest{Caller: a.fs.caller, Action: pb.SafeModeRequest_ACTION_GET}
	switch action {
	case SafeModeGet:
	case SafeModeEnter:
		req.Action = pb.SafeModeRequest_ACTION_ENTER
	case SafeModeLeave:
		req.Action = pb.SafeModeRequest_ACTION_LEAVE
	default:
		return SafeModeState{}, fserror.New(fserror.InvalidArgument, "safemode", "", "unknown action %d", action)
	}
	r := new(pb.SafeModeResponse)
	if err := a.fs.nn.Do(ctx, &namecall.Call{Op: "safemode"}, pb.Admin_SafeMode_FullMethodName, req, r); err != nil {
		return SafeModeState{}, err
	}
	return SafeModeState{On: r.GetOn(), Why: r.GetWhy()}, nil
}

// Fsck checks what is below path (empty: everything) against itself and the
// leases; with blocks, every block is read and verified too. Each problem goes
// to fn, and each block that could not be checked; its error ends the check and is
// returned.
func (a *Admin) Fsck(ctx context.Context, path string, blocks bool, fn func(FsckProblem) error) (FsckSummary, error) {
	if path != "" {
		var err error
		if path, err = clean("fsck", path); err != nil {
			return FsckSummary{}, err
		}
	}
	var sum *pb.FsckSummary
	req := &pb.FsckRequest{Caller: a.fs.caller, Blocks: blocks, Path: path}
	err := namecall.Receive(ctx, a.fs.nn, "fsck", path, func(ctx context.Context, c grpc.ClientConnInterface) (grpc.ServerStreamingClient[pb.FsckResponse], error) {
		return pb.NewAdminClient(c).Fsck(ctx, req)
	}, func(m *pb.FsckResponse) (bool, error) {
		if m.GetSummary() != nil {
			sum = m.GetSummary()
		}
		if m.GetProblem() == "" || fn == nil {
			return true, nil
		}
		err := fn(FsckProblem{Path: m.GetPath(), Problem: m.GetProblem(), Unchecked: m.GetUnchecked()})
		return err == nil, err
	})
	if err == nil && sum == nil {
		err = fserror.New(fserror.Internal, "fsck", path, "the check ended without a summary: it is not complete")
	}
	return FsckSummary{
		Inodes: sum.GetInodes(), Blocks: sum.GetBlocks(), Problems: sum.GetProblems(), BytesVerified: sum.GetBytesVerified(),
		Unchecked: sum.GetUnchecked(),
	}, err
}

// ReadBackup has the active namenode send a backup, without blocks if treeOnly,
// and hands each its messages in their order, until the last one or until it wants
// no more or fails: its error is returned. Blocks that the namenode does not send
// itself are named by URLs, for ReadBlock; it keeps them until the call ends. Once
// a message has come, a connection that is lost ends the call: Unavailable.
func (a *Admin) ReadBackup(ctx context.Context, treeOnly bool, each func(*pb.BackupResponse) (more bool, err error)) error {
	req := &pb.BackupRequest{Caller: a.fs.caller, TreeOnly: treeOnly}
	return namecall.Receive(ctx, a.fs.nn, "backup", "", func(ctx context.Context, c grpc.ClientConnInterface) (grpc.ServerStreamingClient[pb.BackupResponse], error) {
		return pb.NewAdminClient(c).Backup(ctx, req)
	}, each)
}

// ReadBlock reads a block that a message of ReadBackup names by its URL into dst,
// which has the block's length. It tries once, and verifies nothing.
func (a *Admin) ReadBlock(ctx context.Context, m *pb.BackupResponse, dst []byte) error {
	return a.fs.blobs.Download(ctx, blockio.StallTime, m.GetUrl(), m.GetHeaders(), 0, m.GetLength(), dst)
}

// Collect runs the collector of garbage blocks now.
func (a *Admin) Collect(ctx context.Context) (CollectResult, error) {
	r := new(pb.CollectResponse)
	c := namecall.Call{Op: "gc", Wait: namecall.NoLimit}
	if err := a.fs.nn.Do(ctx, &c, pb.Admin_Collect_FullMethodName, &pb.CollectRequest{Caller: a.fs.caller}, r); err != nil {
		return CollectResult{}, err
	}
	return CollectResult{Garbage: r.GetGarbage(), Deleted: r.GetDeleted(), Waiting: r.GetWaiting(), Orphans: r.GetOrphans()}, nil
}

// ResolveStore gives a block store that copies of the namespace have used, too, to
// the one that the active namenode serves; the others end. It reports whether there
// was such a conflict.
func (a *Admin) ResolveStore(ctx context.Context) (bool, error) {
	r := new(pb.ResolveStoreResponse)
	c := namecall.Call{Op: "resolve", Wait: namecall.NoLimit}
	err := a.fs.nn.Do(ctx, &c, pb.Admin_ResolveStore_FullMethodName, &pb.ResolveStoreRequest{Caller: a.fs.caller}, r)
	return r.GetResolved(), err
}
