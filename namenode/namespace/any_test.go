package namespace

import (
	"bytes"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/posixacl"
	"github.com/leasefs/leasefs/namenode/namespace/levels"
	"github.com/leasefs/leasefs/namenode/namespace/quota"
	"github.com/leasefs/leasefs/namenode/namespace/snapshots"
	"github.com/leasefs/leasefs/namenode/namespace/tables"
)

// drawOp draws a record that may fit the state or not.
func drawOp(t *rapid.T, next uint64) Op {
	id := func(label string) InodeID { return InodeID(rapid.Uint64Range(0, next+1).Draw(t, label)) }
	name := func(label string) string {
		return rapid.SampledFrom([]string{"", "a", "b", "c", "..", "x/y", longName}).Draw(t, label)
	}
	many := func(label string) []string {
		return rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c", ""}), 0, 3).Draw(t, label)
	}
	num := func(label string) int64 { return rapid.Int64Range(-2, 12).Draw(t, label) }
	data := func() []byte { return rapid.SliceOfN(rapid.Byte(), 0, 8).Draw(t, "data") }
	key := func() blockstore.Key { return blockstore.Key{Term: 1, Seq: rapid.Uint64Range(0, 6).Draw(t, "seq")} }
	user := func() string { return rapid.SampledFrom([]string{"", "u", "v"}).Draw(t, "user") }
	lease := func() LeaseID {
		return rapid.SampledFrom([]LeaseID{0, 1, 2, 3, tables.MaxLeaseID + 1}).Draw(t, "lease")
	}
	session := func() SessionID { return SessionID{byte(rapid.IntRange(0, 2).Draw(t, "session"))} }
	switch rapid.IntRange(1, len(ops)-1).Draw(t, "kind") {
	case int(opType(new(OpTxn))):
		op := new(OpTxn)
		for range rapid.IntRange(0, 4).Draw(t, "parts") {
			op.Parts = append(op.Parts, drawOp(t, next))
		}
		return op
	case 1:
		return &OpActivate{Term: uint64(num("term") + 2), User: user(), Group: user()}
	case 2:
		return &OpMkdir{Parent: id("parent"), Names: many("names"), Mode: 0o755, User: user(), Group: user()}
	case 3:
		op := &OpCreate{Parent: id("parent"), Dirs: many("dirs"), Name: name("name"), User: user(), Closed: rapid.Bool().Draw(t, "closed"), Data: data(), Replace: id("replace"), Lease: lease()}
		if rapid.Bool().Draw(t, "new") {
			op.Replace = 0
		}
		return op
	case 4:
		return &OpOpen{Inode: id("inode"), Token: Token{1}}
	case 5:
		return &OpAppendTail{Inode: id("inode"), Offset: num("offset"), Data: data()}
	case 6:
		return &OpCommit{
			Inode: id("inode"), Offset: num("offset"), TailCovered: num("covered"), ReplaceLast: rapid.Bool().Draw(t, "replace"),
			Block: Block{Key: key(), Stored: 9, Used: uint32(num("used") + 2)},
		}
	case 7:
		return &OpClose{Inode: id("inode"), Data: data()}
	case 8:
		return &OpRecover{Inode: id("inode")}
	case 9:
		op := &OpRename{FromParent: id("from"), FromName: name("from"), ToParent: id("to"), ToName: name("to"), Replace: id("replace"), Detach: rapid.Bool().Draw(t, "detach")}
		if rapid.Bool().Draw(t, "new") {
			op.Replace = 0
		}
		return op
	case 10:
		return &OpDelete{Parent: id("parent"), Name: name("name"), Inode: id("inode")}
	case 11:
		return &OpReclaim{Limit: uint32(num("limit") + 2)}
	case 12:
		return &OpSetAttr{Inode: id("inode"), SetMode: true, Mode: 0o70000 | 0o644, User: user()}
	case 13:
		return &OpSymlink{Parent: id("parent"), Dirs: many("dirs"), Name: name("name"), Target: name("target")}
	case 14:
		return &OpTruncate{Inode: id("inode"), Length: num("length")}
	case 15:
		return &OpConcat{Target: id("target"), Sources: []InodeID{id("source"), id("source")}[:rapid.IntRange(0, 2).Draw(t, "sources")]}
	case 16:
		return &OpTombstone{Blocks: []tables.StoredBlock{{Key: key(), Stored: uint32(num("stored"))}, {Key: key(), Stored: 5}}}
	case 17:
		return &OpCollected{Keys: []blockstore.Key{key()}}
	case 18:
		return &OpImage{TxID: uint64(num("txid") + 2), Name: "image"}
	case 27:
		return &OpCut{Inode: id("inode"), Length: num("length"), Token: Token{1}, Holder: Holder{Session: session()}}
	case 28:
		op := &OpHide{Parent: id("parent"), Name: name("name"), Inode: id("inode"), Hidden: name("hidden"), Lease: lease(), FromParent: id("from"), FromName: name("from"), Detach: rapid.Bool().Draw(t, "detach")}
		if rapid.Bool().Draw(t, "only") {
			op.FromParent = 0
		}
		return op
	case 29:
		return &OpXattr{Inode: id("inode"), Name: rapid.SampledFrom([]string{"user.a", "user.b", "user.", "other", tables.TrashXattr}).Draw(t, "xattr"), Value: data(), Remove: rapid.Bool().Draw(t, "remove")}
	case 30:
		return &OpReserve{Session: session(), Count: uint32(num("count") + 2)}
	case 31:
		return &OpCreateAs{Session: session(), Inode: id("inode"), OpCreate: OpCreate{
			Parent: id("parent"), Name: name("name"), User: user(), Closed: rapid.Bool().Draw(t, "closed"), Data: data(), Lease: lease(), Replace: id("replace") / 8,
		}}
	case 38:
		op := &OpSetACL{Inode: id("inode"), Mode: 0o70000 | 0o750}
		op.Access = rapid.SampledFrom([]posixacl.ACL{nil, {{Tag: posixacl.OwningGroup, Perm: 4}}, {{Tag: posixacl.User, Name: "u", Perm: 6}, {Tag: posixacl.OwningGroup}}, {{Tag: posixacl.User, Name: "u"}}, {{Tag: 9}}}).Draw(t, "access")
		op.Default = rapid.SampledFrom([]posixacl.ACL{nil, posixacl.FromMode(0o750), append(posixacl.FromMode(0o750), posixacl.Entry{Tag: posixacl.Other}), {{Tag: posixacl.Owner, Perm: 7}, {Tag: posixacl.OwningGroup, Perm: 5}, {Tag: posixacl.Group, Name: "g", Perm: 6}, {Tag: posixacl.Mask, Perm: 6}, {Tag: posixacl.Other}}}).Draw(t, "default")
		return op
	case 20:
		return &OpGrant{ID: lease(), TTL: num("ttl"), Owner: Owner{User: user()}}
	case 34:
		return &OpGrantNamed{OpGrant{ID: lease(), TTL: num("ttl"), Owner: Owner{User: user()}}, rapid.SampledFrom([]string{"n-1", "n-2", "f00", ""}).Draw(t, "name")}
	case 21:
		return &OpEndLease{ID: lease(), Reason: LeaseRevoked}
	case 32:
		return &OpEnd{ID: lease(), Reason: LeaseExpired}
	case 22:
		return &OpReap{ID: lease(), Limit: uint32(num("limit") + 2)}
	case 23:
		return &OpAttach{ID: lease(), Inode: id("inode")}
	case 24:
		return &OpDetach{Inode: id("inode")}
	case 25:
		op := new(OpAges)
		for range rapid.IntRange(0, 2).Draw(t, "ages") {
			a := Age{MS: num("age")}
			switch rapid.IntRange(0, 3).Draw(t, "of") {
			case 0:
				a.Session = session()
			case 1:
				a.Inode = id("inode")
			case 2:
				a.Lease = lease()
			case 3:
				a.Session, a.Inode = session(), id("inode")
			}
			op.Ages = append(op.Ages, a)
		}
		return op
	case 36:
		p := tables.Pass{Sum: [32]byte{byte(num("sum"))}, User: user(), Renewer: user(), TTL: num("ttl"), Known: rapid.Bool().Draw(t, "known")}
		if rapid.Bool().Draw(t, "grouped") {
			p.Groups = []string{name("group")}
		}
		return &OpPass{Pass: p}
	case 37:
		return &OpPassChange{ID: uint64(num("pass") + 2), Cancel: rapid.Bool().Draw(t, "cancel")}
	case 42:
		return &OpQuota{Inode: id("inode"), Limits: quota.Limits{Names: num("names"), Bytes: num("bytes")}}
	case snapshots.Kind:
		return &OpSnapshot{Change: snapshots.Change{Do: snapshots.Action(rapid.IntRange(1, 6).Draw(t, "do")), Dir: id("dir"), ID: snapshots.ID(num("snapshot") + 2), Name: name("name"), Limit: uint32(num("limit") + 2)}}
	case TrashKind:
		op := &OpTrash{Do: TrashAction(rapid.IntRange(1, 3).Draw(t, "do"))}
		switch op.Do {
		case TrashKeep:
			op.User, op.As = user(), rapid.SampledFrom([]string{"", "a", "x/y"}).Draw(t, "as")
			switch op.Op = drawOp(t, next); op.Op.(type) {
			case *OpTrash:
				op.Op = &OpDelete{Parent: id("parent"), Name: name("name"), Inode: id("inode")}
			}
		case TrashRestore:
			op.Inodes, op.Parent, op.Name = []InodeID{id("inode")}, id("parent"), name("name")
		case TrashEmpty:
			op.Inodes = []InodeID{id("inode"), id("inode")}[:rapid.IntRange(0, 2).Draw(t, "inodes")]
		}
		return op
	case levels.Raise:
		op := &OpLevel{State: levels.State{Level: uint64(num("level") + 2), Release: name("release")}}
		if rapid.Bool().Draw(t, "first") {
			op.First = &OpActivate{Term: uint64(num("term") + 2), User: user(), Group: user()}
		}
		return op
	case 26:
		return &OpCaching{Session: session(), Term: num("term")}
	}
	return &OpSafeMode{On: rapid.Bool().Draw(t, "on")}
}

// TestApplyAnything applies records that were never planned: one that is
// refused has changed nothing, one that is taken leaves a sound tree.
func TestApplyAnything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := newRig(t)
		// Something to work on, so that not all is refused.
		r.mkdir(t, "/a/b")
		r.create(t, "/a/b/c", "content")
		r.open(t, "/b", "client")
		r.grant(t, 1, 60_000)
		r.attach(t, 1, "/b")
		r.must(t, &OpXattr{Inode: RootID, Name: tables.TrashXattr, Value: []byte("1d")})
		r.quota(t, "/", 10, quota.None)
		r.quota(t, "/a", 2, 5)
		r.allow(t, "/a")
		r.snapshot(t, "/a", "s")
		r.tree.Events(true)
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			call := CallID{}
			if rapid.Bool().Draw(t, "call") {
				call = CallID{Session: SessionID{byte(rapid.IntRange(1, 3).Draw(t, "session"))}, Seq: rapid.Uint64Range(1, 9).Draw(t, "seq"), Acked: rapid.Uint64Range(0, 5).Draw(t, "acked"), Hash: 1}
			}
			op := drawOp(t, uint64(r.tree.nextInode))
			before := imageOf(t, r.tree)
			tail := r.tree.Counts().TailBytes
			if Permit(r.tree, op) != nil { // no namenode would journal it
				continue
			}
			if res, err := r.apply(call, op); err != nil {
				if !reflect.DeepEqual(res, Result{}) {
					t.Fatalf("refused, but says that it did %+v", res)
				}
				if !bytes.Equal(before, imageOf(t, r.tree)) || tail != r.tree.Counts().TailBytes {
					t.Fatalf("refused, but changed: %v", err)
				}
			}
			sound(t, r.tree)
		}
		roundTrip(t, r.tree)
		same(t, r.tree, replay(t, r.journal))
	})
}
