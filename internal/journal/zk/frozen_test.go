package zk

import (
	"bytes"
	"encoding/hex"
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/leasefs/leasefs/internal/journal"
	"github.com/leasefs/leasefs/internal/journal/group"
)

var freeze = flag.Bool("freeze", false, "write the frozen nodes of the present version, once")

// TestFrozenNodes: nodes that an earlier release made are read for ever, and are still written
// so. The first line is a batch in hexadecimal digits, the others are the small nodes.
func TestFrozenNodes(t *testing.T) {
	const file = "../../../testdata/frozen/zookeeper.txt"
	var last int64
	node := make([]byte, headerSize)
	for _, r := range []journal.Record{{Type: 1, Time: 1_700_000_000_000, Body: []byte("first")}, {Type: 41, Time: 1_700_000_000_250, Body: bytes.Repeat([]byte{0xfe}, 300)}} {
		node = group.AppendRecord(node, &r, last)
		last = r.Time
	}
	h := header{parts: 1, count: 2, number: 7, first: 9, term: 3, segment: 5, offset: 1 << 40, chain: 0xdeadbeef, epoch: 4}
	h.seal(node)
	term := termInfo{term: 3, lease: 1400, token: "00112233445566778899aabbccddeeff", released: true, holder: "nn1:8020 on a host"}
	first := firstInfo{number: 7, txid: 9, offset: 1 << 40, low: 6}
	written := strings.Join([]string{hex.EncodeToString(node), string(term.encode()), string(encodeBeat(3, 10)), string(first.encode()), ""}, "\n")
	if *freeze {
		if err := os.WriteFile(file, []byte(written), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	frozen, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(frozen) != written {
		t.Errorf("the nodes are now written as\n%s", written)
	}
	lines := strings.Split(string(frozen), "\n")
	raw, err := hex.DecodeString(lines[0])
	if err != nil {
		t.Fatal(err)
	}
	if got, _, err := decodeNode(raw); err != nil || got != h {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := decodeTerm("", []byte(lines[1])); err != nil || got != term {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := decodeLine("", beatNode, []byte(lines[2])); err != nil || got.uint("term") != 3 || got.uint("txid") != 10 {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := decodeFirst("", []byte(lines[3])); err != nil || got != first {
		t.Errorf("%+v, %v", got, err)
	}
}
