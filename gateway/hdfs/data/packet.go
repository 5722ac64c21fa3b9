package data

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"google.golang.org/protobuf/proto"

	"github.com/leasefs/leasefs/gateway/hdfs/hadoop"
)

// A packet is its length without what comes before the checksums, but with these four
// bytes; the length of the header, in two; the header; a checksum for each chunk of
// data; the data.
const (
	maxPacket   = 16 << 20
	maxHeader   = 1 << 10
	chunkSize   = 512 // over how many bytes HDFS has a checksum
	minPerSum   = 64
	maxPerSum   = 1 << 20
	pieceSize   = 64 << 10
	sumSize     = crc32.Size
	headerPlain = 25                  // bytes of a header without syncBlock
	packetSize  = 64 << 10            // of clients' packets, if nobody sets another (dfs.client-write-packet-size)
	packetHead  = 6 + headerPlain + 2 // what Java's and Rust's clients leave of that for the header
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// sums are the checksums that a client sends with its packets.
type sums struct {
	table *crc32.Table // nil: it sends none
	per   int          // bytes
}

func newSums(c *hadoop.ChecksumProto) (sums, error) {
	per := c.GetBytesPerChecksum()
	switch c.GetType() {
	case hadoop.ChecksumTypeProto_CHECKSUM_NULL:
		return sums{per: chunkSize}, nil
	case hadoop.ChecksumTypeProto_CHECKSUM_CRC32, hadoop.ChecksumTypeProto_CHECKSUM_CRC32C:
		if per < minPerSum || per > maxPerSum {
			return sums{}, fmt.Errorf("a checksum over %d bytes each is not served, %d to %d are (dfs.bytes-per-checksum)", per, minPerSum, maxPerSum)
		}
		if c.GetType() == hadoop.ChecksumTypeProto_CHECKSUM_CRC32 {
			return sums{crc32.IEEETable, int(per)}, nil
		}
		return sums{castagnoli, int(per)}, nil
	}
	return sums{}, errors.New("the kind of checksum is not known")
}

// count is how many checksums so many bytes have.
func (s sums) count(data int) int {
	if s.table == nil {
		return 0
	}
	return (data + s.per - 1) / s.per
}

// isFull tells whether a client ended a packet of n bytes because no more fit, and not because it
// flushes. With Java's and Rust's clients, packetSize includes the header and the checksums, and a packet
// has whole chunks; Go's has packetSize bytes of data. A client that makes larger packets is known by one
// that is as long as the longest before it. Smaller ones cannot be told from flushes.
func (s sums) isFull(n, longest int) bool {
	usual := max((packetSize-packetHead)/(s.per+s.count(s.per)*sumSize), 1) * s.per
	return n%s.per == 0 && n >= max(usual, longest) && (n == usual || n == packetSize || n == longest)
}

// errSum says that bytes are not what their checksum says.
var errSum = errors.New("the bytes do not match their checksum")

// packets reads what a client sends of a block.
type packets struct {
	in   *bufio.Reader
	sums sums
	head []byte
	sum  []byte // the checksums of the packet
	buf  []byte
}

// next reads the head of the next packet.
func (p *packets) next() (*hadoop.PacketHeaderProto, error) {
	var lens [6]byte
	if _, err := io.ReadFull(p.in, lens[:]); err != nil {
		return nil, err
	}
	size, head := int64(binary.BigEndian.Uint32(lens[:])), int(binary.BigEndian.Uint16(lens[4:]))
	if size > maxPacket+4 || size < 4 || head > maxHeader {
		return nil, fmt.Errorf("a packet of %d bytes with a header of %d makes no sense, %d and %d are the most", size, head, maxPacket, maxHeader)
	}
	if cap(p.head) < head {
		p.head = make([]byte, head)
	}
	if _, err := io.ReadFull(p.in, p.head[:head]); err != nil {
		return nil, unexpected(err)
	}
	h := new(hadoop.PacketHeaderProto)
	if err := proto.Unmarshal(p.head[:head], h); err != nil {
		return nil, err
	}
	n := int(h.GetDataLen())
	if n < 0 || n > maxPacket || int64(n+p.sums.count(n)*sumSize+4) != size {
		return nil, fmt.Errorf("a packet says that it has %d bytes of data and has %d with checksums", n, size-4)
	}
	if h.GetLastPacketInBlock() && n > 0 {
		return nil, fmt.Errorf("the last packet of a block has no data, and this one has %d bytes", n)
	}
	return h, nil
}

// body reads the data of a packet, piece by piece: each is verified before take gets it
// with where it begins in the packet. Once take has failed nothing of the packet
// is given to it.
func (p *packets) body(n int, take func(at int, b []byte) error) error {
	size := p.sums.count(n) * sumSize
	if cap(p.sum) < size {
		p.sum = make([]byte, size)
	}
	sum := p.sum[:size]
	if _, err := io.ReadFull(p.in, sum); err != nil {
		return unexpected(err)
	}
	piece := max(pieceSize-pieceSize%p.sums.per, p.sums.per)
	for at := 0; at < n; at += piece {
		k := min(piece, n-at)
		b, err := p.bytes(k)
		if err != nil {
			return err
		}
		if p.sums.table != nil {
			for c := 0; c < k; c += p.sums.per {
				if crc32.Checksum(b[c:min(c+p.sums.per, k)], p.sums.table) != binary.BigEndian.Uint32(sum) {
					return errSum
				}
				sum = sum[sumSize:]
			}
		}
		if err := take(at, b); err != nil {
			return err
		}
	}
	return nil
}

// bytes reads n bytes into memory that is used again; if they fit, that of what is read.
func (p *packets) bytes(n int) ([]byte, error) {
	if n <= p.in.Size() {
		b, err := p.in.Peek(n)
		if err == nil {
			_, err = p.in.Discard(n) // they are valid until more is read
		}
		return b, unexpected(err)
	}
	if cap(p.buf) < n {
		p.buf = make([]byte, n)
	}
	b := p.buf[:n]
	_, err := io.ReadFull(p.in, b)
	return b, unexpected(err)
}

// unexpected is err of a message that has begun.
func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// outPacket is a packet that is sent: room for what comes before the data, then the data.
type outPacket struct {
	buf  []byte
	data int // where the data begins in buf
}

// newOut returns one with room for so much data.
func newOut(most int) *outPacket {
	at := 6 + headerPlain + (most+chunkSize-1)/chunkSize*sumSize
	return &outPacket{make([]byte, at+most), at}
}

// room is where the data is to be put.
func (o *outPacket) room() []byte { return o.buf[o.data:] }

// seal returns the packet with n bytes of data.
func (o *outPacket) seal(n int, offset, seqno int64, last, checksums bool) []byte {
	at := o.data
	if checksums {
		at -= (n + chunkSize - 1) / chunkSize * sumSize
		sum := o.buf[at:o.data:o.data]
		for c := o.data; c < o.data+n; c += chunkSize {
			binary.BigEndian.PutUint32(sum, crc32.Checksum(o.buf[c:min(c+chunkSize, o.data+n)], castagnoli))
			sum = sum[sumSize:]
		}
	}
	size := o.data + n - at + 4
	begin := at - headerPlain - 6
	h := o.buf[begin:begin]
	h = binary.BigEndian.AppendUint32(h, uint32(size)) //nolint:gosec // it has room
	h = binary.BigEndian.AppendUint16(h, headerPlain)
	h, err := proto.MarshalOptions{}.MarshalAppend(h, &hadoop.PacketHeaderProto{
		OffsetInBlock: &offset, Seqno: &seqno, LastPacketInBlock: &last, DataLen: proto.Int32(int32(n)), //nolint:gosec // as above
	})
	if err != nil || len(h) != 6+headerPlain {
		panic(fmt.Sprintf("a header of %d bytes: %v", len(h), err)) // it has no optional field
	}
	return o.buf[begin : o.data+n]
}
