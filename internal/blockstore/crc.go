package blockstore

import (
	"hash/crc32"
	"io"
	"math/bits"
	"sync"
)

// castagnoli is the polynomial of every checksum of leasefs (CRC32C); hash/crc32
// computes it in hardware.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// CRC is the CRC32C (Castagnoli) of data.
func CRC(data []byte) uint32 { return crc32.Checksum(data, castagnoli) }

// UpdateCRC is the CRC32C of what crc is of, followed by data.
func UpdateCRC(crc uint32, data []byte) uint32 { return crc32.Update(crc, castagnoli, data) }

// SumCRC reads r to its end and returns the CRC32C of its bytes and how many
// there are.
func SumCRC(r io.Reader) (crc uint32, length int64, err error) {
	sum := crc32.New(castagnoli)
	length, err = io.Copy(sum, r)
	return sum.Sum32(), length, err
}

// maskDelta is what LevelDB and the Snappy framing format mask checksums with.
const maskDelta = 0xa282ead8

// mask is how a chunk's checksum stands in the table of its block. A plain one
// would not do: the CRC of data followed by its own CRC is the same number
// whatever the data are, so every block of one chunk would have one and the same
// checksum, and a wrong block would pass for the right one. Masked, two unlike
// chunks have like checksums of the whole with probability 1.42 in 2^32
// (counted over all 2^32 values), all but ideal.
func mask(crc uint32) uint32 { return bits.RotateLeft32(crc, 17) + maskDelta }

// unmask is the inverse of mask.
func unmask(entry uint32) uint32 { return bits.RotateLeft32(entry-maskDelta, -17) }

// A CRC is a polynomial over GF(2) modulo castagnoliPoly, bit-reversed: bit 31
// is x^0. Appending n bytes to a message multiplies its CRC by x^(8n); the CRC
// of the appended bytes is then added (xor). That is all that combining is; the
// method is Mark Adler's in zlib's crc32_combine.
const castagnoliPoly = crc32.Castagnoli

// multiply is a times b modulo the polynomial.
func multiply(a, b uint32) uint32 {
	var p uint32
	for a != 0 {
		// Take the term of lowest power (the highest bit) of a, and bring b up to it.
		n := bits.LeadingZeros32(a)
		for range n {
			b = b>>1 ^ castagnoliPoly&-(b&1)
		}
		p ^= b
		// Now drop that term, and its power with it.
		a = a << n << 1
		b = b>>1 ^ castagnoliPoly&-(b&1)
	}
	return p
}

// appendFactor is x^(8n): what appending n bytes multiplies a CRC by.
func appendFactor(n uint64) uint32 {
	f, power := uint32(1)<<31, uint32(1)<<23 // x^0, and x^8: one byte
	for ; n != 0; n >>= 1 {
		if n&1 != 0 {
			f = multiply(f, power)
		}
		power = multiply(power, power)
	}
	return f
}

// chunkShift[i][b] is (byte b at bits 8i..8i+7) times x^(8·ChunkSize):
// four look-ups carry a CRC over one whole chunk.
var chunkShift = sync.OnceValue(func() *[4][256]uint32 {
	var t [4][256]uint32
	f := appendFactor(ChunkSize)
	for i := range t {
		for b := range t[i] {
			t[i][b] = multiply(uint32(b)<<(8*i), f)
		}
	}
	return &t
})

// CombineCRC is the CRC32C of A followed by B, from crc1 of A, crc2 of B and
// len2, the length of B in bytes; the bytes themselves are not needed. A negative
// len2 counts as 0. It takes some 10 ns if len2 is ChunkSize, else some
// microseconds.
func CombineCRC(crc1, crc2 uint32, len2 int64) uint32 {
	switch {
	case crc1 == 0 || len2 <= 0:
		return crc1 ^ crc2
	case len2 == ChunkSize:
		t := chunkShift()
		return t[0][crc1&0xff] ^ t[1][crc1>>8&0xff] ^ t[2][crc1>>16&0xff] ^ t[3][crc1>>24] ^ crc2
	}
	return multiply(crc1, appendFactor(uint64(len2))) ^ crc2
}
