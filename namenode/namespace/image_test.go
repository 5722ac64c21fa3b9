package namespace

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode/namespace/codec"
	"github.com/leasefs/leasefs/namenode/namespace/levels"
	"github.com/leasefs/leasefs/namenode/namespace/tables"
	"github.com/leasefs/leasefs/test/env/size"
)

// rich makes a tree that has something of everything.
func rich(t tb) *rig {
	t.Helper()
	r := newRig(t)
	r.mkdir(t, "/a/b/"+longName)
	r.create(t, "/a/b/small", "a few bytes")
	r.create(t, "/a/"+hugeName+"1", "")
	w := r.open(t, "/a/open", "client")
	r.write(t, w, 0, "0123456789")
	r.commit(t, w, "0123")
	r.commit(t, w, "456789abc")
	r.write(t, w, 13, "tail")
	r.close(t, r.open(t, "/a/closed", "client"))
	op, err := PlanSymlink(r.tree, nil, At("/link"), "a/b", false)
	if err != nil {
		t.Fatalf("%v", err)
	}
	r.must(t, op)
	r.mkdir(t, "/acl")
	r.setACL(t, "/acl", "user::rwx,user:alice:rwx,group::r-x,mask::rwx,other::---,d:u:bob:rw,d:g:staff:r")
	r.mkdir(t, "/acl/below")
	r.create(t, "/acl/below/heir", "x")
	r.setACL(t, "/acl/below/heir", "user:carol:r")
	r.create(t, "/acl/heir", "")
	r.create(t, "/gone/deep/deeper/f", "x")
	v := r.open(t, "/gone/blocks", "client")
	r.commit(t, v, "block")
	r.must(t, &OpDelete{Parent: RootID, Name: "gone", Inode: r.tree.lookup(RootID, "gone").ID})
	r.must(t, &OpReclaim{Limit: 2})
	r.must(t, PlanTombstone(r.tree, []tables.StoredBlock{{Key: blockstore.Key{Term: 1, Seq: 1000}, Stored: 5}, {Key: blockstore.Key{Term: 2, Seq: 1}, Stored: 1<<32 - 1}}))
	r.must(t, &OpSetAttr{Inode: r.tree.lookup(RootID, "a").ID, SetMode: true, Mode: 0o1777, User: "someone", Group: "some group"})
	for i := range 20 {
		call := CallID{Session: SessionID{byte(i % 3), 9}, Seq: uint64(i + 1), Acked: uint64(i / 2), Hash: uint64(i)}
		if _, err := r.apply(call, &OpSetAttr{Inode: RootID, SetMTime: true}); err != nil {
			t.Fatalf("%v", err)
		}
	}
	for i := range 3 {
		r.must(t, &OpImage{TxID: 5, Name: fmt.Sprintf("image-%d", i), Size: 7, CRC: 9})
	}
	r.grant(t, 1, 1)
	r.grant(t, 300, 60_000)
	r.grant(t, tables.MaxLeaseID, tables.MaxLeaseTTL)
	r.attach(t, 300, "/a/open")
	r.attach(t, 300, "/a/closed")
	// One that has ended and has a file left.
	r.grant(t, 2, 5)
	for i := range endFiles + 1 {
		r.attachNew(t, 2, fmt.Sprintf("/ending%d", i))
	}
	r.endOld(t, 2)
	r.grant(t, 3, 5)
	for i := range 3 {
		r.attachNew(t, 3, fmt.Sprintf("/a/dead%d", i))
	}
	r.end(t, 3)
	r.grant(t, 3, 6)
	r.attachNew(t, 3, "/a/dead1")
	again := r.open(t, "/a/open", "client with an age")
	r.must(t, &OpAges{Ages: []Age{{AgeKey: AgeKey{Session: SessionID{1}}, MS: 5}, {AgeKey: AgeKey{Session: SessionID{2}}, MS: 6}, {AgeKey: AgeKey{Inode: again.Inode}, MS: 7}, {AgeKey: AgeKey{Lease: 1}, MS: 8}, {AgeKey: AgeKey{Lease: tables.MaxLeaseID}, MS: 1 << 40}}})
	r.must(t, &OpCaching{Session: SessionID{7}, Term: 10_000})
	r.must(t, &OpCaching{Session: SessionID{8}, Term: 1})
	for range 9 {
		r.must(t, &OpReserve{Session: SessionID{7}, Count: 3})
	}
	r.must(t, &OpReserve{Session: SessionID{8}, Count: tables.MaxReserve})
	r.must(t, &OpCreateAs{Session: SessionID{8}, Inode: r.tree.nextInode - 1, OpCreate: OpCreate{Parent: RootID, Name: "numbered", Closed: true}})
	r.must(t, &OpXattr{Inode: RootID, Name: "user.root", Value: []byte("value")})
	r.must(t, &OpXattr{Inode: again.Inode, Name: "user.b", Value: []byte{0, 0xff}})
	r.must(t, &OpXattr{Inode: again.Inode, Name: "user.a"})
	for _, length := range []int64{1, 0} {
		path := fmt.Sprintf("/cut-to-%d-%s", length, longName)
		r.must(t, &OpTruncate{Inode: r.create(t, path, "text"), Length: length})
	}
	r.must(t, &OpPass{Pass: tables.Pass{Sum: [32]byte{9}, User: "u", Renewer: "yarn", TTL: 60_000}})
	r.must(t, &OpPass{Pass: tables.Pass{Sum: [32]byte{1}, User: "u", Renewer: "u", Known: true, Groups: []string{"g", "h"}, TTL: tables.MaxPassTTL}})
	r.must(t, &OpPass{Pass: tables.Pass{Sum: [32]byte{2}, User: "v", Renewer: "v", Known: true, TTL: 1}})
	r.must(t, &OpPassChange{ID: r.tree.txid - 1})
	r.must(t, &OpSafeMode{On: true})
	r.must(t, &OpActivate{Term: 7, User: "new", Group: "super"})
	return r
}

// richer is rich at the newest level, with snapshots: some of what they have is gone, is other
// now, or was dead, and one was deleted.
func richer(t tb) *rig {
	t.Helper()
	r := rich(t)
	w := r.open(t, "/only", "client")
	r.commit(t, w, "block")
	r.close(t, w)
	for _, dir := range []string{"/", "/acl", "/a"} {
		r.allow(t, dir)
	}
	for i, dir := range []string{"/", "/acl", "/"} {
		r.snapshot(t, dir, fmt.Sprint("s", i))
		r.setACL(t, "/acl", fmt.Sprint("user:u", i, ":rwx"))
		r.must(t, &OpXattr{Inode: r.id(t, "/acl"), Name: "user.later", Value: []byte{byte(i)}})
		r.mkdir(t, fmt.Sprint("/acl/new", i, "/dir"))
		if i == 1 {
			for _, p := range []string{"/only", "/acl/below", "/a/b/small"} {
				op, err := PlanDelete(r.tree, nil, At(p), true, 0)
				if err != nil {
					t.Fatalf("%v", err)
				}
				r.must(t, op)
			}
		}
		if op, err := PlanRename(r.tree, nil, At("/acl/heir"), At(fmt.Sprint("/acl/heir", i)), false, false); err == nil {
			r.must(t, op)
		}
	}
	op, err := PlanDeleteSnapshot(r.tree, nil, At("/"), "s0")
	if err != nil {
		t.Fatalf("%v", err)
	}
	r.must(t, op)
	if c := r.tree.Counts(); c.Held != 1 || c.Snapshots != 2 {
		t.Fatalf("%+v", c)
	}
	return r
}

func TestImageOfAllThatThereIs(t *testing.T) {
	testImage(t, rich(t))
	testImage(t, richer(t))
}

func testImage(t *testing.T, r *rig) {
	sound(t, r.tree)
	image := imageOf(t, r.tree)
	for name, reader := range map[string]io.Reader{
		"whole":     bytes.NewReader(image),
		"a byte":    iotest.OneByteReader(bytes.NewReader(image)),
		"data, EOF": iotest.DataErrReader(bytes.NewReader(image)),
	} {
		back, err := ReadImage(reader)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		same(t, r.tree, back)
		sound(t, back)
		if again := imageOf(t, back); !bytes.Equal(image, again) {
			t.Fatalf("%s: the image of an image is another", name)
		}
		if got := back.Images(); len(got) != 2 || got[1].Name != "image-2" || !back.SafeMode() || back.Term() != 7 {
			t.Fatalf("%s: %+v", name, got)
		}
	}
}

// An image may be smaller than what is fetched at once.
func TestSmallImage(t *testing.T) {
	r := newRig(t)
	if txid, err := CheckImage(bytes.NewReader(imageOf(t, r.tree))); err != nil || txid != r.tree.txid {
		t.Fatal(txid, err)
	}
	roundTrip(t, r.tree)
}

// An item may be larger than a chunk.
func TestImageOfLargeItems(t *testing.T) {
	r := newRig(t)
	w := r.open(t, "/f", "client")
	for range 40_000 {
		r.keySeq++
		n := r.tree.get(w.Inode)
		b := Block{Stored: 8, Used: 8}
		b.Key.Term, b.Key.Seq = 1<<60, 1<<60+r.keySeq
		r.must(t, &OpCommit{Inode: w.Inode, Offset: n.BlocksLength(), Block: b})
	}
	big := strings.Repeat("tail", 1<<20) // above maxChunk
	r.must(t, &OpAppendTail{Inode: w.Inode, Offset: 320_000, Data: []byte(big)})
	h := Holder{User: strings.Repeat("u", 100_000), Client: strings.Repeat("c", 2<<20)}
	r.must(t, &OpOpen{Inode: w.Inode, Holder: h})
	r.create(t, "/g", strings.Repeat("x", 256<<10))
	roundTrip(t, r.tree)
}

// TestImageDamage cuts an image everywhere, and flips a bit of every byte: who loads
// it notices, and so does who only checks it.
func TestImageDamage(t *testing.T) {
	tree := rich(t).tree
	last, _ := tree.Last()
	for name, read := range map[string]func(io.Reader) (uint64, error){
		"load": func(r io.Reader) (uint64, error) {
			back, err := ReadImage(r)
			if err != nil {
				return 0, err
			}
			last, _ := back.Last()
			return last, nil
		},
		"check": CheckImage,
	} {
		t.Run(name, func(t *testing.T) {
			image := imageOf(t, tree)
			if txid, err := read(bytes.NewReader(image)); err != nil || txid != last {
				t.Fatalf("whole: txid %d, not %d, %v", txid, last, err)
			}
			for n := range image {
				_, err := read(bytes.NewReader(image[:n]))
				var ie *codec.ImageError
				if !errors.As(err, &ie) || !errors.Is(err, io.ErrUnexpectedEOF) {
					t.Fatalf("cut after %d of %d bytes: %v", n, len(image), err)
				}
			}
			for n := range image {
				bad := bytes.Clone(image)
				bad[n] ^= 1 << (n % 8)
				_, err := read(bytes.NewReader(bad))
				var ie *codec.ImageError
				if !errors.As(err, &ie) {
					t.Fatalf("bit flipped at %d: %v", n, err)
				}
			}
			var ie *codec.ImageError
			if _, err := read(bytes.NewReader(append(image, 0))); !errors.As(err, &ie) || !strings.Contains(err.Error(), "after the image") {
				t.Fatalf("a byte more: %v", err)
			}
			boom := errors.New("boom")
			if _, err := read(iotest.TimeoutReader(iotest.ErrReader(boom))); !errors.Is(err, boom) {
				t.Fatalf("the reader's error: %v", err)
			}
		})
	}
}

// reframe gives chunks their right checksums, so that what is in them is read as of a level.
func reframe(payload []byte, level uint64) []byte {
	var b bytes.Buffer
	w := codec.NewImageWriter(&b, levels.At(level).Image)
	w.Append(payload...)
	if err := w.Finish(); err != nil {
		panic(err) // a buffer takes all
	}
	return b.Bytes()
}

// payloadOf takes the frame off an image.
func payloadOf(image []byte) (payload []byte) {
	const header, chunkHeader = 16, 8
	for rest := image[header:]; len(rest) > chunkHeader; {
		n := int(binary.LittleEndian.Uint32(rest))
		payload = append(payload, rest[chunkHeader:chunkHeader+n]...)
		rest = rest[chunkHeader+n:]
	}
	return payload
}

// tryImage reads an image that may be anything; what is taken must be sound
// enough to be used.
func tryImage(t *testing.T, image []byte) {
	tree, err := ReadImage(bytes.NewReader(image))
	if err != nil {
		var ie *codec.ImageError
		if !errors.As(err, &ie) && fserror.ReasonOf(err) != fserror.ReasonNewer {
			t.Fatalf("error %v", err)
		}
		return
	}
	if p := tree.Check(); len(p) > 0 {
		t.Errorf("%v", p)
	}
	_ = tree.Walk(RootID, func([]byte, Attr) error { return nil })
	back, err := ReadImage(bytes.NewReader(imageOf(t, tree)))
	if err != nil {
		t.Fatalf("what was read cannot be written and read: %v", err)
	}
	same(t, tree, back)
}

// TestImageContent changes bytes behind valid checksums.
func TestImageContent(t *testing.T) {
	for _, r := range []*rig{rich(t), richer(t)} {
		level := r.tree.Level().Level
		payload := payloadOf(imageOf(t, r.tree))
		tryImage(t, reframe(payload, level))
		step := size.Of(31, 1) // prime, so that it meets every field of the records
		for n := 0; n < len(payload); n += step {
			for _, x := range []byte{1, 2, 4, 0x80, 0xff} {
				bad := bytes.Clone(payload)
				bad[n] ^= x
				tryImage(t, reframe(bad, level))
			}
			tryImage(t, reframe(payload[:n], level))
		}
	}
}

func FuzzReadImage(f *testing.F) {
	f.Add(payloadOf(imageOf(f, New())), true)
	f.Add(payloadOf(imageOf(f, rich(f).tree)), true)
	f.Add(payloadOf(imageOf(f, richer(f).tree)), true)
	f.Add(imageOf(f, rich(f).tree), false)
	f.Add(imageOf(f, richer(f).tree), false)
	f.Fuzz(func(t *testing.T, data []byte, frame bool) {
		if !frame {
			tryImage(t, data)
			return
		}
		tryImage(t, reframe(data, levels.First))
		tryImage(t, reframe(data, levels.Newest()))
	})
}
