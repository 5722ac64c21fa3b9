package fuse_test

import (
	"bytes"
	"testing"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/fuse"
)

// Who reads through a mount reads the file as it is at that moment, as on a
// local disk: that another host cut it and wrote it again is no error.
func TestReadOfAFileThatAnotherHostWritesAgain(t *testing.T) {
	r := newRig(t)
	const block, length = 64 << 10, 300 * 64 << 10 // more than one answer of the namenode lists
	other := r.Client(t, func(c *client.Config) { c.BlockSize = block })
	must(t, other.WriteFile(t.Context(), "/f", bytes.Repeat([]byte("o"), length)))
	m := r.mount(fuse.Options{})
	f := m.open("f", 0)
	p := make([]byte, 1000)
	read := func(off int64, want byte) {
		t.Helper()
		if _, err := f.ReadAt(p, off); err != nil || bytes.Count(p, []byte{want}) != len(p) {
			t.Errorf("at %d: %q…, %v; want %q", off, p[0], err, want)
		}
	}
	read(0, 'o')
	w, err := other.Append(t.Context(), "/f", client.WithCut(0))
	must(t, err)
	for range length / block / 10 {
		_, err = w.Write(bytes.Repeat([]byte("n"), 10*block))
		must(t, err)
		must(t, w.Flush(t.Context()))
		read(0, 'n')
	}
	must(t, w.Close())
	read(length-1000, 'n')
}
