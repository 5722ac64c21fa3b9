package zk

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/leasefs/leasefs/internal/journal"
	"github.com/leasefs/leasefs/internal/journal/group"
)

// The nodes of a journal, below Config.Path.
const (
	termNode    = "term"
	firstNode   = "first"
	beatNode    = "beat"
	batchesNode = "batches"
)

// place is Config.Path.
type place string

func (p place) path(node string) string { return string(p) + "/" + node }

// folderSize is how many batches share a folder. A list of their names has to stay
// far below ZooKeeper's limit for one answer.
const folderSize = 1000

func (p place) batchPath(number uint64) string {
	return fmt.Sprintf("%s/%03d", p.folderPath(number), number%folderSize)
}

// folderPath is the folder of a batch: it comes with the first that is in it.
func (p place) folderPath(number uint64) string {
	return fmt.Sprintf("%s/%s/%017d", p, batchesNode, number/folderSize)
}

const remedy = "no other start changes this; read the node on each ZooKeeper server (zkCli.sh -server HOST get PATH): " +
	"if they differ, one server's disk or memory is bad: stop it, empty its data folder, and let it copy from the others; " +
	"if they agree, restore ZooKeeper's data folders from a backup"

func damaged(path string, off int64, txid uint64, detail string) error {
	return &journal.DamageError{Segment: "ZooKeeper node " + path, Offset: off, TxID: txid, Detail: detail, Remedy: remedy}
}

// A small node is one line of text that an operator can read: the kind, the
// format, key=value pairs, and a CRC32C of all before it.

type fields map[string]string

func encodeLine(kind string, pairs ...string) []byte {
	var b strings.Builder
	b.WriteString("leasefs-" + kind + " 1")
	for i := 0; i < len(pairs); i += 2 {
		b.WriteString(" " + pairs[i] + "=" + pairs[i+1])
	}
	return fmt.Appendf(nil, "%s crc=%08x", b.String(), group.Checksum([]byte(b.String())))
}

func decodeLine(path, kind string, data []byte) (fields, error) {
	text, crc, ok := strings.Cut(string(data), " crc=")
	if !ok || crc != fmt.Sprintf("%08x", group.Checksum([]byte(text))) {
		return nil, damaged(path, 0, 0, "checksum does not fit")
	}
	words := strings.Fields(text)
	if len(words) < 2 || words[0] != "leasefs-"+kind {
		return nil, damaged(path, 0, 0, "not a leasefs-"+kind+" node")
	}
	if words[1] != "1" {
		return nil, damaged(path, 0, 0, "format "+words[1]+", this program knows 1; start the leasefs that wrote it")
	}
	f := fields{}
	for _, w := range words[2:] {
		k, v, _ := strings.Cut(w, "=")
		f[k] = v
	}
	return f, nil
}

// uint is 0 for what is missing: later versions may leave fields out.
func (f fields) uint(key string) uint64 {
	n, _ := strconv.ParseUint(f[key], 10, 64)
	return n
}

func utoa(n uint64) string { return strconv.FormatUint(n, 10) }

// termInfo is the content of the term node. Its ZooKeeper version, the epoch, is
// what fences: each writer's transactions check it.
type termInfo struct {
	term     uint64
	lease    uint64 // milliseconds; how long after a write its writer may answer reads
	token    string // of the attempt that wrote it
	released bool   // its writer has ended and answers nothing
	holder   string // for people
}

func (t termInfo) encode() []byte {
	return encodeLine(termNode, "term", utoa(t.term), "lease_ms", utoa(t.lease), "token", t.token,
		"released", strconv.FormatBool(t.released), "holder", url.QueryEscape(t.holder))
}

func decodeTerm(path string, data []byte) (termInfo, error) {
	f, err := decodeLine(path, termNode, data)
	if err != nil {
		return termInfo{}, err
	}
	holder, _ := url.QueryUnescape(f["holder"])
	return termInfo{
		term: f.uint("term"), lease: f.uint("lease_ms"), token: f["token"],
		released: f["released"] == "true", holder: string(holder),
	}, nil
}

// encodeBeat makes the content of the beat node: the last record that was durable,
// or became so with it; 0 if that is not known.
func encodeBeat(term, txid uint64) []byte {
	return encodeLine(beatNode, "term", utoa(term), "txid", utoa(txid))
}

// firstInfo is the content of the first node.
type firstInfo struct {
	number uint64 // of the first batch that counts
	txid   uint64 // of the first record in it
	offset uint64 // bytes in all batches before it
	low    uint64 // of the first batch that may still be there
}

func (f firstInfo) encode() []byte {
	return encodeLine(firstNode, "number", utoa(f.number), "txid", utoa(f.txid), "offset", utoa(f.offset), "low", utoa(f.low))
}

func decodeFirst(path string, data []byte) (firstInfo, error) {
	f, err := decodeLine(path, firstNode, data)
	if err != nil {
		return firstInfo{}, err
	}
	return firstInfo{number: f.uint("number"), txid: f.uint("txid"), offset: f.uint("offset"), low: f.uint("low")}, nil
}
