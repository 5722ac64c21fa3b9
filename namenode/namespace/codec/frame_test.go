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
	if err := NewImageReader(bytes.NewReader(image), version).Finish(); err != nil {
		t.Fatal(err)
	}
	binary.LittleEndian.PutUint32(image[8:], version+1)
	binary.LittleEndian.PutUint32(image[12:], crc32.Checksum(image[:12], castagnoli))
	if err := NewImageReader(bytes.NewReader(image), version).Finish(); err == nil || !strings.Contains(err.Error(), fmt.Sprint("format ", version+1)) {
		t.Fatal(err)
	}
}
