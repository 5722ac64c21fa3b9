package namenode_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fserror/wire"
	"github.com/leasefs/leasefs/internal/proof"
	"github.com/leasefs/leasefs/namenode"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
	"github.com/leasefs/leasefs/test/env"
)

// methods are the names of all calls, of both services, and their full names.
func methods() map[string]string {
	all := map[string]string{}
	for _, d := range []grpc.ServiceDesc{pb.Namenode_ServiceDesc, pb.Admin_ServiceDesc} {
		for _, m := range d.Methods {
			all[m.MethodName] = "/" + d.ServiceName + "/" + m.MethodName
		}
		for _, s := range d.Streams {
			all[s.StreamName] = "/" + d.ServiceName + "/" + s.StreamName
		}
	}
	return all
}

// link is one connection of a client that may vanish.
type link struct {
	nn    pb.NamenodeClient
	admin pb.AdminClient
	calls pb.CallsClient
}

func linkOf(cc grpc.ClientConnInterface) link {
	return link{pb.NewNamenodeClient(cc), pb.NewAdminClient(cc), pb.NewCallsClient(cc)}
}

// a sending is a call as it is sent, over any connection, any number of times.
type sending func(ctx context.Context, l link) error

// all reads a stream to its end.
func all[Resp any](st grpc.ServerStreamingClient[Resp], err error) error {
	for err == nil {
		_, err = st.Recv()
	}
	if err == io.EOF { //nolint:errorlint // streams return it bare
		return nil
	}
	return err
}

// first reads one answer of a stream.
func first[Resp any](recv func() (*Resp, error), err error) error {
	if err == nil {
		_, err = recv()
	}
	return err
}

// vanisher makes, for each call, a new sending that has something to do.
type vanisher struct {
	t *testing.T
	n *env.Namenode
	r *env.Raw
	w *pb.WriterId // of /w, which stays open all the time
	i int

	super    *env.Raw // a superuser, if r is none
	sessions [][]byte // of those beside r
}

func (v *vanisher) path() string {
	v.i++
	return fmt.Sprintf("/v/%d", v.i)
}

// raw is another session of the same user.
func (v *vanisher) raw(name string) *env.Raw {
	r := asUser(v.n.Raw(v.t, name), v.r.Who.GetUser())
	v.sessions = append(v.sessions, r.Who.GetSession())
	return r
}

// trashed deletes a file, and returns its entry in the trash.
func (v *vanisher) trashed() uint64 {
	v.t.Helper()
	ctx, r, dir := v.t.Context(), v.r, v.path()
	r.Create(dir + "/f")
	a, err := r.NN.Stat(ctx, &pb.StatRequest{Caller: r.Who, At: pb.At(dir + "/f")})
	if err == nil {
		_, err = r.NN.SetXattr(ctx, &pb.SetXattrRequest{Call: r.Call(), Caller: r.Who, At: pb.At(dir), Name: "user.leasefs.trash", Value: []byte("7d")})
	}
	if err == nil {
		_, err = r.NN.Delete(ctx, &pb.DeleteRequest{Call: r.Call(), Caller: r.Who, At: pb.At(dir + "/f")})
	}
	if err != nil {
		v.t.Fatal(err)
	}
	return a.GetAttr().GetInode()
}

// snapshotted makes a directory that may have snapshots, and has so many: 0, 1 and so on.
func (v *vanisher) snapshotted(n int) *pb.Ref {
	v.t.Helper()
	ctx, r, dir := v.t.Context(), v.r, v.path()
	r.Create(dir + "/f")
	super := v.super
	if super == nil {
		super = r
	}
	if _, err := super.NN.AllowSnapshots(ctx, &pb.AllowSnapshotsRequest{Call: super.Call(), Caller: super.Who, At: pb.At(dir), Allow: true}); err != nil {
		v.t.Fatal(err)
	}
	for i := range n {
		if _, err := r.NN.MakeSnapshot(ctx, &pb.MakeSnapshotRequest{Call: r.Call(), Caller: r.Who, At: pb.At(dir), Name: fmt.Sprint(i)}); err != nil {
			v.t.Fatal(err)
		}
	}
	return pb.At(dir)
}

// file makes a closed file.
func (v *vanisher) file(data string) string {
	v.t.Helper()
	p := v.path()
	w := v.r.Create(p)
	if err := v.r.Flush(w, 0, data); err != nil {
		v.t.Fatal(err)
	}
	if err := v.r.Close(w, int64(len(data))); err != nil {
		v.t.Fatal(err)
	}
	return p
}

func (v *vanisher) lease() uint64 {
	v.t.Helper()
	g, err := v.r.NN.GrantLease(v.t.Context(), &pb.GrantLeaseRequest{Call: v.r.Call(), Caller: v.r.Who, TtlMs: 3_600_000})
	if err != nil {
		v.t.Fatal(err)
	}
	return g.GetId()
}

// sendings are all calls. waits: such a call answers when something happens, so
// nothing can be said of its end.
func (v *vanisher) sendings() (list map[string]func() sending, waits map[string]bool) {
	r := v.r
	who := r.Who
	data := []byte("some bytes")
	return map[string]func() sending{
		"Session": func() sending {
			caller := v.raw("v").Who
			return func(ctx context.Context, l link) error {
				st, err := l.nn.Session(ctx)
				if err != nil {
					return err
				}
				_ = st.Send(&pb.SessionRequest{Kind: &pb.SessionRequest_Hello{Hello: &pb.Hello{Caller: caller}}}) // Recv knows why not
				return first(st.Recv, nil)
			}
		},
		"RenewLease": func() sending {
			return func(ctx context.Context, l link) error {
				_, err := l.nn.RenewLease(ctx, &pb.RenewLeaseRequest{Session: who.GetSession(), Caller: who})
				return err
			}
		},
		"ListLeases": func() sending {
			return func(ctx context.Context, l link) error {
				_, err := l.nn.ListLeases(ctx, &pb.ListLeasesRequest{Caller: who})
				return err
			}
		},
		"LeaseHistory": func() sending {
			return func(ctx context.Context, l link) error {
				_, err := l.nn.LeaseHistory(ctx, &pb.LeaseHistoryRequest{Caller: who, Path: "/w"})
				return err
			}
		},
		"Recover": func() sending {
			p := v.path()
			v.raw("other").Create(p)
			req := &pb.RecoverRequest{Call: r.Call(), Caller: who, At: pb.Follow(p), Force: true}
			return func(ctx context.Context, l link) error { _, err := l.nn.Recover(ctx, req); return err }
		},
		"GrantLease": func() sending {
			req := &pb.GrantLeaseRequest{Call: r.Call(), Caller: who, TtlMs: 3_600_000}
			return func(ctx context.Context, l link) error { _, err := l.nn.GrantLease(ctx, req); return err }
		},
		"GetDelegationToken": func() sending {
			hash := sha256.Sum256([]byte(v.path()))
			req := &pb.GetDelegationTokenRequest{Call: r.Call(), Caller: who, Hash: hash[:]}
			return func(ctx context.Context, l link) error { _, err := l.nn.GetDelegationToken(ctx, req); return err }
		},
		"ChangeDelegationToken": func() sending {
			hash := sha256.Sum256([]byte(v.path()))
			t, err := r.NN.GetDelegationToken(v.t.Context(), &pb.GetDelegationTokenRequest{Call: r.Call(), Caller: who, Hash: hash[:]})
			if err != nil {
				v.t.Fatal(err)
			}
			req := &pb.ChangeDelegationTokenRequest{Call: r.Call(), Caller: who, Id: t.GetId(), Cancel: true}
			return func(ctx context.Context, l link) error { _, err := l.nn.ChangeDelegationToken(ctx, req); return err }
		},
		"ListDelegationTokens": func() sending {
			return func(ctx context.Context, l link) error {
				_, err := l.nn.ListDelegationTokens(ctx, &pb.ListDelegationTokensRequest{Caller: who, All: true})
				return err
			}
		},
		"RevokeLease": func() sending {
			req := &pb.RevokeLeaseRequest{Call: r.Call(), Caller: who, Id: v.lease()}
			return func(ctx context.Context, l link) error { _, err := l.nn.RevokeLease(ctx, req); return err }
		},
		"KeepAlive": func() sending {
			req := &pb.KeepAliveRequest{Caller: who, Ids: []uint64{v.lease()}}
			return func(ctx context.Context, l link) error {
				st, err := l.nn.KeepAlive(ctx)
				if err != nil {
					return err
				}
				_ = st.Send(req) // Recv knows why not
				return first(st.Recv, nil)
			}
		},
		"LeaseTimeToLive": func() sending {
			req := &pb.LeaseTimeToLiveRequest{Caller: who, Id: v.lease(), Files: true}
			return func(ctx context.Context, l link) error { _, err := l.nn.LeaseTimeToLive(ctx, req); return err }
		},
		"AttachLease": func() sending {
			req := &pb.AttachLeaseRequest{Call: r.Call(), Caller: who, Id: v.lease(), At: pb.At(v.file("x"))}
			return func(ctx context.Context, l link) error { _, err := l.nn.AttachLease(ctx, req); return err }
		},
		"DetachLease": func() sending {
			p := v.file("x")
			if _, err := r.NN.AttachLease(v.t.Context(), &pb.AttachLeaseRequest{Call: r.Call(), Caller: who, Id: v.lease(), At: pb.At(p)}); err != nil {
				v.t.Fatal(err)
			}
			req := &pb.DetachLeaseRequest{Call: r.Call(), Caller: who, At: pb.At(p)}
			return func(ctx context.Context, l link) error { _, err := l.nn.DetachLease(ctx, req); return err }
		},
		"Watch": func() sending {
			return func(ctx context.Context, l link) error {
				st, err := l.nn.Watch(ctx, &pb.WatchRequest{Caller: who, Path: "/", Recursive: true})
				if err != nil {
					return err
				}
				return first(st.Recv, nil)
			}
		},
		"Create": func() sending {
			req := &pb.CreateRequest{Call: r.Call(), Caller: who, At: pb.At(v.path()), Parents: true}
			return func(ctx context.Context, l link) error { _, err := l.nn.Create(ctx, req); return err }
		},
		"Append": func() sending {
			// /w is held by another client all the time: it waits.
			req := &pb.AppendRequest{Call: r.Call(), Caller: v.raw("b").Who, At: pb.Follow("/w"), WaitMs: 60_000}
			req.Call.Session = req.Caller.GetSession()
			return func(ctx context.Context, l link) error { _, err := l.nn.Append(ctx, req); return err }
		},
		"AppendTail": func() sending {
			req := env.TailRequest(r.Create(v.path()), 0, string(data))
			return func(ctx context.Context, l link) error { _, err := l.nn.AppendTail(ctx, req); return err }
		},
		"AllocateBlock": func() sending {
			object, sum := blockstore.Seal(bytes.Clone(data))
			req := &pb.AllocateBlockRequest{Writer: r.Create(v.path()), Blocks: []*pb.BlockIntent{{StoredLength: int64(len(object)), Crc32C: sum}}}
			return func(ctx context.Context, l link) error { _, err := l.nn.AllocateBlock(ctx, req); return err }
		},
		"Commit": func() sending {
			w := r.Create(v.path())
			b, err := r.PutBlock(w, data)
			if err != nil {
				v.t.Fatal(err)
			}
			req := env.CommitRequest(w, 0, b, "")
			return func(ctx context.Context, l link) error { _, err := l.nn.Commit(ctx, req); return err }
		},
		"Close": func() sending {
			req := &pb.CloseRequest{Call: r.Call(), Writer: r.Create(v.path()), Data: data, Crc32C: crc(data), Length: int64(len(data))}
			return func(ctx context.Context, l link) error { _, err := l.nn.Close(ctx, req); return err }
		},
		"CancelOpen": func() sending {
			call := r.Call()
			if _, err := r.NN.Create(v.t.Context(), &pb.CreateRequest{Call: call, Caller: who, At: pb.At(v.path())}); err != nil {
				v.t.Fatal(err)
			}
			return func(ctx context.Context, l link) error {
				_, err := l.nn.CancelOpen(ctx, &pb.CancelOpenRequest{Call: call, Caller: who})
				return err
			}
		},
		"CloseAbandoned": func() sending {
			p := v.path()
			earlier := v.raw("c")
			end := earlier.Connect()
			earlier.Create(p)
			end()
			later := v.raw("c")
			req := &pb.CloseAbandonedRequest{Call: later.Call(), Caller: later.Who, At: pb.Follow(p)}
			return func(ctx context.Context, l link) error { _, err := l.nn.CloseAbandoned(ctx, req); return err }
		},
		"GetFile": func() sending {
			return func(ctx context.Context, l link) error {
				_, err := l.nn.GetFile(ctx, &pb.GetFileRequest{Caller: who, At: pb.Follow("/w"), WaitBeyond: 100, WaitMs: 60_000})
				return err
			}
		},
		"Stat": func() sending {
			return func(ctx context.Context, l link) error {
				_, err := l.nn.Stat(ctx, &pb.StatRequest{Caller: who, At: pb.At("/w")})
				return err
			}
		},
		"List": func() sending {
			return func(ctx context.Context, l link) error {
				_, err := l.nn.List(ctx, &pb.ListRequest{Caller: who, At: pb.Follow("/v")})
				return err
			}
		},
		"Summary": func() sending {
			return func(ctx context.Context, l link) error {
				_, err := l.nn.Summary(ctx, &pb.SummaryRequest{Caller: who, At: pb.Follow("/")})
				return err
			}
		},
		"Find": func() sending {
			return func(ctx context.Context, l link) error {
				return all(l.nn.Find(ctx, &pb.FindRequest{Caller: who, At: pb.Follow("/")}))
			}
		},
		"Mkdir": func() sending {
			req := &pb.MkdirRequest{Call: r.Call(), Caller: who, At: pb.At(v.path() + "/a/b"), Parents: true}
			return func(ctx context.Context, l link) error { _, err := l.nn.Mkdir(ctx, req); return err }
		},
		"Rename": func() sending {
			req := &pb.RenameRequest{Call: r.Call(), Caller: who, From: pb.At(v.file("x")), To: pb.At(v.path())}
			return func(ctx context.Context, l link) error { _, err := l.nn.Rename(ctx, req); return err }
		},
		"Delete": func() sending {
			dir := v.path()
			for i := range 20 {
				r.Create(fmt.Sprintf("%s/%d", dir, i))
			}
			req := &pb.DeleteRequest{Call: r.Call(), Caller: who, At: pb.At(dir), Recursive: true}
			return func(ctx context.Context, l link) error { _, err := l.nn.Delete(ctx, req); return err }
		},
		"ListTrash": func() sending {
			v.trashed()
			return func(ctx context.Context, l link) error {
				_, err := l.nn.ListTrash(ctx, &pb.ListTrashRequest{Caller: who})
				return err
			}
		},
		"RestoreTrash": func() sending {
			req := &pb.RestoreTrashRequest{Call: r.Call(), Caller: who, Inode: v.trashed(), To: pb.At(v.path())}
			return func(ctx context.Context, l link) error { _, err := l.nn.RestoreTrash(ctx, req); return err }
		},
		"EmptyTrash": func() sending {
			req := &pb.EmptyTrashRequest{Call: r.Call(), Caller: who, Inodes: []uint64{v.trashed()}}
			return func(ctx context.Context, l link) error { _, err := l.nn.EmptyTrash(ctx, req); return err }
		},
		"SetQuota": func() sending {
			dir := v.path()
			r.Create(dir + "/f")
			req := &pb.SetQuotaRequest{Call: r.Call(), Caller: who, At: pb.At(dir), Names: proto.Int64(9)}
			return func(ctx context.Context, l link) error { _, err := l.nn.SetQuota(ctx, req); return err }
		},
		"GetQuota": func() sending {
			dir := v.path()
			r.Create(dir + "/f")
			return func(ctx context.Context, l link) error {
				_, err := l.nn.GetQuota(ctx, &pb.GetQuotaRequest{Caller: who, At: pb.At(dir)})
				return err
			}
		},
		"ListQuotas": func() sending {
			return func(ctx context.Context, l link) error {
				_, err := l.nn.ListQuotas(ctx, &pb.ListQuotasRequest{Caller: who})
				return err
			}
		},
		"AllowSnapshots": func() sending {
			req := &pb.AllowSnapshotsRequest{Call: r.Call(), Caller: who, At: v.snapshotted(0)}
			return func(ctx context.Context, l link) error { _, err := l.nn.AllowSnapshots(ctx, req); return err }
		},
		"MakeSnapshot": func() sending {
			req := &pb.MakeSnapshotRequest{Call: r.Call(), Caller: who, At: v.snapshotted(0)}
			return func(ctx context.Context, l link) error { _, err := l.nn.MakeSnapshot(ctx, req); return err }
		},
		"RenameSnapshot": func() sending {
			req := &pb.RenameSnapshotRequest{Call: r.Call(), Caller: who, At: v.snapshotted(1), Name: "0", NewName: "new"}
			return func(ctx context.Context, l link) error { _, err := l.nn.RenameSnapshot(ctx, req); return err }
		},
		"DeleteSnapshot": func() sending {
			req := &pb.DeleteSnapshotRequest{Call: r.Call(), Caller: who, At: v.snapshotted(1), Name: "0"}
			return func(ctx context.Context, l link) error { _, err := l.nn.DeleteSnapshot(ctx, req); return err }
		},
		"ListSnapshots": func() sending {
			req := &pb.ListSnapshotsRequest{Caller: who, At: v.snapshotted(2)}
			return func(ctx context.Context, l link) error { _, err := l.nn.ListSnapshots(ctx, req); return err }
		},
		"ListSnapshotDirs": func() sending {
			v.snapshotted(1)
			return func(ctx context.Context, l link) error {
				_, err := l.nn.ListSnapshotDirs(ctx, &pb.ListSnapshotDirsRequest{Caller: who})
				return err
			}
		},
		"DiffSnapshots": func() sending {
			req := &pb.DiffSnapshotsRequest{Caller: who, At: v.snapshotted(1), From: "0"}
			return func(ctx context.Context, l link) error { _, err := l.nn.DiffSnapshots(ctx, req); return err }
		},
		"SetAttr": func() sending {
			req := &pb.SetAttrRequest{Call: r.Call(), Caller: who, At: pb.At(v.file("x")), SetMode: true, Mode: 0o600}
			return func(ctx context.Context, l link) error { _, err := l.nn.SetAttr(ctx, req); return err }
		},
		"SetXattr": func() sending {
			req := &pb.SetXattrRequest{Call: r.Call(), Caller: who, At: pb.At(v.file("x")), Name: "user.a", Value: []byte("v"), Action: pb.XattrAction_XATTR_ACTION_CREATE}
			return func(ctx context.Context, l link) error { _, err := l.nn.SetXattr(ctx, req); return err }
		},
		"ChangeAcl": func() sending {
			req := &pb.ChangeAclRequest{Call: r.Call(), Caller: who, At: pb.At(v.file("x")), Action: pb.AclAction_ACL_ACTION_MODIFY, Entries: []*pb.AclEntry{{Tag: pb.AclTag_ACL_TAG_USER, Name: "u", Perm: 4}}}
			return func(ctx context.Context, l link) error { _, err := l.nn.ChangeAcl(ctx, req); return err }
		},
		"Acl": func() sending {
			req := &pb.AclRequest{Caller: who, At: pb.At(v.file("x"))}
			return func(ctx context.Context, l link) error { _, err := l.nn.Acl(ctx, req); return err }
		},
		"Xattrs": func() sending {
			return func(ctx context.Context, l link) error {
				_, err := l.nn.Xattrs(ctx, &pb.XattrsRequest{Caller: who, At: pb.At("/")})
				return err
			}
		},
		"Symlink": func() sending {
			req := &pb.SymlinkRequest{Call: r.Call(), Caller: who, At: pb.At(v.path()), Target: "/w"}
			return func(ctx context.Context, l link) error { _, err := l.nn.Symlink(ctx, req); return err }
		},
		"Truncate": func() sending {
			req := &pb.TruncateRequest{Call: r.Call(), Caller: who, At: pb.Follow(v.file("12345")), Length: 2}
			return func(ctx context.Context, l link) error { _, err := l.nn.Truncate(ctx, req); return err }
		},
		"Concat": func() sending {
			req := &pb.ConcatRequest{Call: r.Call(), Caller: who, Target: pb.Follow(v.file("1")), Sources: []*pb.Ref{pb.At(v.file("2")), pb.At(v.file("3"))}}
			return func(ctx context.Context, l link) error { _, err := l.nn.Concat(ctx, req); return err }
		},
		"WhoAmI": func() sending {
			req := &pb.WhoAmIRequest{Caller: who}
			return func(ctx context.Context, l link) error { _, err := l.nn.WhoAmI(ctx, req); return err }
		},
		"Transact": func() sending {
			req := &pb.TransactRequest{Call: r.Call(), Caller: who, Compares: []*pb.TxCompare{{Path: "/w", What: &pb.TxCompare_Exists{Exists: true}}}, Ops: []*pb.TxOp{
				{Path: v.path(), Op: &pb.TxOp_Create{Create: &pb.TxFile{Data: data, DataCrc32C: crc(data), Parents: true}}},
				{Path: v.file("x"), Op: &pb.TxOp_Rename{Rename: &pb.TxRename{To: v.path()}}},
			}}
			return func(ctx context.Context, l link) error { _, err := l.nn.Transact(ctx, req); return err }
		},
		"Status": func() sending {
			return func(ctx context.Context, l link) error {
				_, err := l.admin.Status(ctx, &pb.StatusRequest{Caller: who})
				return err
			}
		},
		"Checkpoint": func() sending {
			return func(ctx context.Context, l link) error {
				_, err := l.admin.Checkpoint(ctx, &pb.CheckpointRequest{Caller: who})
				return err
			}
		},
		"SafeMode": func() sending {
			return func(ctx context.Context, l link) error {
				_, err := l.admin.SafeMode(ctx, &pb.SafeModeRequest{Caller: who, Action: pb.SafeModeRequest_ACTION_LEAVE})
				return err
			}
		},
		"Fsck": func() sending {
			return func(ctx context.Context, l link) error {
				return all(l.admin.Fsck(ctx, &pb.FsckRequest{Caller: who, Blocks: true}))
			}
		},
		"Collect": func() sending {
			return func(ctx context.Context, l link) error {
				_, err := l.admin.Collect(ctx, &pb.CollectRequest{Caller: who})
				return err
			}
		},
		"Failover": func() sending {
			return func(ctx context.Context, l link) error {
				_, err := l.admin.Failover(ctx, &pb.FailoverRequest{Caller: who})
				if errors.Is(wire.FromStatus(err), fserror.Unsupported) {
					return nil // it serves alone
				}
				return err
			}
		},
		"Upgrade": func() sending {
			return func(ctx context.Context, l link) error {
				_, err := l.admin.Upgrade(ctx, &pb.UpgradeRequest{Caller: who})
				return err
			}
		},
		"ResolveStore": func() sending {
			return func(ctx context.Context, l link) error {
				_, err := l.admin.ResolveStore(ctx, &pb.ResolveStoreRequest{Caller: who})
				return err
			}
		},
		"Backup": func() sending {
			return func(ctx context.Context, l link) error {
				ctx, cancel := context.WithCancel(ctx)
				defer cancel() // it ends when the client has all
				st, err := l.admin.Backup(ctx, &pb.BackupRequest{Caller: who})
				for err == nil {
					var m *pb.BackupResponse
					if m, err = st.Recv(); m.GetTxid() != 0 {
						return nil
					}
				}
				return err
			}
		},
	}, map[string]bool{"Append": true, "GetFile": true, "Watch": true}
}

// TestVanishingClients has a client vanish in each call, early and late: it
// gives the call up, or its connection breaks. The namenode stays whole, and
// the same call sent again is answered as if nothing had been, once.
func TestVanishingClients(t *testing.T) {
	t.Parallel()
	root, tokens := token(proof.NewToken()), filepath.Join(t.TempDir(), "tokens")
	line, err := proof.Line(string(root), "root")
	if err == nil {
		err = os.WriteFile(tokens, []byte(line), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	n := env.Start(t, func(c *namenode.Config) {
		if c.Identity.Tokens, err = proof.OpenTokens(clock.System{}, tokens); err != nil {
			t.Fatal(err)
		}
		c.Identity.Delegates = true
	})
	n.Dial = []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithPerRPCCredentials(root)}
	r := n.Raw(t, "a")
	v := &vanisher{t: t, n: n, r: r, w: r.Create("/w")}
	sendings, waits := v.sendings()
	for name := range methods() {
		if sendings[name] == nil {
			t.Errorf("no client vanishes in %s", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(sendings)) {
		t.Run(name, func(t *testing.T) {
			for i, after := range []time.Duration{0, 100 * time.Microsecond, 300 * time.Microsecond, time.Millisecond, 3 * time.Millisecond, 10 * time.Millisecond} {
				send := sendings[name]()
				cc, err := grpc.NewClient(n.Addr(), n.Dial...)
				if err != nil {
					t.Fatal(err)
				}
				if after > 0 {
					cc.Connect() // so that it is the call that is broken off
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				vanish := time.AfterFunc(after, func() {
					if i%2 == 0 {
						cancel()
					} else {
						_ = cc.Close() // what it answers is nobody's
					}
				})
				_ = send(ctx, linkOf(cc)) // whatever came of it
				vanish.Stop()
				cancel()
				_ = cc.Close()
				if waits[name] {
					continue
				}
				if err := send(t.Context(), link{nn: r.NN, admin: r.Admin}); err != nil {
					t.Fatalf("again, after it was broken off after %s: %v", after, err)
				}
			}
		})
	}
	if err := r.Flush(v.w, 0, "still here"); err != nil {
		t.Fatal(err)
	}
	fsckClean(t, r)
	n.Restart(t)
	fsckClean(t, r)
	if got := string(r.File("/w").GetTail()); got != "still here" {
		t.Errorf("%q", got)
	}
}

func fsckClean(t *testing.T, r *env.Raw) {
	t.Helper()
	st, err := r.Admin.Fsck(t.Context(), &pb.FsckRequest{Caller: r.Who, Blocks: true})
	for err == nil {
		var m *pb.FsckResponse
		if m, err = st.Recv(); m.GetProblem() != "" {
			t.Errorf("fsck: %s: %s", m.GetPath(), m.GetProblem())
		}
	}
	if err != io.EOF { //nolint:errorlint // streams return it bare
		t.Fatal(err)
	}
}

// post sends the bytes of a gRPC call over HTTP/2 and returns how it ended.
func post(ctx context.Context, h *http.Client, url string, body io.Reader) (code, message string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, body)
	if err != nil {
		return "", "", err
	}
	req.Header.Set("Content-Type", "application/grpc")
	req.Header.Set("TE", "trailers")
	resp, err := h.Do(req)
	if err != nil {
		return "", "", err
	}
	defer func() { _ = resp.Body.Close() }()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return "", "", err
	}
	at := resp.Trailer
	if at.Get("Grpc-Status") == "" {
		at = resp.Header
	}
	return at.Get("Grpc-Status"), at.Get("Grpc-Message"), nil
}

// Half a request over gRPC gets a clear error, in every call, and does nothing.
func TestHalfRequestsOverGRPC(t *testing.T) {
	n := env.Start(t)
	r := n.Raw(t, "a")
	before := r.TxID()
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: &protocols}
	defer transport.CloseIdleConnections()
	h := &http.Client{Transport: transport}
	frame := func(claimed int, data string) []byte {
		b := binary.BigEndian.AppendUint32([]byte{0}, uint32(claimed)) //nolint:gosec // small
		return append(b, data...)
	}
	halves := map[string][]byte{
		"half a header":              {0, 0, 0},
		"half a message":             frame(64, "\x0a\x02ab"),
		"a field cut short":          frame(3, "\x0a\x20x"),
		"not protobuf":               frame(4, "\xff\xff\xff\xff"),
		"compressed in no way known": append([]byte{1}, frame(2, "ab")[1:]...),
	}
	for name, full := range methods() {
		for half, body := range halves {
			t.Run(name+"/"+half, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				code, message, err := post(ctx, h, "http://"+n.Addr()+full, bytes.NewReader(body))
				if err != nil {
					t.Fatal(err)
				}
				if code == "" || code == fmt.Sprint(int(codes.OK)) || code == fmt.Sprint(int(codes.Unknown)) || len(message) < 10 {
					t.Errorf("status %s, %q", code, message)
				}
			})
		}
		t.Run(name+"/gone in the middle", func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			in, out := io.Pipe()
			done := make(chan struct{})
			go func() {
				defer close(done)
				_, _, _ = post(ctx, h, "http://"+n.Addr()+full, in) // nobody waits for the answer
			}()
			if _, err := out.Write(frame(64, "\x0a\x02ab")); err != nil {
				t.Fatal(err)
			}
			cancel()
			_ = out.CloseWithError(context.Canceled)
			<-done
		})
	}
	if after := r.TxID(); after != before {
		t.Errorf("half requests made %d records", after-before)
	}
	r.Create("/after")
}

// A block that is cut short on its way is refused, and the client can put it again.
func TestHalfABlock(t *testing.T) {
	n := env.Start(t)
	r := n.Raw(t, "a")
	w := r.Create("/f")
	data := make([]byte, 200_000)
	_, _ = rand.Read(data)
	object, sum := blockstore.Seal(bytes.Clone(data))
	out, err := r.NN.AllocateBlock(t.Context(), &pb.AllocateBlockRequest{Writer: w, Blocks: []*pb.BlockIntent{{StoredLength: int64(len(object)), Crc32C: sum}}})
	if err != nil {
		t.Fatal(err)
	}
	target := out.GetTargets()[0]
	ctx, cancel := context.WithCancel(t.Context())
	in, half := io.Pipe()
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, target.GetUrl(), in)
	if err != nil {
		t.Fatal(err)
	}
	for k, h := range target.GetHeaders() {
		req.Header.Set(k, h)
	}
	req.ContentLength = int64(len(object))
	done := make(chan error, 1)
	go func() {
		resp, err := http.DefaultClient.Do(req)
		if err == nil {
			_ = resp.Body.Close()
		}
		done <- err
	}()
	if _, err := half.Write(object[:len(object)/2]); err != nil {
		t.Fatal(err)
	}
	cancel()
	_ = half.CloseWithError(context.Canceled)
	if err := <-done; err == nil {
		t.Fatal("half a block was answered")
	}
	b := &pb.Block{Term: target.GetTerm(), Seq: target.GetSeq(), StoredLength: int64(len(object)), UsedLength: int64(len(data)), Crc32C: sum}
	if err := r.Commit(w, 0, b, ""); err == nil {
		t.Fatal("half a block was committed")
	} else if wire.FromStatus(err).Error() == "" {
		t.Error("the error says nothing")
	}
	again, err := r.PutBlock(w, data)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Commit(w, 0, again, ""); err != nil {
		t.Fatal(err)
	}
	fsckClean(t, r)
}
