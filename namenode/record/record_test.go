package record

import (
	"bytes"
	"errors"
	"os"
	"reflect"
	"strings"
	"testing"

	"encoding/hex"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode/namespace"
)

var call = namespace.CallID{Session: namespace.SessionID{1}, Seq: 2, Acked: 1, Hash: 3}

// TestSigned: a record is read as it was written, and nothing else is.
func TestSigned(t *testing.T) {
	by := &namespace.Owner{User: "u", Client: "c", Host: "h"}
	for _, signer := range []*namespace.Owner{nil, by} {
		op := &namespace.OpDelete{Parent: 1, Name: "a", Inode: 2}
		kind, body := Encode(signer, call, op)
		if (kind == Signed) != (signer != nil) {
			t.Fatalf("kind %d", kind)
		}
		gotBy, gotCall, gotOp, err := Decode(kind, body)
		if err != nil || gotCall != call || !reflect.DeepEqual(gotOp, op) || !reflect.DeepEqual(gotBy, signer) {
			t.Fatalf("%+v %+v %+v, %v", gotBy, gotCall, gotOp, err)
		}
		for n := range len(body) {
			if _, _, _, err := Decode(kind, body[:n]); !errors.Is(err, fserror.Damaged) {
				t.Errorf("%d bytes of %d: %v", n, len(body), err)
			}
		}
	}
	if _, _, _, err := Decode(Signed, []byte{0, 0, 0, Signed, 0}); !errors.Is(err, fserror.Damaged) {
		t.Error("a signed record in a signed one:", err)
	}
}

// TestFrozen: the bytes of signed records that were ever written are read for ever.
func TestFrozen(t *testing.T) {
	raw, err := os.ReadFile("../../testdata/frozen/signed.txt")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(string(raw)) {
		words := strings.Fields(line)
		body, err := hex.DecodeString(words[1])
		if err != nil {
			t.Fatal(err)
		}
		by, call, op, err := Decode(Signed, body)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if got := strings.TrimPrefix(reflect.TypeOf(op).Elem().Name(), "Op"); got != words[0] || by.User == "" {
			t.Errorf("%s: a %s by %+v", line, got, by)
		}
		if _, again := Encode(by, call, op); !bytes.Equal(again, body) {
			t.Errorf("%s is written as %x", line, again)
		}
		n++
	}
	if n < 5 {
		t.Errorf("%d records", n)
	}
}

// TestSigner: who takes something from others is named.
func TestSigner(t *testing.T) {
	c := &namespace.Call{User: "u", Client: "c", Host: "h"}
	for _, op := range []namespace.Op{&namespace.OpDelete{}, &namespace.OpRecover{}, &namespace.OpEnd{}, &namespace.OpRename{Replace: 2}, &namespace.OpTxn{Parts: []namespace.Op{&namespace.OpMkdir{}, &namespace.OpDelete{}}}} {
		if by := Signer(c, op); by == nil || *by != (namespace.Owner{User: "u", Client: "c", Host: "h"}) {
			t.Errorf("%T: %+v", op, by)
		}
	}
	for _, op := range []namespace.Op{&namespace.OpClose{}, &namespace.OpRename{}, &namespace.OpCreate{}} {
		if by := Signer(c, op); by != nil {
			t.Errorf("%T: %+v", op, by)
		}
	}
}

func FuzzDecode(f *testing.F) {
	kind, body := Encode(&namespace.Owner{User: "u"}, call, &namespace.OpDelete{Parent: 1, Name: "a", Inode: 2})
	f.Add(kind, body)
	f.Fuzz(func(t *testing.T, kind uint8, body []byte) {
		by, call, op, err := Decode(kind, body)
		if err != nil {
			return
		}
		if k, again := Encode(by, call, op); k != kind || !bytes.Equal(again, body) {
			t.Fatalf("%x is written as %x", body, again)
		}
	})
}
