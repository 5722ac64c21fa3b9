package data_test

import (
	"testing"

	pb "github.com/leasefs/leasefs/gateway/hdfs/hadoop"
)

// BenchmarkWrite writes a file in packets as large as the Java client's, with as many of them not
// acknowledged, and BenchmarkRead reads one.
func BenchmarkWrite(b *testing.B) {
	r := start(b)
	all := random(64<<20, 1)
	b.SetBytes(int64(len(all)))
	for b.Loop() {
		inode, blk := r.create("c", "/f", 128<<20)
		w := r.writing(blk)
		window := make(chan int64, 80)
		done := make(chan struct{})
		go func() {
			defer close(done)
			for n := range window {
				w.acked(n, pb.Status_SUCCESS)
			}
		}()
		at := 0
		for ; at < len(all); at += 64512 {
			p := w.packet(int64(at), all[at:min(at+64512, len(all))], false, false)
			window <- w.seqno - 1
			if _, err := w.Write(p); err != nil {
				b.Fatal(err)
			}
		}
		close(window)
		<-done
		w.finish(int64(len(all)))
		blk.Length = int64(len(all))
		r.complete("c", inode, &blk)
		if err := r.fs.Remove(b.Context(), "/f"); err != nil {
			b.Fatal(err)
		}
		w.Close()
	}
}

// BenchmarkRead reads one block.
func BenchmarkRead(b *testing.B) {
	r := start(b)
	all := random(64<<20, 1)
	b.SetBytes(int64(len(all)))
	if err := r.fs.WriteFile(b.Context(), "/f", all); err != nil {
		b.Fatal(err)
	}
	l, err := r.files.Locate(b.Context(), r.u, "/f", 0, 1<<40)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if n := len(r.read(l.Blocks.At(0), 0, int64(len(all)), true)); n != len(all) {
			b.Fatal(n)
		}
	}
}

// BenchmarkSmall writes files of 1 KiB.
func BenchmarkSmall(b *testing.B) {
	r := start(b)
	all := random(1<<10, 1)
	for b.Loop() {
		inode, blk := r.create("c", "/f", 128<<20)
		w := r.writing(blk)
		w.put(0, all)
		w.finish(1 << 10)
		blk.Length = 1 << 10
		r.complete("c", inode, &blk)
		w.Close()
		if err := r.fs.Remove(b.Context(), "/f"); err != nil {
			b.Fatal(err)
		}
	}
}
