package webhdfs

import (
	"context"
	"crypto/md5" //nolint:gosec // Hadoop's checksum of a file is made of it
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"net"
	"strconv"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/gateway/hadoop"
)

// maxLocations is how many blocks one answer describes. Of a larger file they are taken
// for larger: all are at the same place.
const maxLocations = 1_000

// block is a piece of a file as large as the client has asked for at its creation. All
// are where the gateway is.
type block struct{ offset, length int64 }

// blocks are those of a file that a range touches.
func (q lookup) blocks() (i *client.FileInfo, all []block, err error) {
	offset, err := q.params.number("offset", 0, 0, math.MaxInt64)
	if err != nil {
		return nil, nil, err
	}
	length, err := q.params.number("length", math.MaxInt64, 0, math.MaxInt64)
	if err != nil {
		return nil, nil, err
	}
	if i, err = q.fs.Stat(q.ctx, q.path); err != nil {
		return nil, nil, err
	}
	if i.IsDir() {
		return nil, nil, hadoop.Refuse(hadoop.FileNotFound, "Path is not a file: %s", q.path)
	}
	a := hadoop.AttrOf(i)
	end := i.Length
	if length < end-min(offset, end) {
		end = offset + length
	}
	return i, split(offset, end, i.Length, a.BlockSize), nil
}

// split returns the blocks of a file of so many bytes from offset to end.
func split(offset, end, length, size int64) (all []block) {
	for (end-offset)/size >= maxLocations {
		size *= 2
	}
	if offset >= end {
		return nil
	}
	for at := offset - offset%size; at < end; {
		b := block{at, min(size, length-at)}
		all = append(all, b)
		at += b.length
	}
	return all
}

func (q lookup) getFileBlockLocations() error {
	_, blocks, err := q.blocks()
	if err != nil {
		return err
	}
	_, port, _ := net.SplitHostPort(q.Addr())
	name := net.JoinHostPort(q.host, port)
	all := []map[string]any{}
	for _, b := range blocks {
		all = append(all, map[string]any{
			"cachedHosts": []string{}, "corrupt": false, "hosts": []string{q.host}, "length": b.length, "names": []string{name},
			"offset": b.offset, "storageTypes": []string{"DISK"}, "topologyPaths": []string{"/default-rack/" + name},
		})
	}
	return q.json(map[string]any{"BlockLocations": map[string]any{"BlockLocation": all}})
}

// getBlockLocations answers clients before 3.3, which look for the hosts only.
func (q lookup) getBlockLocations() error {
	i, blocks, err := q.blocks()
	if err != nil {
		return err
	}
	_, p, _ := net.SplitHostPort(q.Addr())
	port, _ := strconv.Atoi(p)
	all := []map[string]any{}
	for _, b := range blocks {
		all = append(all, map[string]any{
			"block":        map[string]any{"blockId": i.Inode, "blockPoolId": "leasefs", "generationStamp": 0, "numBytes": b.length},
			"blockToken":   map[string]any{"urlString": "AAAAAA"}, // an empty one
			"isCorrupt":    false,
			"startOffset":  b.offset,
			"storageTypes": []string{"DISK"}, "cachedLocations": []any{},
			"locations": []map[string]any{{
				"adminState": "NORMAL", "hostName": q.host, "infoPort": port, "infoSecurePort": 0, "ipAddr": q.host, "ipcPort": port,
				"name": net.JoinHostPort(q.host, p), "networkLocation": "/default-rack", "storageID": "leasefs", "xferPort": port,
			}},
		})
	}
	var last any
	if len(all) > 0 {
		last = all[len(all)-1]
	}
	return q.json(map[string]any{"LocatedBlocks": map[string]any{
		"fileLength": i.Length, "isLastBlockComplete": i.Open == nil, "isUnderConstruction": i.Open != nil,
		"lastLocatedBlock": last, "locatedBlocks": all,
	}})
}

// chunkSize is over how many bytes HDFS has a checksum.
const chunkSize = 512

// getFileChecksum reads the whole file and computes what HDFS would answer for one with
// the same bytes and block size: MD5 of the MD5s of blocks' checksums.
func (q transfer) getFileChecksum() error {
	leave, err := q.streams.Enter(q.ctx, q.taker())
	if err != nil {
		return err
	}
	defer leave()
	r, err := q.fs.Open(q.ctx, q.path)
	if err != nil {
		return hadoop.BelowFile(hadoop.FileNotFound, err)
	}
	defer func() { _ = r.Close() }() // it only read
	i, err := r.Stat()
	if err != nil {
		return err
	}
	a := hadoop.AttrOf(i)
	if a.BlockSize%chunkSize != 0 {
		return hadoop.Refuse(hadoop.Unsupported, "the block size of %s, %d, is no multiple of %d: HDFS has no checksum of such a file", q.path, a.BlockSize, chunkSize)
	}
	sum, err := checksum(&whileThere{q.ctx, r, 0}, r.Length(), a.BlockSize, func() { q.patient(q.cfg.Idle) })
	if err != nil {
		return err
	}
	return q.json(map[string]any{"FileChecksum": sum})
}

// whileThere reads a file until its end or that of the client.
type whileThere struct {
	ctx context.Context //nolint:containedctx // of one request
	r   *client.Reader
	at  int64
}

// Read implements io.Reader.
func (w *whileThere) Read(p []byte) (int, error) {
	n, err := w.r.ReadAtContext(w.ctx, p, w.at, true)
	w.at += int64(n)
	return n, err
}

// fileChecksum is a checksum of a file as Hadoop compares it.
type fileChecksum struct {
	Algorithm string `json:"algorithm"`
	Bytes     string `json:"bytes"`
	Length    int    `json:"length"`
}

// checksum computes it of length bytes; going is called now and then.
func checksum(r io.Reader, length, blockSize int64, going func()) (fileChecksum, error) {
	if length == 0 {
		// HDFS has nothing to take these from, and says so.
		return newChecksum(0, 0, md5.Sum(make([]byte, 32)), "CRC32"), nil //nolint:gosec // see the import
	}
	table := crc32.MakeTable(crc32.Castagnoli)
	var (
		sums  = md5.New()      //nolint:gosec // of the MD5s of blocks; see the import
		size  = int64(0)       // of these
		whole = md5.New()      //nolint:gosec // of a block's checksums; see the import
		sum   [md5.Size]byte   // that of a block
		crc   [crc32.Size]byte // of a chunk
		buf   = make([]byte, 1<<20)
		block = min(blockSize, int64(math.MaxInt64))
		left  = block
	)
	for done := int64(0); done < length; {
		n, err := io.ReadFull(r, buf[:min(int64(len(buf)), left, length-done)])
		if err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				err = hadoop.Refuse(hadoop.Retriable, "the file is shorter than it was")
			}
			return fileChecksum{}, err
		}
		going()
		for b := buf[:n]; len(b) > 0; {
			chunk := b[:min(len(b), chunkSize)]
			b = b[len(chunk):]
			binary.BigEndian.PutUint32(crc[:], crc32.Checksum(chunk, table))
			_, _ = whole.Write(crc[:])
		}
		done, left = done+int64(n), left-int64(n)
		if left == 0 || done == length {
			// There can be more of them than fit into memory.
			_, _ = sums.Write(whole.Sum(sum[:0]))
			size += md5.Size
			whole.Reset()
			left = block
		}
	}
	perBlock := int64(0)
	if length > blockSize {
		perBlock = blockSize / chunkSize
	}
	// HDFS takes the sum over the whole of its buffer, which doubles from 32 bytes on.
	all := int64(32)
	for all < size {
		all *= 2
	}
	clear(buf)
	for size < all {
		n, _ := sums.Write(buf[:min(int64(len(buf)), all-size)])
		size += int64(n)
	}
	return newChecksum(chunkSize, perBlock, [md5.Size]byte(sums.Sum(nil)), "CRC32C"), nil
}

func newChecksum(perCRC int, perBlock int64, sum [md5.Size]byte, crc string) fileChecksum {
	b := binary.BigEndian.AppendUint32(nil, uint32(perCRC)) //nolint:gosec // a constant
	b = binary.BigEndian.AppendUint64(b, uint64(perBlock))  //nolint:gosec // positive
	b = append(b, sum[:]...)
	const after = "00000000" // the rest of HDFS's buffer, which it sends, too
	return fileChecksum{fmt.Sprintf("MD5-of-%dMD5-of-%d%s", perBlock, perCRC, crc), hex.EncodeToString(b) + after, len(b)}
}
