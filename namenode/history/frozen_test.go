package history

import (
	"bytes"
	"flag"
	"os"
	"reflect"
	"testing"

	"github.com/leasefs/leasefs/namenode/namespace"
)

var freeze = flag.Bool("freeze", false, "write the frozen file of the present version, once")

// TestFrozenFile: a file of the history that an earlier release wrote is read for ever, and is
// still written so.
func TestFrozenFile(t *testing.T) {
	const file = "../../testdata/frozen/history-1"
	id := [16]byte{1, 2, 3}
	at := point{txid: 7, ms: 1_700_000_000_000}
	holder := &namespace.Holder{User: "u", Client: "c", Session: namespace.SessionID{4}, Host: "h", PID: 5}
	f := frame{from: at, to: point{txid: 12, ms: 1_700_000_009_000, term: 3, nonce: [16]byte{9}}, spans: []Span{
		{TxID: 9, Inode: 17, Epoch: 8, Dir: 1, Path: "/a", Holder: holder, From: 1_700_000_001_000, To: 1_700_000_002_000, Why: "closed", By: &namespace.Owner{User: "v", Client: "d", Host: "i"}},
		{TxID: 12, Lease: 21, Name: "n", Holder: &namespace.Holder{User: "u", Client: "c", Host: "h"}, From: 1_700_000_001_000, To: 1_700_000_005_000, Why: "expired"},
	}}
	written := appendFrame(header(id, at), &f)
	if *freeze {
		if err := os.WriteFile(file, written, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	frozen, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(frozen, written) {
		t.Errorf("the file is now written as %x", written)
	}
	if got, ok := readHeader(frozen, id); !ok || got != at {
		t.Errorf("the header is %+v, %t", got, ok)
	}
	payload, rest, ok := cutFrame(frozen[headerBytes:])
	if !ok || len(rest) > 0 {
		t.Fatal(ok, len(rest))
	}
	got, ok := readFrame(payload)
	if !ok || got.to != f.to || len(got.spans) != len(f.spans) {
		t.Fatalf("%+v, %t", got, ok)
	}
	for i := range f.spans {
		want, is := f.spans[i], got.spans[i]
		want.by, is.by = nil, nil
		if !reflect.DeepEqual(is, want) {
			t.Errorf("span %d is %+v, want %+v", i, is, want)
		}
	}
}
