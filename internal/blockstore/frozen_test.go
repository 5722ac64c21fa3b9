package blockstore

import (
	"bytes"
	"flag"
	"os"
	"testing"
)

var freeze = flag.Bool("freeze", false, "write the frozen block of the present version, once")

// TestFrozenBlock: a block that an earlier release stored is read for ever, and is still stored so.
func TestFrozenBlock(t *testing.T) {
	const file = "../../testdata/frozen/block-1"
	const whole = 0x747262c6
	data := append(make([]byte, ChunkSize), "123456789"...)
	object, crc := Seal(bytes.Clone(data))
	if *freeze {
		if err := os.WriteFile(file, object[ChunkSize:], 0o600); err != nil { // what the zeros do not need
			t.Fatal(err)
		}
	}
	end, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	frozen := append(make([]byte, ChunkSize), end...)
	if crc != whole || !bytes.Equal(frozen, object) {
		t.Errorf("the block is now stored as %x…, with checksum %#x", object[ChunkSize:], crc)
	}
	if err := Verify(Key{Term: 1, Seq: 2}, frozen, whole); err != nil {
		t.Error(err)
	}
	if n, err := DataLength(int64(len(frozen))); err != nil || n != int64(len(data)) {
		t.Error(n, err)
	}
}
