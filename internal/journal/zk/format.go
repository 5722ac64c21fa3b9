package zk

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/leasefs/leasefs/internal/journal/group"
)

// Sizes in bytes.
const (
	formatVersion = 1
	headerSize    = 72

	// DefaultMaxNode bounds what servers keep besides the journal: each has its
	// last 500 transactions in memory, three times, also when their nodes are gone
	// (ZooKeeper's commitLogCount; the copies counted in a heap of 3.8.0). These
	// are 94 MiB.
	DefaultMaxNode = 64 << 10
	// ZooKeeper refuses requests over jute.maxbuffer (1,048,575 bytes unless set
	// otherwise), and a server that gets a larger proposal leaves its leader; the
	// rest is for paths, ACLs and framing.
	maxMaxNode = 960 << 10
	minMaxNode = 4 << 10
)

// nodeMagic is little endian: the bytes are 'L' 'Z' 'J' and 0x97.
const nodeMagic = 0x974a5a4c

var le = binary.LittleEndian

// header is at the start of each batch node. doc.go has the table.
type header struct {
	parts, part uint16 // a record too large for a node is in parts nodes; else 1, 0
	count       uint32 // records that end in this node
	epoch       uint32 // version of the term node that the write was checked against
	number      uint64 // of the batch, as in the node's name
	first       uint64 // txid of the first record that is in it, whole or in part
	term        uint64
	segment     uint64 // number of the first batch of this segment
	offset      uint64 // bytes in all batches before this one
	chain       uint32 // CRC of the batch before
	crc         uint32 // of the whole node but this field
}

const crcAt = 68

// seal writes h into the room at the start of node and sets its checksum.
func (h *header) seal(node []byte) {
	le.PutUint32(node[0:], nodeMagic)
	le.PutUint32(node[4:], formatVersion)
	le.PutUint16(node[8:], h.parts)
	le.PutUint16(node[10:], h.part)
	le.PutUint32(node[12:], h.count)
	le.PutUint64(node[16:], h.number)
	le.PutUint64(node[24:], h.first)
	le.PutUint64(node[32:], h.term)
	le.PutUint64(node[40:], h.segment)
	le.PutUint64(node[48:], h.offset)
	le.PutUint32(node[56:], h.epoch)
	le.PutUint32(node[60:], h.chain)
	le.PutUint32(node[64:], uint32(len(node))) //nolint:gosec // at most a node
	h.crc = nodeCRC(node)
	le.PutUint32(node[crcAt:], h.crc)
}

func nodeCRC(node []byte) uint32 {
	c := group.Checksum(node[:crcAt])
	return crc32.Update(c, group.Castagnoli, node[headerSize:])
}

// decodeNode reads a node and checks it against itself. An error comes with the
// offset at which the bytes do not fit.
func decodeNode(node []byte) (h header, off int64, err error) {
	switch {
	case len(node) < headerSize:
		return h, int64(len(node)), fmt.Errorf("%d bytes, a batch has at least %d", len(node), headerSize)
	case le.Uint32(node) != nodeMagic:
		return h, 0, errors.New("not a journal batch: its first 4 bytes are others")
	}
	if v := le.Uint32(node[4:]); v != formatVersion {
		return h, 4, fmt.Errorf("format %d, this program knows %d; start the leasefs that wrote it", v, formatVersion)
	}
	if n := le.Uint32(node[64:]); int(n) != len(node) {
		return h, 64, fmt.Errorf("%d bytes where %d were written", len(node), n)
	}
	if le.Uint32(node[crcAt:]) != nodeCRC(node) {
		return h, crcAt, errors.New("checksum does not fit: bits have changed")
	}
	h = header{
		parts: le.Uint16(node[8:]), part: le.Uint16(node[10:]), count: le.Uint32(node[12:]),
		number: le.Uint64(node[16:]), first: le.Uint64(node[24:]), term: le.Uint64(node[32:]),
		segment: le.Uint64(node[40:]), offset: le.Uint64(node[48:]),
		epoch: le.Uint32(node[56:]), chain: le.Uint32(node[60:]), crc: le.Uint32(node[crcAt:]),
	}
	if h.parts == 0 || h.part >= h.parts {
		return h, 8, fmt.Errorf("part %d of %d cannot be", h.part, h.parts)
	}
	if h.parts > 1 && h.count != b2u(h.part == h.parts-1) {
		return h, 12, fmt.Errorf("part %d of %d ends %d records", h.part, h.parts, h.count)
	}
	return h, 0, nil
}

func b2u(b bool) uint32 {
	if b {
		return 1
	}
	return 0
}
