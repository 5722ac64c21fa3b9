package blockstore

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/leasefs/leasefs/internal/fserror"
)

// sizes are lengths of data at and around the borders of chunks.
var sizes = []int{0, 1, 2, 100, ChunkSize - 1, ChunkSize, ChunkSize + 1, 2*ChunkSize - 1, 2 * ChunkSize, 5*ChunkSize + 77, 1 << 20}

func reference(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }

func TestCRCIsCastagnoli(t *testing.T) {
	if got := CRC([]byte("123456789")); got != 0xe3069283 { // RFC 3720's check value
		t.Fatalf("%08x", got)
	}
}

func TestCombineCRC(t *testing.T) {
	buf := randomBytes(3*ChunkSize + 1234)
	for i, n := range append([]int{3, 17, 4096, 3 * ChunkSize}, sizes...) {
		for _, at := range []int{0, 1, n / 3, n / 2, n} {
			if n > len(buf) || at > n {
				continue
			}
			a, b := buf[:at], buf[at:n]
			if got, want := CombineCRC(reference(a), reference(b), int64(len(b))), reference(buf[:n]); got != want {
				t.Fatalf("case %d: %d + %d bytes: %08x, want %08x", i, len(a), len(b), got, want)
			}
		}
	}
	// A length that no buffer has: 2^33 zeros by doubling, against combining at once.
	zeros := reference([]byte{0})
	length := int64(1)
	for range 33 {
		zeros = CombineCRC(zeros, zeros, length)
		length *= 2
	}
	x := reference([]byte("x"))
	want := CombineCRC(x, zeros, length)
	half, part := x, reference([]byte{0})
	for n := int64(1); n < length; n *= 2 { // 1+1+2+4+…: 2^33 zeros in 34 steps
		half = CombineCRC(half, part, n)
		part = CombineCRC(part, part, n)
	}
	half = CombineCRC(half, reference([]byte{0}), 1)
	if half != want {
		t.Fatalf("2^33 zeros: %08x, want %08x", half, want)
	}
	if CombineCRC(5, 0, -1) != 5 {
		t.Fatal("a negative length")
	}
}

func TestLengths(t *testing.T) {
	possible := map[int64]int64{}
	for data := range int64(3*ChunkSize + 10) {
		possible[StoredLength(data)] = data
	}
	for stored := int64(-5); stored < StoredLength(3*ChunkSize); stored++ {
		data, err := DataLength(stored)
		want, ok := possible[stored]
		if ok != (err == nil) || (ok && data != want) {
			t.Fatalf("DataLength(%d) = %d, %v; want %d, %t", stored, data, err, want, ok)
		}
		if err != nil && !errors.Is(err, fserror.InvalidArgument) {
			t.Fatal(err)
		}
	}
	if n, err := DataLength(MaxObjectSize); err != nil || n != MaxBlockSize || StoredLength(MaxBlockSize) != MaxObjectSize {
		t.Fatal(n, err)
	}
	if _, err := DataLength(MaxObjectSize + 5); err == nil {
		t.Fatal("over MaxObjectSize")
	}
}

// TestSealedBytes pins the format down: these bytes are on people's disks.
func TestSealedBytes(t *testing.T) {
	object, crc := Seal([]byte("123456789"))
	// CRC32C e3069283, rotated left by 17 is 2507c60d, plus a282ead8 is c78ab0e5.
	if got := hex.EncodeToString(object); got != "313233343536373839"+"e5b08ac7" {
		t.Fatalf("object %s", got)
	}
	if crc != reference(object) {
		t.Fatalf("checksum %08x", crc)
	}
}

func TestSeal(t *testing.T) {
	for _, n := range sizes {
		buf := randomBytes(n)
		object, crc := Seal(buf)
		if int64(len(object)) != StoredLength(int64(n)) || crc != reference(object) {
			t.Fatalf("%d bytes: object of %d, checksum %08x, want %08x", n, len(object), crc, reference(object))
		}
		if n > 0 && &object[0] != &buf[0] {
			t.Fatalf("%d bytes: copied though there was room", n)
		}
		tight, tightCRC := Seal(append(make([]byte, 0, n), buf...)[:n:n])
		if !bytes.Equal(tight, object) || tightCRC != crc {
			t.Fatalf("%d bytes: without room another object", n)
		}
		if err := Verify(Key{1, 2}, object, crc); err != nil {
			t.Fatal(err)
		}
	}
}

// TestUnlikeBlocksHaveUnlikeChecksums is why table entries are masked: with plain
// ones, all sealed blocks of one chunk and one length have the same checksum.
func TestUnlikeBlocksHaveUnlikeChecksums(t *testing.T) {
	for _, n := range []int{5, ChunkSize, ChunkSize + 5, 3 * ChunkSize} {
		seen := map[uint32]int{}
		for i := range 1000 {
			buf := make([]byte, n, StoredLength(int64(n)))
			copy(buf, fmt.Sprintf("%05d", i))
			_, crc := Seal(buf)
			if j, ok := seen[crc]; ok {
				t.Fatalf("%d bytes: blocks %d and %d both have checksum %08x", n, i, j, crc)
			}
			seen[crc] = i
		}
	}
}

func TestMask(t *testing.T) {
	for range 1000 {
		if x := rand.Uint32(); unmask(mask(x)) != x {
			t.Fatalf("%08x", x)
		}
	}
}

// TestFlippedBits: scenario 58 for the format.
func TestFlippedBits(t *testing.T) {
	const n = 3*ChunkSize + 500
	object, crc := Seal(randomBytes(n))
	key := Key{0x1a, 0x2b}
	table := object[n:]
	for _, at := range []int{0, 1, ChunkSize - 1, ChunkSize, 2*ChunkSize + 5, 3 * ChunkSize, n - 1, n, n + 5, n + 15} {
		object[at] ^= 0x10
		chunk := at / ChunkSize * ChunkSize
		if at >= n {
			chunk = (at - n) / ChecksumSize * ChunkSize
		}
		wantDamage(t, Verify(key, object, crc), "1a/2b", chunk)
		for off := 0; off < n; off += ChunkSize {
			data := object[off:min(off+ChunkSize, n)]
			err := VerifyRange(key, table, n, int64(off), data)
			if off == chunk {
				wantDamage(t, err, "1a/2b", chunk)
			} else if err != nil {
				t.Fatalf("chunk at %d, flipped %d: %v", off, at, err)
			}
		}
		wantDamage(t, VerifyRange(key, table, n, 0, object[:n]), "1a/2b", chunk)
		if _, err := ParseTable(key, table, n, crc); (err != nil) != (at >= n) {
			t.Fatalf("flipped %d: ParseTable %v", at, err)
		}
		object[at] ^= 0x10
	}
	for _, cut := range []int{0, 1, n, len(object) - 4, len(object) - 1} {
		if err := Verify(key, object[:cut], crc); !errors.Is(err, fserror.Damaged) {
			t.Fatalf("cut to %d: %v", cut, err)
		}
	}
	if err := Verify(key, object, crc+1); !errors.Is(err, fserror.Damaged) {
		t.Fatalf("another checksum: %v", err)
	}
}

func wantDamage(t *testing.T, err error, block string, off int) {
	t.Helper()
	if !errors.Is(err, fserror.Damaged) || !strings.Contains(err.Error(), "block "+block) ||
		!strings.Contains(err.Error(), fmt.Sprintf("offset %d:", off)) {
		t.Fatalf("%v; want Damaged, block %s, offset %d", err, block, off)
	}
	var d *Damage
	if !errors.As(err, &d) || d.Block.String() != block || d.Offset != int64(off) {
		t.Fatalf("cause %+v; want block %s, offset %d", d, block, off)
	}
}

func TestWrongBlock(t *testing.T) {
	for _, n := range []int{100, ChunkSize + 100} {
		_, crc := Seal(randomBytes(n))
		other, _ := Seal(make([]byte, n))
		if err := Verify(Key{1, 1}, other, crc); !errors.Is(err, fserror.Damaged) {
			t.Fatalf("a sound object of another block: %v", err)
		}
		if _, err := ParseTable(Key{1, 1}, other[n:], int64(n), crc); !errors.Is(err, fserror.Damaged) {
			t.Fatalf("a sound table of another block: %v", err)
		}
	}
}

func TestVerifyRangeWantsChunks(t *testing.T) {
	const n = 2*ChunkSize + 100
	object, crc := Seal(randomBytes(n))
	table, err := ParseTable(Key{1, 1}, object[n:], n, crc)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range [][2]int{{1, ChunkSize}, {0, 100}, {0, n - 1}, {ChunkSize, ChunkSize + 1}, {-ChunkSize, 0}, {2 * ChunkSize, 101}} {
		data := make([]byte, r[1])
		if err := VerifyRange(Key{1, 1}, table, n, int64(r[0]), data); !errors.Is(err, fserror.InvalidArgument) {
			t.Fatalf("%v: %v", r, err)
		}
	}
	for off := range n {
		length := 1 + rand.IntN(n-off)
		a, l := AlignRange(n, int64(off), int64(length))
		if a > int64(off) || a+l < int64(off+length) {
			t.Fatalf("AlignRange(%d, %d) = %d, %d", off, length, a, l)
		}
		if off%1000 != 0 {
			continue
		}
		if err := VerifyRange(Key{1, 1}, table, n, a, object[a:a+l]); err != nil {
			t.Fatal(err)
		}
	}
}

func TestKeys(t *testing.T) {
	for _, k := range []Key{{}, {1, 2}, {0xabc, 1 << 63}, {1<<64 - 1, 1<<64 - 1}} {
		got, err := ParseKey(k.String())
		if err != nil || got != k {
			t.Fatalf("%s: %v, %v", k, got, err)
		}
		id := [16]byte{0xff, 1}
		ns, got, err := ParseURLPath(URLPath(id, k))
		if err != nil || got != k || ns != id {
			t.Fatalf("%s: %v, %v", URLPath(id, k), got, err)
		}
	}
	for _, s := range []string{"", "/", "1", "1/", "/1", "01/1", "1/0x1", "A/1", "1/1/1", "-1/1", "+1/1", "1/11111111111111111"} {
		if k, err := ParseKey(s); !errors.Is(err, fserror.InvalidArgument) {
			t.Errorf("%q: %v, %v", s, k, err)
		}
	}
}

func TestChecksumHeader(t *testing.T) {
	if got := EncodeChecksum(0xe3069283); got != "4waSgw==" {
		t.Fatalf("%q", got)
	}
	for _, bad := range []string{"", "4waSgw", "4waSgwA=", "4waSgx==", "!!!!", "4waSgw==\n"} {
		if crc, ok := DecodeChecksum(bad); ok {
			t.Errorf("%q is read as %08x", bad, crc)
		}
	}
}

func FuzzVerify(f *testing.F) {
	for _, n := range []int{0, 1, 100, ChunkSize, ChunkSize + 3} {
		object, crc := Seal(randomBytes(n))
		f.Add(object, crc)
	}
	f.Fuzz(func(t *testing.T, object []byte, crc uint32) {
		err := Verify(Key{1, 2}, object, crc)
		if err != nil {
			if !errors.Is(err, fserror.Damaged) {
				t.Fatal(err)
			}
			return
		}
		n, err := DataLength(int64(len(object)))
		if err != nil || reference(object) != crc {
			t.Fatalf("accepted: %v", err)
		}
		if _, err := ParseTable(Key{1, 2}, object[n:], n, crc); err != nil {
			t.Fatal(err)
		}
		if err := VerifyRange(Key{1, 2}, object[n:], n, 0, object[:n]); err != nil {
			t.Fatal(err)
		}
	})
}

func FuzzVerifyRange(f *testing.F) {
	object, _ := Seal(randomBytes(ChunkSize + 3))
	f.Add(object[ChunkSize+3:], int64(ChunkSize+3), int64(ChunkSize), object[ChunkSize:ChunkSize+3])
	f.Add([]byte{}, int64(-1), int64(-ChunkSize), []byte{})
	f.Fuzz(func(_ *testing.T, table []byte, dataLen, off int64, data []byte) {
		_ = VerifyRange(Key{1, 2}, table, dataLen, off, data) // must not panic
		_, _ = ParseTable(Key{1, 2}, table, dataLen, 0)
	})
}

func FuzzDataLength(f *testing.F) {
	for _, n := range sizes {
		f.Add(StoredLength(int64(n)))
	}
	f.Fuzz(func(t *testing.T, stored int64) {
		if data, err := DataLength(stored); err == nil && (data < 0 || data > MaxBlockSize || StoredLength(data) != stored) {
			t.Fatalf("DataLength(%d) = %d", stored, data)
		}
	})
}

func FuzzParseURLPath(f *testing.F) {
	f.Add(URLPath([16]byte{1}, Key{1, 2}))
	f.Add(PathPrefix + "../../etc/passwd")
	f.Fuzz(func(t *testing.T, path string) {
		if ns, key, err := ParseURLPath(path); err == nil && URLPath(ns, key) != path {
			t.Fatalf("%q is read as %x %s", path, ns, key)
		}
	})
}
