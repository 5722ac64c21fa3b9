package codec

import (
	"bytes"
	"encoding/binary"
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
	for v, want := range map[uint32]string{
		version + 1: "image: it has format 8, and the newest that this release of leasefs knows is 7: a newer release wrote it; use that one",
		version - 1: "image: it has format 6, which this release of leasefs does not know: use the release that wrote it, or restore from a backup",
		0:           "image: it has format 0, which this release",
	} {
		binary.LittleEndian.PutUint32(image[8:], v)
		binary.LittleEndian.PutUint32(image[12:], crc32.Checksum(image[:12], castagnoli))
		if err := NewImageReader(bytes.NewReader(image), version, version).Finish(); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("format %d: %v, want %s", v, err, want)
		}
	}
	b.Reset() // a newer release may say who it is
	w := NewImageWriter(&b, SinceRelease)
	by := "2.0.0"
	w.Text(&by)
	if err := w.Finish(); err != nil {
		t.Fatal(err)
	}
	err := NewImageReader(&b, version, version).Finish()
	if want := "image: it has format 13, and the newest that this release of leasefs knows is 7: leasefs 2.0.0 can read it; install that release or a newer one"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	image[8]++ // of which the checksum does not know
	if err := NewImageReader(bytes.NewReader(image), version, version).Finish(); err == nil || !strings.Contains(err.Error(), "image damaged at offset 0: the header does not match") {
		t.Errorf("a damaged version: %v", err)
	}
}
