package space

import (
	"os"
	"runtime"
	"runtime/debug"
	"testing"
)

var sink []byte

// Dead objects, which the next collection frees, are no shortage of memory.
func TestDeadObjectsTakeNoMemory(t *testing.T) {
	const dead = 64 << 20
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	runtime.GC()
	before := HeapBytes()
	sink = make([]byte, dead)
	sink = nil
	if grown := HeapBytes() - before; grown > dead/2 {
		t.Errorf("%d MiB grown by nothing that lives", grown>>20)
	}
	sink = make([]byte, dead)
	runtime.GC()
	if grown := HeapBytes() - before; grown < dead/2 {
		t.Errorf("%d bytes grown by %d that live", grown, dead)
	}
	sink = nil
}

// Open files are counted, one by one as well.
func TestOpenFilesAreCounted(t *testing.T) {
	open := func() {
		f, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
	}
	open() // so that the runtime has what it needs
	was, most := Descriptors()
	counted, err := countOpen()
	if err != nil || most < was || was < 4 {
		t.Fatalf("%d, one by one %d, of %d: %v", was, counted, most, err)
	}
	for range 10 {
		open()
	}
	if now, _ := Descriptors(); now != was+10 {
		t.Errorf("%d, and with ten more %d", was, now)
	}
	if now, err := countOpen(); err != nil || now != counted+10 || counted != was {
		t.Errorf("%d (%d one by one), and with ten more %d: %v", was, counted, now, err)
	}
}

// TestSameDisk: two folders of this file system are on one disk, and what is not known is on another.
func TestSameDisk(t *testing.T) {
	dir := t.TempDir()
	for other, want := range map[string]bool{t.TempDir(): true, "/proc": false, dir + "/missing": false, "": false} {
		if got := SameDisk(dir, other); got != want {
			t.Errorf("%q: %t", other, got)
		}
	}
}
