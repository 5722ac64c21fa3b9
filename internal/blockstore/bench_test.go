package blockstore

import (
	"math/rand/v2"
	"testing"
)

func randomBytes(n int) []byte {
	b := make([]byte, n, StoredLength(int64(n)))
	r := rand.NewChaCha8([32]byte{1})
	_, _ = r.Read(b)
	return b
}

func BenchmarkSeal(b *testing.B) {
	buf := randomBytes(DefaultBlockSize)
	b.SetBytes(DefaultBlockSize)
	b.ReportAllocs()
	for b.Loop() {
		Seal(buf)
	}
}

// BenchmarkSealTwice is what Seal would take if it read the data twice.
func BenchmarkSealTwice(b *testing.B) {
	buf := randomBytes(DefaultBlockSize)
	b.SetBytes(DefaultBlockSize)
	for b.Loop() {
		object, _ := Seal(buf)
		CRC(object)
	}
}

func BenchmarkVerify(b *testing.B) {
	object, crc := Seal(randomBytes(DefaultBlockSize))
	b.SetBytes(DefaultBlockSize)
	b.ReportAllocs()
	for b.Loop() {
		if err := Verify(Key{1, 1}, object, crc); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkVerifyRange(b *testing.B) {
	object, _ := Seal(randomBytes(DefaultBlockSize))
	b.SetBytes(ChunkSize)
	b.ReportAllocs()
	for b.Loop() {
		if err := VerifyRange(Key{1, 1}, object[DefaultBlockSize:], DefaultBlockSize, ChunkSize, object[ChunkSize:2*ChunkSize]); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkParseTable(b *testing.B) {
	object, crc := Seal(randomBytes(DefaultBlockSize))
	for b.Loop() {
		if _, err := ParseTable(Key{1, 1}, object[DefaultBlockSize:], DefaultBlockSize, crc); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCombineCRC(b *testing.B) {
	for _, c := range []struct {
		name string
		n    int64
	}{{"chunk", ChunkSize}, {"8MiB", 8 << 20}, {"odd", 5_123_457}} {
		b.Run(c.name, func(b *testing.B) {
			x := uint32(1)
			for b.Loop() {
				x = CombineCRC(x, 0x12345678, c.n)
			}
		})
	}
}
