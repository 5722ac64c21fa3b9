package namespace

import (
	"bytes"
	"reflect"
	"testing"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/posixacl"
	"github.com/leasefs/leasefs/namenode/namespace/acl"
	"github.com/leasefs/leasefs/namenode/namespace/levels"
	"github.com/leasefs/leasefs/namenode/namespace/quota"
	"github.com/leasefs/leasefs/namenode/namespace/snapshots"
	"github.com/leasefs/leasefs/namenode/namespace/tables"
)

// samples is one record of each kind with every field set.
func samples() []Op {
	h := Holder{User: "u", Client: "client", Session: SessionID{1, 2}, Host: "h", PID: -7, TTL: 90_000}
	keys := []blockstore.Key{{Term: 1, Seq: 2}, {Term: 1 << 40, Seq: 1<<64 - 1}}
	return []Op{
		&OpActivate{Term: 3, NamespaceID: [16]byte{4}, User: "root", Group: "wheel", Nonce: [16]byte{5}},
		&OpMkdir{Parent: 1, Names: []string{"a", longName}, Mode: 0o1777, User: "u", Group: "g"},
		&OpCreate{
			Parent: 2, Dirs: []string{"x"}, Name: "f", Mode: 0o644, DirMode: 0o755, User: "u", Group: "g",
			Replace: 9, MTime: -5, Holder: h, Token: Token{8}, Data: []byte("data"), Lease: tables.MaxLeaseID,
		},
		&OpCreate{Parent: 2, Name: "f", Closed: true},
		&OpOpen{Inode: 7, Holder: h, Token: Token{1}},
		&OpAppendTail{Inode: 7, Offset: 1 << 40, Data: []byte{0, 1}},
		&OpCommit{Inode: 7, Offset: 9, Block: Block{Key: keys[1], Stored: 1<<32 - 1, Used: 5, CRC: 1}, TailCovered: 3, ReplaceLast: true},
		&OpClose{Inode: 7, Data: []byte("x"), MTime: 1},
		&OpRecover{Inode: 7, Reason: "forced"},
		&OpRename{FromParent: 1, FromName: "a", ToParent: 2, ToName: "b", Replace: 3, Detach: true},
		&OpDelete{Parent: 1, Name: "a", Inode: 2},
		&OpReclaim{Limit: 1000},
		&OpSetAttr{Inode: 1, SetMode: true, Mode: 0o7777, User: "u", Group: "g", SetMTime: true, MTime: -1 << 63},
		&OpSymlink{Parent: 1, Dirs: []string{"d"}, DirMode: 0o755, Name: "l", Target: "../x", User: "u", Group: "g"},
		&OpTruncate{Inode: 1, Length: 1<<63 - 1},
		&OpConcat{Target: 1, Sources: []InodeID{2, 3}},
		&OpTombstone{Blocks: []tables.StoredBlock{{Key: keys[0], Stored: 1<<32 - 1}, {Key: keys[1], Stored: 0}}},
		&OpCollected{Keys: keys},
		&OpImage{TxID: 1, Name: "image-1", Size: 1 << 40, CRC: 0xdeadbeef},
		&OpSafeMode{On: true},
		&OpGrant{ID: tables.MaxLeaseID, TTL: 60_000, Owner: Owner{User: "u", Client: "client", Host: "h"}},
		&OpGrantNamed{OpGrant: OpGrant{ID: 5, TTL: 60_000, Owner: Owner{User: "u", Client: "client", Host: "h"}}, Name: "server-1"},
		&OpEndLease{ID: 1 << 40, Reason: LeaseExpired},
		&OpReap{ID: 5, Limit: 1<<32 - 1},
		&OpAttach{ID: 5, Inode: 7},
		&OpDetach{Inode: 7},
		&OpAges{Ages: []Age{{AgeKey: AgeKey{Session: h.Session}, MS: 1}, {AgeKey: AgeKey{Inode: 7}, MS: 1<<63 - 1}, {AgeKey: AgeKey{Lease: 5}, MS: 0}}},
		&OpCaching{Session: h.Session, Term: 10_000},
		&OpCut{Inode: 7, Length: 1 << 40, Holder: h, Token: Token{1}},
		&OpHide{Parent: 1, Name: "a", Inode: 7, Hidden: ".a.leasefs-x", Lease: 5, FromParent: 2, FromName: "b", Detach: true},
		&OpXattr{Inode: 7, Name: "user.a", Value: []byte("v")},
		&OpXattr{Inode: 7, Name: "user.a", Remove: true},
		&OpReserve{Session: h.Session, Count: 1<<32 - 1},
		&OpCreateAs{Session: h.Session, Inode: 7, OpCreate: OpCreate{Parent: 1, Name: "f", Mode: 0o644, User: "u", Group: "g", MTime: 1, Closed: true, Data: []byte("x"), Lease: 3}},
		&OpEnd{ID: 1 << 40, Reason: LeaseExpired},
		&OpSetACL{Inode: 7, Mode: 0o1770, Lists: acl.Lists{
			Access:  posixacl.ACL{{Tag: posixacl.User, Name: "alice", Perm: 6}, {Tag: posixacl.OwningGroup, Perm: 5}, {Tag: posixacl.Group, Name: "staff", Perm: 4}},
			Default: posixacl.FromMode(0o750),
		}},
		&OpSetACL{Inode: 7, Mode: 0o644},
		&OpTxn{Parts: []Op{
			&OpCreate{Parent: 2, Name: "f", Closed: true, Data: []byte("x"), Lease: 3},
			&OpMkdir{Parent: 1, Names: []string{"a", "b"}, Mode: 0o755, User: "u", Group: "g"},
			&OpRename{FromParent: 1, FromName: "a", ToParent: 2, ToName: "b", Replace: 3},
			&OpDelete{Parent: 1, Name: "a", Inode: 2},
			&OpAttach{ID: 5, Inode: 7},
			&OpDetach{Inode: 8},
			&OpXattr{Inode: 7, Name: "user.a", Value: []byte("v")},
		}},
		&OpTxn{Parts: []Op{
			&OpCreate{Parent: 1, Name: "f", Mode: 0o444, User: "u", Group: "g", Holder: h, Token: Token{9}},
			&OpXattr{Inode: 7, Name: "user.a", Value: []byte("v")},
		}},
		&OpPass{Pass: tables.Pass{Sum: [32]byte{1, 31: 2}, User: "u", Renewer: "yarn", Known: true, Groups: []string{"g", "h"}, TTL: 60_000}},
		&OpPassChange{ID: 1 << 40},
		&OpPassChange{ID: 5, Cancel: true},
		&OpTrash{Do: TrashKeep, User: "u", As: "a", Op: &OpDelete{Parent: 1, Name: ".a.leasefs-x", Inode: 2}},
		&OpTrash{Do: TrashKeep, User: "u", Op: &OpTxn{Parts: []Op{&OpDelete{Parent: 1, Name: "a", Inode: 2}}}},
		&OpTrash{Do: TrashRestore, Inodes: []InodeID{1 << 40}, Parent: 1, Name: longName},
		&OpTrash{Do: TrashEmpty, Inodes: []InodeID{2, 3}},
		&OpLevel{State: levels.State{Level: 2, Release: "2.0.0"}},
		&OpLevel{State: levels.State{Level: 1<<64 - 1}, First: &OpActivate{Term: 3, NamespaceID: [16]byte{4}, User: "root", Group: "wheel", Nonce: [16]byte{5}}},
		&OpQuota{Inode: 7, Limits: quota.Limits{Names: 1_000_000, Bytes: 1<<63 - 1}},
		&OpQuota{Inode: 1, Limits: quota.Limits{Names: quota.None, Bytes: quota.None}},
		&OpSnapshot{Change: snapshots.Change{Do: snapshots.Allow, Dir: 300}},
		&OpSnapshot{Change: snapshots.Change{Do: snapshots.Disallow, Dir: 1}},
		&OpSnapshot{Change: snapshots.Change{Do: snapshots.Make, Dir: 1<<40 - 1, Name: "s20261128-235750.123"}},
		&OpSnapshot{Change: snapshots.Change{Do: snapshots.Rename, ID: 1<<23 - 2, Name: longName}},
		&OpSnapshot{Change: snapshots.Change{Do: snapshots.Delete, ID: 1}},
		&OpSnapshot{Change: snapshots.Change{Do: snapshots.Reclaim, Limit: 1000}},
	}
}

func TestCodec(t *testing.T) {
	kinds := make(map[uint8]bool)
	damaged := func(op Op, err error) bool { // what is of a level that is not known may have any layout
		raise, is := op.(*OpLevel)
		return fserror.KindOf(err) == fserror.Damaged || is && raise.Known("") != nil && fserror.ReasonOf(err) == fserror.ReasonNewer
	}
	for _, call := range []CallID{{}, {Session: SessionID{1}, Seq: 2, Acked: 1, Hash: 1<<64 - 1}} {
		for _, op := range samples() {
			typ, body := EncodeOp([]byte("before"), call, op)
			body, ok := bytes.CutPrefix(body, []byte("before"))
			if !ok {
				t.Fatal("EncodeOp does not append")
			}
			kinds[typ] = true
			gotCall, got, err := DecodeOp(typ, body)
			if err != nil || gotCall != call || !reflect.DeepEqual(got, op) {
				t.Fatalf("%+v came back as %+v %+v, %v", op, gotCall, got, err)
			}
			for n := range body {
				if _, _, err := DecodeOp(typ, body[:n]); !damaged(op, err) {
					t.Fatalf("%s cut after %d of %d bytes: %v", opName(op), n, len(body), err)
				}
			}
			if _, _, err := DecodeOp(typ, append(body, 0)); !damaged(op, err) {
				t.Fatalf("%s with a byte more: %v", opName(op), err)
			}
		}
	}
	for typ := range uint8(255) {
		if (newOp(typ) != nil) != kinds[typ] {
			t.Errorf("kind %d has no sample, or is no kind", typ)
		}
		if op := newOp(typ); op != nil && opType(op) != typ {
			t.Errorf("kind %d says that it is %d", typ, opType(op))
		}
	}
}

// The layouts must never change: old journals are read by new programs.
func TestLayoutIsFixed(t *testing.T) {
	zero15 := string(make([]byte, 15))
	session, none := "\xff"+zero15, "\x00"+zero15
	h := Holder{User: "u", Client: "c", Session: SessionID{0xff}, Host: "h", PID: -1, TTL: 64}
	holder := "\x01u" + "\x01c" + session + "\x01h" + "\x01" + "\x80\x01"
	for _, c := range []struct {
		call CallID
		op   Op
		want string
	}{
		{
			CallID{Session: SessionID{0xff}, Seq: 300, Acked: 1, Hash: 0x0102030405060708},
			&OpRename{FromParent: 1, FromName: "a", ToParent: 200, ToName: "bc", Replace: 0},
			"\x01" + session + "\xac\x02" + "\x01" + "\x08\x07\x06\x05\x04\x03\x02\x01" +
				"\x01" + "\x01a" + "\xc8\x01" + "\x02bc" + "\x00" + "\x00",
		},
		{CallID{}, &OpRename{FromParent: 1, FromName: "a", ToParent: 2, ToName: "b", Detach: true}, "\x00\x01\x01a\x02\x01b\x00\x01"},
		{
			CallID{}, &OpCommit{Inode: 5, Offset: -1, Block: Block{Key: blockstore.Key{Term: 1, Seq: 2}, Stored: 3, Used: 4, CRC: 0x0a0b0c0d}, TailCovered: 1, ReplaceLast: true},
			"\x00\x05\x01\x01\x02\x03\x04\x0d\x0c\x0b\x0a\x02\x01",
		},
		{
			CallID{}, &OpCreate{Parent: 1, Name: "f", Mode: 0o644, DirMode: 0o755, User: "u", Group: "g", MTime: 1, Holder: h, Token: Token{0xee}, Data: []byte("x"), Lease: 300},
			"\x00\x01\x00\x01f\xa4\x03\xed\x03\x01u\x01g\x00\x02\x00" + holder + "\xee" + zero15 + "\x01x" + "\xac\x02",
		},
		{CallID{}, &OpCreate{Parent: 1, Name: "f", Closed: true}, "\x00\x01\x00\x01f\x00\x00\x00\x00\x00\x00\x01\x00\x00"},
		{CallID{}, &OpReserve{Session: SessionID{0xff}, Count: 300}, "\x00" + session + "\xac\x02"},
		{CallID{}, &OpCreateAs{Session: SessionID{0xff}, Inode: 300, OpCreate: OpCreate{Parent: 1, Name: "f", Closed: true}}, "\x00" + session + "\xac\x02\x01\x00\x01f\x00\x00\x00\x00\x00\x00\x01\x00\x00"},
		{CallID{}, &OpOpen{Inode: 7, Holder: h, Token: Token{0xee}}, "\x00\x07" + holder + "\xee" + zero15},
		{CallID{}, &OpGrant{ID: 300, TTL: 64, Owner: Owner{User: "u", Client: "c", Host: "h"}}, "\x00\xac\x02\x80\x01\x01u\x01c\x01h"},
		{CallID{}, &OpGrantNamed{OpGrant{ID: 300, TTL: 64, Owner: Owner{User: "u", Client: "c", Host: "h"}}, "n-1"}, "\x00\xac\x02\x80\x01\x01u\x01c\x01h\x03n-1"},
		{CallID{}, &OpEndLease{ID: 5, Reason: LeaseRevoked}, "\x00\x05\x07revoked"},
		{CallID{}, &OpEnd{ID: 5, Reason: LeaseRevoked}, "\x00\x05\x07revoked"},
		{CallID{}, &OpReap{ID: 5, Limit: 200}, "\x00\x05\xc8\x01"},
		{CallID{}, &OpAttach{ID: 5, Inode: 200}, "\x00\x05\xc8\x01"},
		{CallID{}, &OpDetach{Inode: 200}, "\x00\xc8\x01"},
		{
			CallID{}, &OpAges{Ages: []Age{{AgeKey: AgeKey{Session: SessionID{0xff}}, MS: 1}, {AgeKey: AgeKey{Inode: 7}, MS: 64}, {AgeKey: AgeKey{Lease: 300}, MS: 0}}},
			"\x00\x03" + session + "\x00\x00\x02" + none + "\x07\x00\x80\x01" + none + "\x00\xac\x02\x00",
		},
		{CallID{}, &OpCaching{Session: SessionID{0xff}, Term: 64}, "\x00" + session + "\x80\x01"},
		{CallID{}, &OpCut{Inode: 7, Length: 64, Holder: h, Token: Token{0xee}}, "\x00\x07\x80\x01" + holder + "\xee" + zero15},
		{CallID{}, &OpHide{Parent: 1, Name: "a", Inode: 200, Hidden: "h", Lease: 5, FromParent: 2, FromName: "b", Detach: true}, "\x00\x01\x01a\xc8\x01\x01h\x05\x02\x01b\x01"},
		{CallID{}, &OpHide{Parent: 1, Name: "a", Inode: 3, Hidden: "h", Lease: 5}, "\x00\x01\x01a\x03\x01h\x05\x00\x00\x00"},
		{CallID{}, &OpXattr{Inode: 7, Name: "user.a", Value: []byte("xy")}, "\x00\x07\x06user.a\x02xy\x00"},
		{
			CallID{}, &OpSetACL{Inode: 300, Mode: 0o750, Lists: acl.Lists{
				Access:  posixacl.ACL{{Tag: posixacl.User, Name: "u", Perm: 6}, {Tag: posixacl.OwningGroup, Perm: 5}},
				Default: posixacl.FromMode(0o750),
			}},
			"\x00\xac\x02\xe8\x03" + "\x02\x02\x01u\x06\x03\x00\x05" + "\x03\x01\x00\x07\x03\x00\x05\x06\x00\x00",
		},
		{CallID{}, &OpXattr{Inode: 7, Name: "user.a", Remove: true}, "\x00\x07\x06user.a\x00\x01"},
		{
			CallID{}, &OpTxn{Parts: []Op{&OpAttach{ID: 5, Inode: 200}, &OpDelete{Parent: 1, Name: "a", Inode: 2}}},
			"\x00\x02" + "\x17\x05\xc8\x01" + "\x0a\x01\x01a\x02",
		},
		{
			CallID{}, &OpPass{Pass: tables.Pass{Sum: [32]byte{0xff, 16: 0xff}, User: "u", Renewer: "y", Known: true, Groups: []string{"g"}, TTL: 64}},
			"\x00" + session + session + "\x01u\x00\x01y\x01\x01\x01g\x80\x01",
		},
		{CallID{}, &OpPassChange{ID: 300, Cancel: true}, "\x00\xac\x02\x01"},
	} {
		if _, body := EncodeOp(nil, c.call, c.op); string(body) != c.want {
			t.Errorf("%+v:\n%x\n%x", c.op, body, c.want)
		}
	}
	for i, op := range []Op{&OpGrant{}, &OpEndLease{}, &OpReap{}, &OpAttach{}, &OpDetach{}, &OpAges{}, &OpCaching{}, &OpCut{}, &OpHide{}, &OpXattr{}, &OpReserve{}, &OpCreateAs{}, &OpEnd{}, &OpTxn{}, &OpGrantNamed{}} {
		if int(opType(op)) != 20+i {
			t.Errorf("%T has number %d", op, opType(op))
		}
	}
	if opType(&OpSetACL{}) != 38 {
		t.Errorf("an OpSetACL has number %d", opType(&OpSetACL{}))
	}
	if a, b := opType(&OpPass{}), opType(&OpPassChange{}); a != 36 || b != 37 {
		t.Errorf("those of passes have numbers %d and %d", a, b)
	}
}

func FuzzDecodeOp(f *testing.F) {
	for _, op := range samples() {
		for _, call := range []CallID{{}, {Session: SessionID{1}, Seq: 5}} {
			typ, body := EncodeOp(nil, call, op)
			f.Add(typ, body)
		}
	}
	f.Fuzz(func(t *testing.T, typ uint8, body []byte) {
		call, op, err := DecodeOp(typ, body)
		if err != nil {
			return
		}
		again, encoded := EncodeOp(nil, call, op)
		if again != typ || !bytes.Equal(encoded, body) {
			t.Fatalf("%x was decoded as %+v, which is %x", body, op, encoded)
		}
	})
}
