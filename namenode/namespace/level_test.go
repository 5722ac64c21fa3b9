package namespace

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode/namespace/codec"
	"github.com/leasefs/leasefs/namenode/namespace/levels"
)

// versionOf is the version in the header of an image.
func versionOf(image []byte) uint32 { return binary.LittleEndian.Uint32(image[8:]) }

// TestLevel: a namespace is at the first level until a record raises it, and writes the images of
// its level; what raises it is in them.
func TestLevel(t *testing.T) {
	r := rich(t)
	if at := r.tree.Level(); at != (levels.State{Level: levels.First}) {
		t.Fatalf("it begins at %+v", at)
	}
	before := imageOf(t, r.tree)
	if got, want := versionOf(before), levels.At(levels.First).Image; got != want {
		t.Fatalf("its image has version %d, want %d", got, want)
	}
	want := levels.State{Level: 2, Release: "2.0.0"}
	r.must(t, &OpLevel{State: want})
	image := imageOf(t, r.tree)
	if got := versionOf(image); got != levels.At(2).Image {
		t.Fatalf("at level 2 its image has version %d", got)
	}
	back := roundTrip(t, r.tree)
	if at := back.Level(); at != want {
		t.Fatalf("%+v is read as %+v", want, at)
	}
	same(t, r.tree, back)
	same(t, r.tree, replay(t, r.journal))
	if txid, err := CheckImage(bytes.NewReader(image)); err != nil || txid != r.tree.txid {
		t.Fatal(txid, err)
	}
	for name, op := range map[string]Op{"the same again": &OpLevel{State: want}, "a lower one": &OpLevel{State: levels.State{Level: 1}}, "a first record": &OpLevel{State: levels.State{Level: 3}, First: &OpActivate{Term: 9}}} {
		if _, err := r.apply(CallID{}, op); err == nil || r.tree.Level() != want {
			t.Errorf("%s: %v, at %+v", name, err, r.tree.Level())
		}
	}
	if _, err := applyRecord(r.tree.Clone(), r.journal[len(r.journal)-1]); err == nil {
		t.Error("a clone is raised")
	}
}

// TestFirstLevel: a new namespace can begin at a level, and its first record is still the
// beginning of a reign.
func TestFirstLevel(t *testing.T) {
	r := &rig{tree: New(), now: testStart}
	if _, err := r.apply(CallID{}, &OpLevel{State: levels.State{Level: 2}}); err == nil {
		t.Fatal("a namespace without a reign is raised")
	}
	r.must(t, &OpLevel{State: levels.State{Level: 2, Release: "2.0.0"}, First: &OpActivate{Term: 4, NamespaceID: [16]byte{7}, User: "u", Group: "g"}})
	last, _ := r.tree.Last()
	if user, group := r.tree.Superuser(); last != 1 || r.tree.Level().Level != 2 || r.tree.Term() != 4 || r.tree.NamespaceID() != [16]byte{7} || user != "u" || group != "g" {
		t.Fatalf("record %d, %+v, term %d, %s, %s", last, r.tree.Level(), r.tree.Term(), user, group)
	}
	r.mkdir(t, "/a")
	same(t, r.tree, roundTrip(t, r.tree))
	if r.tree.Reigned() != 1 { // the milliseconds since the activation: what was before does not count
		t.Errorf("it has reigned for %d ms", r.tree.Reigned())
	}
}

// TestNewerLevel: who meets a level that he does not know says which release has raised it, and
// what to do, in a record as in an image.
func TestNewerLevel(t *testing.T) {
	r := newRig(t)
	const above = 99
	_, err := r.apply(CallID{}, &OpLevel{State: levels.State{Level: above, Release: "9.0.0"}})
	if fserror.ReasonOf(err) != fserror.ReasonNewer || !strings.Contains(err.Error(), "the namespace is at feature level 99, and this release of leasefs knows levels up to ") ||
		!strings.Contains(err.Error(), "leasefs 9.0.0 raised it; install that release or a newer one") {
		t.Errorf("a record: %v", err)
	}
	kind, body := EncodeOp(nil, CallID{}, &OpLevel{State: levels.State{Level: above, Release: "9.0.0"}})
	if _, _, err := DecodeOp(kind, append(body, "more than this release knows"...)); fserror.ReasonOf(err) != fserror.ReasonNewer || !strings.Contains(err.Error(), "leasefs 9.0.0 raised it") {
		t.Errorf("a record with more in it: %v", err)
	}
	kind, body = EncodeOp(nil, CallID{}, &OpLevel{State: levels.State{Level: levels.Newest()}})
	if _, _, err := DecodeOp(kind, append(body, 0)); fserror.KindOf(err) != fserror.Damaged {
		t.Errorf("a damaged record: %v", err)
	}
	r.must(t, &OpLevel{State: levels.State{Level: levels.Newest()}})
	var b bytes.Buffer
	w := codec.NewImageWriter(&b, newestImage()) // by a level that has no image of its own
	at := levels.State{Level: above, Release: "9.0.0"}
	at.Code(&w.Coder)
	if err := w.Finish(); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadImage(bytes.NewReader(b.Bytes())); fserror.ReasonOf(err) != fserror.ReasonNewer || !strings.Contains(err.Error(), "the image is at feature level 99") {
		t.Errorf("an image: %v", err)
	}
	b.Reset()
	w = codec.NewImageWriter(&b, newestImage())
	at = levels.State{Level: levels.First}
	at.Code(&w.Coder)
	if err := w.Finish(); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadImage(bytes.NewReader(b.Bytes())); err == nil || !strings.Contains(err.Error(), "level 1 is not one of version") {
		t.Errorf("an image of another level's version: %v", err)
	}
}

// TestPermit: each kind of record is allowed from its level on, within others, too.
func TestPermit(t *testing.T) {
	r := newRig(t)
	for kind := range ops {
		op := newOp(uint8(kind)) //nolint:gosec // a few
		if op == nil {
			continue
		}
		if _, raise := op.(*OpLevel); raise {
			op = &OpLevel{State: levels.State{Level: 2}}
		}
		_, raise := op.(*OpLevel)
		allowed := raise || levels.Of(uint8(kind)) == levels.First
		for _, in := range []Op{op, &OpTrash{Do: TrashKeep, Op: op}, &OpTxn{Parts: []Op{op}}} {
			if err := Permit(r.tree, in); (err == nil) != allowed {
				t.Errorf("%s in %s: %v", opName(op), opName(in), err)
			}
			if raise {
				break
			}
		}
	}
	if err := Permit(r.tree, &OpLevel{State: levels.State{Level: levels.First}}); fserror.ReasonOf(err) != fserror.ReasonLevel {
		t.Errorf("the record of a level that has no such record: %v", err)
	}
}
