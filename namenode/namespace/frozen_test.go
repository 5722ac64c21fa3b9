package namespace

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/leasefs/leasefs/namenode/namespace/levels"
	"github.com/leasefs/leasefs/namenode/namespace/quota"
	"github.com/leasefs/leasefs/namenode/namespace/snapshots"
)

// TestFrozenRecords decodes records as old journals have them. A line of the file
// is never changed or taken away: a new kind, or a new case, adds lines at the end.
func TestFrozenRecords(t *testing.T) {
	data, err := os.ReadFile("../../testdata/frozen/records.txt")
	if err != nil {
		t.Fatal(err)
	}
	frozen := make(map[string]bool)
	for line := range strings.Lines(string(data)) {
		var typ uint8
		var name string
		var body []byte
		if _, err := fmt.Sscanf(line, "%d %s %x\n", &typ, &name, &body); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		call, op, err := DecodeOp(typ, body)
		if err != nil || opName(op) != name {
			t.Errorf("%s is now %T, %v", line, op, err)
			continue
		}
		if again, encoded := EncodeOp(nil, call, op); again != typ || !bytes.Equal(encoded, body) {
			t.Errorf("%s is now written as %d %x", line, again, encoded)
		}
		frozen[line] = true
	}
	for _, call := range []CallID{{}, {Session: SessionID{1}, Seq: 2, Acked: 1, Hash: 1<<64 - 1}} {
		for _, op := range samples() {
			typ, body := EncodeOp(nil, call, op)
			if line := fmt.Sprintf("%d %s %x\n", typ, opName(op), body); !frozen[line] {
				t.Errorf("no such line: %s", line)
			}
		}
	}
}

// TestFrozenImage reads images as earlier programs wrote them, and writes the same bytes
// again as long as that is the format.
func TestFrozenImage(t *testing.T) {
	frozenImage(t, 7, "record 138 at 1700000000138, term 7, {Inodes:16 Files:9 Dirs:6 Symlinks:1 Blocks:2 Open:1 StoredBytes:21 TailBytes:18 ClosedTailBytes:14 Garbage:3 GarbageBytes:4294967309 Detached:1 Sessions:3 Leases:4 Attached:3 XattrBytes:412 ACLs:0 ACLBytes:0 Passes:0 Trashed:0 Snapshots:0 Held:0 HeldBytes:0}, "+
		"images [{TxID:5 Name:image-1 Size:7 CRC:9} {TxID:5 Name:image-2 Size:7 CRC:9}], ages 5, numbers 9")
	frozenImage(t, 8, "record 145 at 1700000000145, term 7, {Inodes:19 Files:12 Dirs:6 Symlinks:1 Blocks:2 Open:1 StoredBytes:21 TailBytes:21 ClosedTailBytes:17 Garbage:3 GarbageBytes:4294967309 Detached:1 Sessions:3 Leases:6 Attached:6 XattrBytes:412 ACLs:0 ACLBytes:0 Passes:0 Trashed:0 Snapshots:0 Held:0 HeldBytes:0}, "+
		"images [{TxID:5 Name:image-1 Size:7 CRC:9} {TxID:5 Name:image-2 Size:7 CRC:9}], ages 5, numbers 9")
	frozenImage(t, 9, "record 150 at 1700000000150, term 7, {Inodes:20 Files:13 Dirs:6 Symlinks:1 Blocks:2 Open:1 StoredBytes:21 TailBytes:21 ClosedTailBytes:17 Garbage:3 GarbageBytes:4294967309 Detached:1 Sessions:3 Leases:9 Attached:7 XattrBytes:412 ACLs:0 ACLBytes:0 Passes:0 Trashed:0 Snapshots:0 Held:0 HeldBytes:0}, "+
		"images [{TxID:5 Name:image-1 Size:7 CRC:9} {TxID:5 Name:image-2 Size:7 CRC:9}], ages 5, numbers 9")
	frozenImage(t, 10, "record 156 at 1700000000156, term 7, {Inodes:24 Files:15 Dirs:8 Symlinks:1 Blocks:2 Open:1 StoredBytes:21 TailBytes:22 ClosedTailBytes:18 Garbage:3 GarbageBytes:4294967309 Detached:1 Sessions:3 Leases:9 Attached:7 XattrBytes:412 ACLs:4 ACLBytes:1521 Passes:0 Trashed:0 Snapshots:0 Held:0 HeldBytes:0}, "+
		"images [{TxID:5 Name:image-1 Size:7 CRC:9} {TxID:5 Name:image-2 Size:7 CRC:9}], ages 5, numbers 9")
	frozenImage(t, 11, "record 155 at 1700000000155, term 7, {Inodes:23 Files:14 Dirs:8 Symlinks:1 Blocks:2 Open:1 StoredBytes:21 TailBytes:22 ClosedTailBytes:18 Garbage:3 GarbageBytes:4294967309 Detached:1 Sessions:3 Leases:6 Attached:6 XattrBytes:412 ACLs:4 ACLBytes:1521 Passes:3 Trashed:0 Snapshots:0 Held:0 HeldBytes:0}, "+
		"images [{TxID:5 Name:image-1 Size:7 CRC:9} {TxID:5 Name:image-2 Size:7 CRC:9}], ages 5, numbers 9")
	frozenImage(t, 12, "record 163 at 1700000000163, term 7, {Inodes:28 Files:17 Dirs:10 Symlinks:1 Blocks:2 Open:1 StoredBytes:21 TailBytes:31 ClosedTailBytes:27 Garbage:3 GarbageBytes:4294967309 Detached:1 Sessions:3 Leases:6 Attached:6 XattrBytes:560 ACLs:4 ACLBytes:1521 Passes:3 Trashed:3 Snapshots:0 Held:0 HeldBytes:0}, "+
		"images [{TxID:5 Name:image-1 Size:7 CRC:9} {TxID:5 Name:image-2 Size:7 CRC:9}], ages 5, numbers 9")
	tree := frozenImage(t, 13, "record 184 at 1700000000184, term 7, {Inodes:34 Files:18 Dirs:15 Symlinks:1 Blocks:2 Open:1 StoredBytes:21 TailBytes:56 ClosedTailBytes:52 Garbage:3 GarbageBytes:4294967309 Detached:2 Sessions:3 Leases:6 Attached:6 XattrBytes:560 ACLs:6 ACLBytes:1572 Passes:3 Trashed:2 Snapshots:2 Held:1 HeldBytes:28}, "+
		"images [{TxID:5 Name:image-1 Size:7 CRC:9} {TxID:5 Name:image-2 Size:7 CRC:9}], ages 5, numbers 9")
	quotas := ""
	tree.quotas.From(0, func(e quota.Entry) bool {
		quotas += fmt.Sprintf("%+v", e)
		return true
	})
	if want := "{Dir:1 Limits:{Names:1000 Bytes:1099511627776} Use:{Names:24 Bytes:51}}{Dir:2 Limits:{Names:-1 Bytes:5} Use:{Names:10 Bytes:31}}{Dir:11 Limits:{Names:0 Bytes:-1} Use:{Names:2 Bytes:1}}{Dir:65656 Limits:{Names:10 Bytes:10} Use:{Names:2 Bytes:4}}{Dir:65659 Limits:{Names:5 Bytes:4611686018427387904} Use:{Names:2 Bytes:1}}"; quotas != want {
		t.Errorf("quotas are now read as %s, not %s", quotas, want)
	}
	was := ""
	for _, dir := range []string{"/.snapshot", "/acl/.snapshot"} {
		a, err := tree.Stat(nil, At(dir))
		if err != nil {
			t.Fatal(err)
		}
		if err := tree.Walk(a.ID, func(p []byte, a Attr) error {
			if strings.Contains(string(p), "with") || a.Parent>>snapshots.Bits == InodeID(snapshots.ListID) {
				was += fmt.Sprintf("%s %#x %v %s\n", p, uint64(a.ID), a.Xattrs, a.Access.Note())
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	if want := "/.snapshot/third 0x300000000001 1 \n" +
		"/.snapshot/third/acl/with 0x30000001007e 0 , and an ACL\n" +
		"/.snapshot/third/acl/with/dirs 0x30000001007f 0 , and an ACL\n" +
		"/acl/.snapshot/" + longName + " 0x20000000000a 1 , and an ACL\n" +
		"/acl/.snapshot/" + longName + "/with 0x20000001007e 0 , and an ACL\n" +
		"/acl/.snapshot/" + longName + "/with/dirs 0x20000001007f 0 , and an ACL\n"; was != want {
		t.Errorf("snapshots are now read as\n%s, not\n%s", was, want)
	}
}

func frozenImage(t *testing.T, version uint32, want string) *Tree {
	t.Helper()
	image, err := os.ReadFile(fmt.Sprintf("../../testdata/frozen/image-%d", version))
	if err != nil {
		t.Fatal(err)
	}
	tree, err := ReadImage(bytes.NewReader(image))
	if err != nil {
		t.Fatal(err)
	}
	sound(t, tree)
	last, now := tree.Last()
	got := fmt.Sprintf("record %d at %d, term %d, %+v, images %+v, ages %d, numbers %d", last, now, tree.Term(), tree.Counts(), tree.Images(), tree.AgeTable.Len(), tree.CacherTable.Ranges())
	if got != want {
		t.Errorf("the image is now read as\n%s, not\n%s", got, want)
	}
	if levels.At(tree.Level().Level).Image == version && !bytes.Equal(imageOf(t, tree), image) {
		t.Error("the image is now written in other bytes")
	}
	return tree
}
