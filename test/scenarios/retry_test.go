package scenarios_test

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"sync"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/client/snapshots"
	"github.com/leasefs/leasefs/client/trash"
	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/fserror"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
	"github.com/leasefs/leasefs/test/env"
)

// change is one request that changes something, in a place of its own.
type change struct {
	// send sends it under the call id; a zero other means the request, else
	// another one of the same kind.
	send func(call *pb.CallId, other bool) (proto.Message, error)
	// undo is what somebody else does afterwards; a second effect of the
	// request would be seen in what he did.
	undo func(t *testing.T)
	// check fails unless everything is as undo left it.
	check func(t *testing.T)
	// records is how many records one effect writes; 0: not known.
	records uint64
}

// rig has A, who sends the requests, and B, who does the rest.
type rig struct {
	ctx context.Context
	n   *env.Namenode
	a   *env.Raw
	b   *client.FS
}

// trashed deletes a file in a directory that keeps it, and returns its entry in the trash.
func (r *rig) trashed(t *testing.T, dir string) (id uint64) {
	t.Helper()
	path := "/" + dir + "/f"
	r.replace(t, path)
	id = stat(t, r.b, path).Inode
	must(t, r.b.Xattrs("/"+dir).Set(t.Context(), trash.Xattr, []byte("1d"), client.XattrAny))
	must(t, r.b.Remove(t.Context(), path))
	return id
}

// snapshotted makes a directory with a file and snapshots of these names.
func (r *rig) snapshotted(t *testing.T, dir string, names ...string) string {
	t.Helper()
	r.replace(t, "/"+dir+"/f")
	must(t, snapshots.Allow(t.Context(), r.b, "/"+dir))
	for _, name := range names {
		_, err := snapshots.Make(t.Context(), r.b, "/"+dir, name)
		must(t, err)
	}
	return "/" + dir
}

func (r *rig) path(dir, name string, other bool) string {
	if other {
		name += "-other"
	}
	return "/" + dir + "/" + name
}

func gone(t *testing.T, fs *client.FS, path string) {
	t.Helper()
	_, err := fs.Stat(t.Context(), path)
	wantKind(t, err, fserror.NotFound)
}

// replace makes the file new, with B's content.
func (r *rig) replace(t *testing.T, path string) {
	t.Helper()
	must(t, r.b.WriteFile(t.Context(), path, []byte("theirs"), client.WithOverwrite(), client.WithSteal()))
}

// Each way to change the tree that carries a call id. Each gets a directory of
// its own.
var changes = map[string]func(t *testing.T, r *rig, dir string) change{
	"Create": func(_ *testing.T, r *rig, dir string) change {
		p := "/" + dir + "/f"
		return change{
			records: 1,
			send: func(call *pb.CallId, other bool) (proto.Message, error) {
				return r.a.NN.Create(r.ctx, &pb.CreateRequest{Call: call, Caller: r.a.Who, At: pb.At(r.path(dir, "f", other))})
			},
			undo:  func(t *testing.T) { must(t, r.b.Remove(t.Context(), p)) },
			check: func(t *testing.T) { gone(t, r.b, p) },
		}
	},
	"Create with steal": func(t *testing.T, r *rig, dir string) change {
		p := "/" + dir + "/f"
		create(t, r.b, p)
		return change{
			records: 1,
			send: func(call *pb.CallId, other bool) (proto.Message, error) {
				return r.a.NN.Create(r.ctx, &pb.CreateRequest{Call: call, Caller: r.a.Who, At: pb.Follow(r.path(dir, "f", other)), Overwrite: true, Steal: true})
			},
			undo: func(t *testing.T) {
				w := create(t, r.b, p, client.WithOverwrite(), client.WithSteal())
				flush(t, w, "theirs")
			},
			check: func(t *testing.T) { wantContent(t, r.b, p, "theirs"); wantOpen(t, r.b, p, "B") },
		}
	},
	"Create of a whole file": func(_ *testing.T, r *rig, dir string) change {
		p := "/" + dir + "/f"
		return change{
			records: 1,
			send: func(call *pb.CallId, other bool) (proto.Message, error) {
				data := []byte(fmt.Sprint("mine ", other))
				return r.a.NN.Create(r.ctx, &pb.CreateRequest{
					Call: call, Caller: r.a.Who, At: pb.Follow(p), Overwrite: true, Close: true, Data: data, DataCrc32C: blockstore.CRC(data),
				})
			},
			undo:  func(t *testing.T) { r.replace(t, p) },
			check: func(t *testing.T) { wantContent(t, r.b, p, "theirs") },
		}
	},
	"Transact": func(t *testing.T, r *rig, dir string) change {
		p, q := "/"+dir+"/f", "/"+dir+"/g"
		must(t, r.b.WriteFile(t.Context(), q, []byte("old")))
		return change{
			records: 1,
			send: func(call *pb.CallId, other bool) (proto.Message, error) {
				data := []byte("mine")
				return r.a.NN.Transact(r.ctx, &pb.TransactRequest{
					Call: call, Caller: r.a.Who,
					Compares: []*pb.TxCompare{{Path: q, What: &pb.TxCompare_Exists{Exists: true}}},
					Ops: []*pb.TxOp{
						{Path: r.path(dir, "f", other), Op: &pb.TxOp_Create{Create: &pb.TxFile{Data: data, DataCrc32C: blockstore.CRC(data)}}},
						{Path: q, Op: &pb.TxOp_Delete{Delete: &pb.TxDelete{}}},
					},
				})
			},
			undo: func(t *testing.T) {
				must(t, r.b.Remove(t.Context(), p))
				must(t, r.b.WriteFile(t.Context(), q, []byte("theirs")))
			},
			check: func(t *testing.T) { gone(t, r.b, p); wantContent(t, r.b, q, "theirs") },
		}
	},
	"Append": func(t *testing.T, r *rig, dir string) change {
		p := "/" + dir + "/f"
		must(t, r.b.WriteFile(t.Context(), p, []byte("old ")))
		return change{
			records: 1,
			send: func(call *pb.CallId, other bool) (proto.Message, error) {
				return r.a.NN.Append(r.ctx, &pb.AppendRequest{Call: call, Caller: r.a.Who, At: pb.Follow(p), WaitMs: map[bool]int64{true: 1}[other]})
			},
			undo: func(t *testing.T) {
				_, err := r.b.Recover(t.Context(), p, true)
				must(t, err)
			},
			check: func(t *testing.T) { wantContent(t, r.b, p, "old "); wantOpen(t, r.b, p, "") },
		}
	},
	"Append that makes the file": func(_ *testing.T, r *rig, dir string) change {
		p := "/" + dir + "/f"
		return change{
			records: 1,
			send: func(call *pb.CallId, other bool) (proto.Message, error) {
				return r.a.NN.Append(r.ctx, &pb.AppendRequest{Call: call, Caller: r.a.Who, At: pb.Follow(p), Create: true, Parents: other})
			},
			undo:  func(t *testing.T) { must(t, r.b.Remove(t.Context(), p)) },
			check: func(t *testing.T) { gone(t, r.b, p) },
		}
	},
	"Close": func(t *testing.T, r *rig, dir string) change {
		p := "/" + dir + "/f"
		w := r.a.Create(p)
		must(t, r.a.Flush(w, 0, "mine"))
		return change{
			records: 1,
			send: func(call *pb.CallId, other bool) (proto.Message, error) {
				data := []byte(", last")
				return r.a.NN.Close(r.ctx, &pb.CloseRequest{
					Call: call, Writer: w, Offset: 4, Data: data, Crc32C: blockstore.CRC(data), Length: 10, MtimeUnixMs: map[bool]int64{true: 7}[other],
				})
			},
			undo:  func(t *testing.T) { flush(t, appendTo(t, r.b, p), ", theirs") },
			check: func(t *testing.T) { wantContent(t, r.b, p, "mine, last, theirs"); wantOpen(t, r.b, p, "B") },
		}
	},
	"CloseAbandoned": func(t *testing.T, r *rig, dir string) change {
		p := "/" + dir + "/f"
		dead := r.n.Raw(t, "A") // an earlier process
		must(t, dead.Flush(dead.Create(p), 0, "mine"))
		return change{
			records: 1,
			send: func(call *pb.CallId, other bool) (proto.Message, error) {
				return r.a.NN.CloseAbandoned(r.ctx, &pb.CloseAbandonedRequest{Call: call, Caller: r.a.Who, At: pb.Follow(r.path(dir, "f", other))})
			},
			// Another process of that name has it again: it would be closed.
			undo: func(t *testing.T) {
				out, err := r.n.Raw(t, "A").Append(p)
				if err != nil || out.GetLength() != 4 {
					t.Fatal(out, err)
				}
			},
			check: func(t *testing.T) { wantOpen(t, r.b, p, "A") },
		}
	},
	"Recover": func(t *testing.T, r *rig, dir string) change {
		p := "/" + dir + "/f"
		flush(t, create(t, r.b, p), "old")
		return change{
			records: 1,
			send: func(call *pb.CallId, other bool) (proto.Message, error) {
				return r.a.NN.Recover(r.ctx, &pb.RecoverRequest{Call: call, Caller: r.a.Who, At: pb.Follow(p), Force: !other})
			},
			undo:  func(t *testing.T) { appendTo(t, r.b, p) },
			check: func(t *testing.T) { wantOpen(t, r.b, p, "B") },
		}
	},
	"Mkdir": func(_ *testing.T, r *rig, dir string) change {
		p := "/" + dir + "/x"
		return change{
			records: 1,
			send: func(call *pb.CallId, other bool) (proto.Message, error) {
				return r.a.NN.Mkdir(r.ctx, &pb.MkdirRequest{Call: call, Caller: r.a.Who, At: pb.At(p), Parents: !other})
			},
			undo:  func(t *testing.T) { must(t, r.b.Rename(t.Context(), p, p+"y", false)) },
			check: func(t *testing.T) { gone(t, r.b, p); stat(t, r.b, p+"y") },
		}
	},
	"Rename": func(t *testing.T, r *rig, dir string) change {
		from, to := "/"+dir+"/from", "/"+dir+"/to"
		must(t, r.b.WriteFile(t.Context(), from, []byte("it")))
		return change{
			records: 1,
			send: func(call *pb.CallId, other bool) (proto.Message, error) {
				return r.a.NN.Rename(r.ctx, &pb.RenameRequest{Call: call, Caller: r.a.Who, From: pb.At(from), To: pb.At(to), Overwrite: !other})
			},
			undo: func(t *testing.T) {
				must(t, r.b.Rename(t.Context(), to, from, false))
				r.replace(t, to)
			},
			check: func(t *testing.T) { wantContent(t, r.b, from, "it"); wantContent(t, r.b, to, "theirs") },
		}
	},
	"Delete": func(t *testing.T, r *rig, dir string) change {
		p := "/" + dir + "/f"
		r.replace(t, p)
		return change{
			records: 1,
			send: func(call *pb.CallId, other bool) (proto.Message, error) {
				return r.a.NN.Delete(r.ctx, &pb.DeleteRequest{Call: call, Caller: r.a.Who, At: pb.At(p), Recursive: other})
			},
			undo:  func(t *testing.T) { r.replace(t, p) },
			check: func(t *testing.T) { wantContent(t, r.b, p, "theirs") },
		}
	},
	"RestoreTrash": func(t *testing.T, r *rig, dir string) change {
		id := r.trashed(t, dir)
		back := func(other bool) string { return r.path(dir, "back", other) }
		return change{
			records: 1,
			send: func(call *pb.CallId, other bool) (proto.Message, error) {
				return r.a.NN.RestoreTrash(r.ctx, &pb.RestoreTrashRequest{Call: call, Caller: r.a.Who, Inode: id, To: pb.At(back(other))})
			},
			undo:  func(t *testing.T) { must(t, r.b.Remove(t.Context(), back(false))) },
			check: func(t *testing.T) { gone(t, r.b, back(false)) },
		}
	},
	"EmptyTrash": func(t *testing.T, r *rig, dir string) change {
		id := r.trashed(t, dir)
		return change{
			records: 1,
			send: func(call *pb.CallId, other bool) (proto.Message, error) {
				return r.a.NN.EmptyTrash(r.ctx, &pb.EmptyTrashRequest{Call: call, Caller: r.a.Who, Inodes: []uint64{id, 1 << 40}[:map[bool]int{true: 2, false: 1}[other]]})
			},
			undo:  func(*testing.T) {}, // nothing brings it back
			check: func(t *testing.T) { gone(t, r.b, "/"+dir+"/f") },
		}
	},
	"SetQuota": func(t *testing.T, r *rig, dir string) change {
		set := func(call *pb.CallId, names int64) (*pb.MutateResponse, error) {
			return r.a.NN.SetQuota(r.ctx, &pb.SetQuotaRequest{Call: call, Caller: r.a.Who, At: pb.At("/" + dir), Names: &names})
		}
		limit := func(t *testing.T) (n int64) {
			out, err := r.a.NN.GetQuota(r.ctx, &pb.GetQuotaRequest{Caller: r.a.Who, At: pb.At("/" + dir)})
			must(t, err)
			for _, q := range out.GetQuotas() {
				n = q.GetNames()
			}
			return n
		}
		return change{
			records: 1,
			send: func(call *pb.CallId, other bool) (proto.Message, error) {
				return set(call, map[bool]int64{true: 20, false: 10}[other])
			},
			undo: func(t *testing.T) {
				_, err := set(r.a.Call(), 30)
				must(t, err)
			},
			check: func(t *testing.T) {
				if n := limit(t); n != 30 {
					t.Errorf("the limit is %d", n)
				}
			},
		}
	},
	"AllowSnapshots": func(t *testing.T, r *rig, dir string) change {
		p := "/" + dir
		r.replace(t, p+"/f")
		return change{
			records: 1,
			send: func(call *pb.CallId, other bool) (proto.Message, error) {
				return r.a.NN.AllowSnapshots(r.ctx, &pb.AllowSnapshotsRequest{Call: call, Caller: r.a.Who, At: pb.At(p), Allow: !other})
			},
			undo:  func(t *testing.T) { must(t, snapshots.Disallow(t.Context(), r.b, p)) },
			check: func(t *testing.T) { gone(t, r.b, p+"/.snapshot") },
		}
	},
	"MakeSnapshot": func(t *testing.T, r *rig, dir string) change {
		p := r.snapshotted(t, dir)
		return change{
			records: 1,
			send: func(call *pb.CallId, other bool) (proto.Message, error) {
				return r.a.NN.MakeSnapshot(r.ctx, &pb.MakeSnapshotRequest{Call: call, Caller: r.a.Who, At: pb.At(p), Name: map[bool]string{true: "other", false: "mine"}[other]})
			},
			undo:  func(t *testing.T) { must(t, snapshots.Delete(t.Context(), r.b, p, "mine")) },
			check: func(t *testing.T) { gone(t, r.b, snapshots.Path(p, "mine", "")) },
		}
	},
	"RenameSnapshot": func(t *testing.T, r *rig, dir string) change {
		p := r.snapshotted(t, dir, "old")
		return change{
			records: 1,
			send: func(call *pb.CallId, other bool) (proto.Message, error) {
				return r.a.NN.RenameSnapshot(r.ctx, &pb.RenameSnapshotRequest{Call: call, Caller: r.a.Who, At: pb.At(p), Name: "old", NewName: map[bool]string{true: "other", false: "mine"}[other]})
			},
			undo: func(t *testing.T) {
				must(t, snapshots.Rename(t.Context(), r.b, p, "mine", "old"))
			},
			check: func(t *testing.T) { gone(t, r.b, snapshots.Path(p, "mine", "")) },
		}
	},
	"DeleteSnapshot": func(t *testing.T, r *rig, dir string) change {
		p := r.snapshotted(t, dir, "mine", "other")
		return change{
			records: 1,
			send: func(call *pb.CallId, other bool) (proto.Message, error) {
				return r.a.NN.DeleteSnapshot(r.ctx, &pb.DeleteSnapshotRequest{Call: call, Caller: r.a.Who, At: pb.At(p), Name: map[bool]string{true: "other", false: "mine"}[other]})
			},
			undo: func(t *testing.T) {
				_, err := snapshots.Make(t.Context(), r.b, p, "mine")
				must(t, err)
			},
			check: func(t *testing.T) { stat(t, r.b, snapshots.Path(p, "mine", "f")) },
		}
	},
	"SetAttr": func(t *testing.T, r *rig, dir string) change {
		p := "/" + dir + "/f"
		r.replace(t, p)
		return change{
			records: 1,
			send: func(call *pb.CallId, other bool) (proto.Message, error) {
				return r.a.NN.SetAttr(r.ctx, &pb.SetAttrRequest{Call: call, Caller: r.a.Who, At: pb.At(p), SetMode: true, Mode: map[bool]uint32{true: 0o700, false: 0o600}[other]})
			},
			undo: func(t *testing.T) { must(t, r.b.Chmod(t.Context(), p, 0o644)) },
			check: func(t *testing.T) {
				if m := stat(t, r.b, p).Mode(); m != 0o644 {
					t.Fatalf("the mode is %v again", m)
				}
			},
		}
	},
	"SetXattr": func(t *testing.T, r *rig, dir string) change {
		p := "/" + dir + "/f"
		r.replace(t, p)
		return change{
			records: 1,
			send: func(call *pb.CallId, other bool) (proto.Message, error) {
				return r.a.NN.SetXattr(r.ctx, &pb.SetXattrRequest{Call: call, Caller: r.a.Who, At: pb.At(p), Name: "user.a", Value: []byte(fmt.Sprint("mine ", other))})
			},
			undo: func(t *testing.T) {
				must(t, r.b.Xattrs(p).Set(t.Context(), "user.a", []byte("theirs"), client.XattrReplace))
			},
			check: func(t *testing.T) {
				if v, err := r.b.Xattrs(p).Get(t.Context(), "user.a"); err != nil || string(v) != "theirs" {
					t.Fatalf("the attribute is %q again, %v", v, err)
				}
			},
		}
	},
	"ChangeAcl": func(t *testing.T, r *rig, dir string) change {
		p := "/" + dir + "/f"
		r.replace(t, p)
		entry := func(perm uint8) client.ACL { return client.ACL{{Tag: client.ACLUser, Name: "u", Perm: perm}} }
		return change{
			records: 1,
			send: func(call *pb.CallId, other bool) (proto.Message, error) {
				perm := uint8(4)
				if other {
					perm = 2
				}
				return r.a.NN.ChangeAcl(r.ctx, &pb.ChangeAclRequest{Call: call, Caller: r.a.Who, At: pb.At(p), Action: pb.AclAction_ACL_ACTION_MODIFY, Entries: entry(perm).Wire()})
			},
			undo: func(t *testing.T) {
				must(t, r.b.Xattrs(p).ChangeACL(t.Context(), client.ACLChange{Action: client.ACLModify, Entries: entry(1)}))
			},
			check: func(t *testing.T) {
				if list, err := r.b.Xattrs(p).ACL(t.Context()); err != nil || !strings.Contains(list.String(), "user:u:--x") {
					t.Fatalf("the ACL is %s again, %v", list, err)
				}
			},
		}
	},
	"Rename that hides": func(t *testing.T, r *rig, dir string) change {
		from, to, hidden := "/"+dir+"/from", "/"+dir+"/to", "/"+dir+"/.hidden"
		must(t, r.b.WriteFile(t.Context(), from, []byte("it")))
		must(t, r.b.WriteFile(t.Context(), to, []byte("old")))
		old := stat(t, r.b, to)
		lease, err := r.a.NN.GrantLease(t.Context(), &pb.GrantLeaseRequest{Call: r.a.Call(), Caller: r.a.Who, TtlMs: 600_000})
		must(t, err)
		return change{
			records: 1,
			send: func(call *pb.CallId, other bool) (proto.Message, error) {
				return r.a.NN.Rename(r.ctx, &pb.RenameRequest{
					Call: call, Caller: r.a.Who, From: pb.At(from), To: pb.At(to), Overwrite: true,
					Hide: &pb.Hide{Inode: old.Inode, Name: map[bool]string{true: ".other", false: ".hidden"}[other], Lease: lease.GetId()},
				})
			},
			undo: func(t *testing.T) {
				must(t, r.b.Rename(t.Context(), to, from, false))
				r.replace(t, to)
			},
			check: func(t *testing.T) {
				wantContent(t, r.b, from, "it")
				wantContent(t, r.b, to, "theirs")
				wantContent(t, r.b, hidden, "old")
			},
		}
	},
	"Append that cuts its own file": func(t *testing.T, r *rig, dir string) change {
		p := "/" + dir + "/f"
		w := r.a.Create(p)
		must(t, r.a.Flush(w, 0, "0123456789"))
		return change{
			records: 1,
			send: func(call *pb.CallId, other bool) (proto.Message, error) {
				return r.a.NN.Append(r.ctx, &pb.AppendRequest{
					Call: call, Caller: r.a.Who, At: pb.Follow(p), Writer: w, Cut: true, CutLength: map[bool]int64{true: 2, false: 4}[other],
				})
			},
			undo: func(t *testing.T) {
				_, err := r.b.Recover(t.Context(), p, true)
				must(t, err)
				w := appendTo(t, r.b, p)
				write(t, w, " theirs")
				must(t, w.Close())
			},
			check: func(t *testing.T) { wantContent(t, r.b, p, "0123 theirs") },
		}
	},
	"Symlink": func(_ *testing.T, r *rig, dir string) change {
		p := "/" + dir + "/l"
		return change{
			records: 1,
			send: func(call *pb.CallId, other bool) (proto.Message, error) {
				return r.a.NN.Symlink(r.ctx, &pb.SymlinkRequest{Call: call, Caller: r.a.Who, At: pb.At(p), Target: fmt.Sprint(other)})
			},
			undo: func(t *testing.T) {
				must(t, r.b.Remove(t.Context(), p))
				must(t, r.b.Symlink(t.Context(), "theirs", p))
			},
			check: func(t *testing.T) {
				if to, err := r.b.Readlink(t.Context(), p); err != nil || to != "theirs" {
					t.Fatalf("the link points to %q, %v", to, err)
				}
			},
		}
	},
	"Truncate": func(t *testing.T, r *rig, dir string) change {
		p := "/" + dir + "/f"
		must(t, r.b.WriteFile(t.Context(), p, []byte("0123456789")))
		return change{
			records: 1,
			send: func(call *pb.CallId, other bool) (proto.Message, error) {
				return r.a.NN.Truncate(r.ctx, &pb.TruncateRequest{Call: call, Caller: r.a.Who, At: pb.Follow(p), Length: map[bool]int64{true: 2, false: 4}[other]})
			},
			undo: func(t *testing.T) {
				w := appendTo(t, r.b, p)
				write(t, w, " theirs")
				must(t, w.Close())
			},
			check: func(t *testing.T) { wantContent(t, r.b, p, "0123 theirs") },
		}
	},
	"Concat": func(t *testing.T, r *rig, dir string) change {
		to, from := "/"+dir+"/to", "/"+dir+"/from"
		must(t, r.b.WriteFile(t.Context(), to, []byte("one")))
		must(t, r.b.WriteFile(t.Context(), from, []byte("two")))
		return change{
			send: func(call *pb.CallId, other bool) (proto.Message, error) {
				return r.a.NN.Concat(r.ctx, &pb.ConcatRequest{Call: call, Caller: r.a.Who, Target: pb.Follow(to), Sources: []*pb.Ref{pb.At(r.path(dir, "from", other))}})
			},
			undo:  func(t *testing.T) { r.replace(t, from) },
			check: func(t *testing.T) { wantContent(t, r.b, to, "onetwo"); wantContent(t, r.b, from, "theirs") },
		}
	},
}

// allChanges are those of the tree and those of granted leases.
func allChanges() iter.Seq2[string, func(t *testing.T, r *rig, dir string) change] {
	return func(yield func(string, func(t *testing.T, r *rig, dir string) change) bool) {
		for _, some := range []map[string]func(t *testing.T, r *rig, dir string) change{changes, leaseChanges} {
			for name, make := range some {
				if !yield(name, make) {
					return
				}
			}
		}
	}
}

func newRig(t *testing.T) *rig {
	t.Helper()
	n, _ := frozen(t)
	return &rig{ctx: t.Context(), n: n, a: n.Raw(t, "A"), b: n.Client(t, env.Named("B"))}
}

// The same request sent twice, because its reply was lost, gets the same answer
// and has one effect: at once, after others changed what it made, after a
// checkpoint and a restart, after two. The same call id with another request,
// of the same kind or another, is refused.
func TestScenario40LostReply(t *testing.T) {
	t.Parallel()
	for name, make := range allChanges() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			must(t, r.b.Mkdir(t.Context(), "/d", 0o777))
			c := make(t, r, "d")
			call := r.a.Call()
			before := r.a.TxID()
			first, err := c.send(call, false)
			must(t, err)
			wrote := r.a.TxID() - before
			if wrote == 0 || c.records != 0 && wrote != c.records {
				t.Fatalf("the request wrote %d records, want %d", wrote, c.records)
			}
			again := func(when string) {
				t.Helper()
				before := r.a.TxID()
				got, err := c.send(call, false)
				if err != nil || !proto.Equal(got, first) {
					t.Fatalf("sent again %s: %v, %v; the first answer was %v", when, got, err, first)
				}
				if wrote := r.a.TxID() - before; wrote != 0 {
					t.Fatalf("sent again %s: it wrote %d records", when, wrote)
				}
			}
			refused := func() {
				t.Helper()
				_, err := c.send(call, true)
				wantKind(t, err, fserror.InvalidArgument)
				if name != "Symlink" {
					_, err = r.a.NN.Symlink(t.Context(), &pb.SymlinkRequest{Call: call, Caller: r.a.Who, At: pb.At("/link"), Target: "/"})
				} else {
					_, err = r.a.NN.Mkdir(t.Context(), &pb.MkdirRequest{Call: call, Caller: r.a.Who, At: pb.At("/link")})
				}
				wantKind(t, err, fserror.InvalidArgument)
				gone(t, r.b, "/link")
			}
			again("at once")
			refused()
			c.undo(t)
			c.check(t)
			again("after another's change")
			c.check(t)
			for range 2 {
				r.n.Restart(t)
				again("after a restart")
				c.check(t)
				refused()
				_, err := r.b.Admin().Checkpoint(t.Context())
				must(t, err)
			}
			c.check(t)
			wantSound(t, r.b)
		})
	}
}

// The same request twice at once: the same answer, one effect.
func TestScenario40OverlappingDuplicates(t *testing.T) {
	t.Parallel()
	for name, make := range allChanges() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			for round := range 10 {
				dir := fmt.Sprint("d", round)
				must(t, r.b.Mkdir(t.Context(), "/"+dir, 0o777))
				c := make(t, r, dir)
				call := r.a.Call()
				before := r.a.TxID()
				const twins = 3
				answers := [twins]proto.Message{}
				errs := [twins]error{}
				start := newGate()
				var wg sync.WaitGroup
				for i := range twins {
					wg.Go(func() {
						start.wait()
						answers[i], errs[i] = c.send(call, false)
					})
				}
				start.open()
				wg.Wait()
				for i := range twins {
					if errs[i] != nil || !proto.Equal(answers[i], answers[0]) {
						t.Fatalf("twin %d: %v, %v; twin 0: %v", i, answers[i], errs[i], answers[0])
					}
				}
				if wrote := r.a.TxID() - before; c.records != 0 && wrote != c.records {
					t.Fatalf("%d records were written, want %d", wrote, c.records)
				}
				c.undo(t)
				c.check(t)
			}
			wantSound(t, r.b)
		})
	}
}

// An append that waits for a holder, sent twice: both wait, both get the one
// opening.
func TestScenario40OverlappingWaits(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := create(t, r.b, "/f")
	call := r.a.Call()
	var answers [2]*pb.OpenResponse
	var wg sync.WaitGroup
	for i := range answers {
		wg.Go(func() {
			var err error
			answers[i], err = r.a.NN.Append(t.Context(), &pb.AppendRequest{Call: call, Caller: r.a.Who, At: pb.Follow("/f"), WaitMs: 20_000})
			if err != nil {
				t.Errorf("append: %v", err)
			}
		})
	}
	flush(t, w, "B's")
	must(t, w.Close())
	wg.Wait()
	if !proto.Equal(answers[0], answers[1]) || answers[0].GetLength() != 3 {
		t.Fatalf("answers %v and %v", answers[0], answers[1])
	}
	must(t, r.a.Close(answers[0].GetWriter(), 3))
}

// AppendTail and Commit carry no call id: they are known by offset and bytes.
// Sent again they change nothing, at once, after more was written, after a
// checkpoint and restarts; other bytes at that place are refused.
func TestScenario40WriterCalls(t *testing.T) {
	t.Parallel()
	n, _ := frozen(t, smallBlocks)
	a, b := n.Raw(t, "A"), n.Client(t, env.Named("B"))
	w := a.Create("/f")
	twice := func(what string, send func() (int64, error)) {
		t.Helper()
		length, err := send()
		must(t, err)
		before := a.TxID()
		got, err := send()
		if err != nil || got != length || a.TxID() != before {
			t.Fatalf("%s sent again: length %d, %v, %d records; the first answer was %d", what, got, err, a.TxID()-before, length)
		}
	}
	tail := func(off int64, data string) func() (int64, error) {
		return func() (int64, error) {
			out, err := a.NN.AppendTail(t.Context(), env.TailRequest(w, off, data))
			return out.GetLength(), err
		}
	}
	twice("flush", tail(0, "one "))
	twice("flush", tail(4, "two "))
	twice("the flush before", tail(0, "one "))
	_, err := tail(4, "TWO ")()
	wantKind(t, err, fserror.NotAtEnd)
	_, err = tail(0, "one t")() // a part of it is there
	if err != nil && fserror.KindOf(err) != fserror.NotAtEnd {
		t.Fatalf("a flush of bytes that are there, cut otherwise: %v", err)
	}
	blk, err := a.PutBlock(w, []byte("one two three "))
	must(t, err)
	foreign, err := a.PutBlock(w, []byte("ONE TWO THREE "))
	must(t, err)
	commit := func(b *pb.Block, tail string) func() (int64, error) {
		return func() (int64, error) {
			out, err := a.NN.Commit(t.Context(), env.CommitRequest(w, 0, b, tail))
			return out.GetLength(), err
		}
	}
	twice("commit", commit(blk, "one two "))
	twice("flush", tail(14, "four "))
	twice("commit", commit(blk, "one two "))
	_, err = commit(foreign, "one two ")()
	wantKind(t, err, fserror.NotAtEnd)
	for range 2 {
		n.Restart(t)
		twice("the last flush, after a restart,", tail(14, "four "))
		twice("commit, after a restart,", commit(blk, "one two "))
		_, err = commit(foreign, "one two ")()
		wantKind(t, err, fserror.NotAtEnd)
		_, err := b.Admin().Checkpoint(t.Context())
		must(t, err)
	}
	// The last flush is known even when its bytes went into a block since.
	second, err := a.PutBlock(w, []byte("four "))
	must(t, err)
	must(t, a.Commit(w, 14, second, "four "))
	_, err = b.Admin().Checkpoint(t.Context())
	must(t, err)
	n.Restart(t)
	twice("a flush that is a block now", tail(14, "four "))

	// Two at once.
	var wg sync.WaitGroup
	before := a.TxID()
	for range 4 {
		wg.Go(func() {
			if l, err := tail(19, "five")(); err != nil || l != 23 {
				t.Errorf("one of four flushes at once: %d, %v", l, err)
			}
		})
	}
	wg.Wait()
	if wrote := a.TxID() - before; wrote != 1 {
		t.Errorf("four times the same flush at once wrote %d records", wrote)
	}
	must(t, a.Close(w, 23))
	wantContent(t, b, "/f", "one two three four five")
	wantSound(t, b)
}

// What a call failed with is no result: sent again it may succeed.
func TestScenario40FailureIsNoResult(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	must(t, r.b.WriteFile(t.Context(), "/f", nil))
	call := r.a.Call()
	send := func() error {
		_, err := r.a.NN.Mkdir(t.Context(), &pb.MkdirRequest{Call: call, Caller: r.a.Who, At: pb.At("/f")})
		return err
	}
	wantKind(t, send(), fserror.Exists)
	must(t, r.b.Remove(t.Context(), "/f"))
	must(t, send())
	must(t, send())
	if !stat(t, r.b, "/f").IsDir() {
		t.Fatal("no directory was made")
	}
}

// A result is forgotten when the client says that it has it; the number cannot
// be used again.
func TestScenario40Acknowledged(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	send := func(seq, acked uint64) error {
		_, err := r.a.NN.Mkdir(t.Context(), &pb.MkdirRequest{
			Call: &pb.CallId{Session: r.a.Who.GetSession(), Seq: seq, Acked: acked}, Caller: r.a.Who, At: pb.At(fmt.Sprint("/", seq)),
		})
		return err
	}
	must(t, send(1, 0))
	must(t, send(2, 0))
	must(t, send(3, 1))
	must(t, send(2, 0))
	must(t, r.b.Remove(t.Context(), "/1"))
	wantKind(t, send(1, 0), fserror.InvalidArgument)
	r.n.Restart(t)
	wantKind(t, send(1, 0), fserror.InvalidArgument)
	gone(t, r.b, "/1")
}
