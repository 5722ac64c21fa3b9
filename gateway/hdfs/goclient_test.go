package hdfs_test

import (
	"bytes"
	"crypto/md5" //nolint:gosec // what HDFS's checksums of files are made with
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"testing"

	native "github.com/colinmarc/hdfs/v2"
)

// sum is HDFS's checksum of a file, MD5-of-MD5-of-512CRC32C: the digest of its blocks' digests, which are of
// the checksums of their chunks. Zeros fill up the last step to a power of two.
func sum(all []byte, blockSize int) []byte {
	var digests []byte
	for ; len(all) > 0; all = all[min(blockSize, len(all)):] {
		var sums []byte
		for block := all[:min(blockSize, len(all))]; len(block) > 0; block = block[min(512, len(block)):] {
			sums = binary.BigEndian.AppendUint32(sums, crc32.Checksum(block[:min(512, len(block))], crc32.MakeTable(crc32.Castagnoli)))
		}
		d := md5.Sum(sums) //nolint:gosec // as above
		digests = append(digests, d[:]...)
	}
	size := 32
	for size < len(digests) {
		size *= 2
	}
	d := md5.Sum(append(digests, make([]byte, size-len(digests))...)) //nolint:gosec // as above
	return d[:]
}

// TestOddChunks: a client for Go writes 20 MiB in pieces of any length, some of which it flushes. What it
// reads is that, in one go and from any place, and the checksum is HDFS's.
func TestOddChunks(t *testing.T) {
	n, s := start(t)
	c, other := connect(t, s, "root"), connect(t, s, "root")
	const blockSize = 1 << 20
	all := random(20<<20+12_345, 1)
	r := rand.New(rand.NewPCG(2, 1)) //nolint:gosec // the same each time
	w, err := c.CreateFile("/f", 1, blockSize, 0o644)
	check(t, err)
	flushes := 0
	for at := 0; at < len(all); {
		k := min(1+r.IntN(100_000), len(all)-at)
		_, err := w.Write(all[at:][:k])
		check(t, err)
		at += k
		if r.IntN(20) == 0 {
			check(t, w.Flush())
			flushes++
		}
	}
	check(t, w.Close())
	if flushes < 10 {
		t.Errorf("it was flushed %d times", flushes)
	}
	holds(t, other, n.Client(t), "/f", all)

	f, err := other.Open("/f")
	check(t, err)
	defer f.Close()
	for range 200 {
		off := r.IntN(len(all))
		want := all[off:][:1+r.IntN(min(200_000, len(all)-off))]
		b := make([]byte, len(want))
		_, err := f.Seek(int64(off), io.SeekStart)
		check(t, err)
		_, err = io.ReadFull(f, b)
		check(t, err)
		if !bytes.Equal(b, want) {
			t.Fatalf("other bytes: %d from %d on", len(b), off)
		}
		at, one := int64(off), b[:1]
		one[0] = ^want[0]
		if _, err := f.ReadAt(one, at); err != nil && !errors.Is(err, io.EOF) || one[0] != want[0] {
			t.Fatalf("another byte at %d: %v", off, err)
		}
	}
	got, err := f.Checksum()
	check(t, err)
	if want := sum(all, blockSize); !bytes.Equal(got, want) {
		t.Errorf("the checksum is %x, want %x", got, want)
	}
}

// TestAppendsAtEdges: two clients for Go append in turn at and beside the ends of chunks, of packets and of
// blocks, with small blocks and with one that is never full.
func TestAppendsAtEdges(t *testing.T) {
	n, s := start(t)
	fs, clients := n.Client(t), []*native.Client{connect(t, s, "root"), connect(t, s, "root")}
	const blockSize = 1 << 20
	w, err := clients[0].CreateFile("/blocks", 1, blockSize, 0o644)
	check(t, err)
	check(t, w.Close(), clients[0].CreateEmptyFile("/one"))
	holds(t, clients[1], fs, "/one", nil)
	ends := []int{511, 512, 513, 1024, 65_535, 65_536, 130_000, blockSize - 1, blockSize, blockSize + 1, 2*blockSize - 512, 2 * blockSize, 2*blockSize + 513, 4*blockSize + 511}
	all := random(ends[len(ends)-1], 3)
	at := 0
	for k, end := range ends {
		for path, c := range map[string]*native.Client{"/blocks": clients[k%2], "/one": clients[1-k%2]} {
			w, err := c.Append(path)
			check(t, err)
			_, err = w.Write(all[at:end])
			check(t, err, w.Close())
			holds(t, clients[1-k%2], fs, path, all[:end])
		}
		at = end
	}
}

// TestTruncate: a client for Go cuts files at the end of a block, within one and to nothing. It is done when
// the answer says so, and the file can be appended to at once.
func TestTruncate(t *testing.T) {
	n, s := start(t)
	fs, c, other := n.Client(t), connect(t, s, "root"), connect(t, s, "root")
	const blockSize = 1 << 20
	all := random(3*blockSize+700, 4)
	write(t, c, "/f", all, blockSize)
	cut := func(size int) {
		t.Helper()
		if ok, err := other.Truncate("/f", int64(size)); !ok || err != nil {
			t.Fatalf("to %d bytes: %v, %v", size, ok, err)
		}
		holds(t, c, fs, "/f", all[:size])
	}
	for _, size := range []int{len(all), 3*blockSize + 513, 3 * blockSize, 2*blockSize + 777} {
		cut(size)
	}
	w, err := c.Append("/f")
	check(t, err)
	_, err = w.Write([]byte("tail"))
	check(t, err, w.Close())
	holds(t, other, fs, "/f", append(bytes.Clone(all[:2*blockSize+777]), "tail"...))
	cut(1)
	cut(0)
}

// TestServerDefaults: a client for Go gets the settings with which it writes.
func TestServerDefaults(t *testing.T) {
	_, s := start(t)
	c := connect(t, s, "root")
	d, err := c.ServerDefaults()
	check(t, err)
	if d != (native.ServerDefaults{BlockSize: 128 << 20, BytesPerChecksum: 512, WritePacketSize: 64 << 10, Replication: 3, FileBufferSize: 4096, PolicyId: 7}) {
		t.Errorf("%+v", d)
	}
	check(t, c.CreateEmptyFile("/f"))
	i, err := c.Stat("/f")
	check(t, err)
	if st, ok := i.Sys().(*native.FileStatus); !ok || st.GetBlocksize() != uint64(d.BlockSize) || st.GetBlockReplication() != uint32(d.Replication) { //nolint:gosec // small
		t.Errorf("a file made with them: %v", st)
	}
}
