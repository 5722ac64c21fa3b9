package codec

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"strings"
	"testing"
)

func TestImageVersion(t *testing.T) {
	var b bytes.Buffer
	const version = 7
	if err := NewImageWriter(&b, version).Finish(); err != nil {
		t.Fatal(err)
	}
	image := b.Bytes()
	for _, known := range [][2]uint32{{version, version}, {version - 1, version}, {version, version + 1}} {
		r := NewImageReader(bytes.NewReader(image), known[0], known[1])
		if err := r.Finish(); err != nil || r.Version != version {
			t.Fatal(err, r.Version)
		}
	}
	binary.LittleEndian.PutUint32(image[8:], version+1)
	binary.LittleEndian.PutUint32(image[12:], crc32.Checksum(image[:12], castagnoli))
	if err := NewImageReader(bytes.NewReader(image), version-1, version).Finish(); err == nil || !strings.Contains(err.Error(), fmt.Sprint("format ", version+1)) {
		t.Fatal(err)
	}
}
