package client_test

import (
	"crypto/rand"
	"fmt"
	"io"
	"sync"
	"testing"

	"github.com/leasefs/leasefs/client"
)

// Client, namenode and disk together, in one process.

func BenchmarkWrite(b *testing.B) {
	f := serve(b)
	data := make([]byte, 1<<20)
	_, _ = rand.Read(data)
	const size = 512 << 20
	b.SetBytes(size)
	for i := 0; b.Loop(); i++ {
		w, err := f.Create(b.Context(), fmt.Sprint("/f", i))
		if err != nil {
			b.Fatal(err)
		}
		for range size >> 20 {
			if _, err := w.Write(data); err != nil {
				b.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRead(b *testing.B) {
	f := serve(b)
	data := make([]byte, 512<<20)
	_, _ = rand.Read(data)
	if err := f.WriteFile(b.Context(), "/f", data); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		r, err := f.Open(b.Context(), "/f")
		if err != nil {
			b.Fatal(err)
		}
		if n, err := r.WriteTo(io.Discard); err != nil || n != int64(len(data)) {
			b.Fatal(n, err)
		}
		_ = r.Close()
	}
}

func BenchmarkFlush(b *testing.B) {
	f := serve(b)
	w, err := f.Create(b.Context(), "/f")
	if err != nil {
		b.Fatal(err)
	}
	p := make([]byte, 100)
	for b.Loop() {
		_, _ = w.Write(p)
		if err := w.Flush(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	_ = w.Close()
}

func BenchmarkWriteFile(b *testing.B) {
	f := serve(b, func(c *client.Config) { c.Conns = 4 })
	p := make([]byte, 1024)
	b.SetParallelism(16)
	var n sync.Mutex
	g := 0
	b.RunParallel(func(pb *testing.PB) {
		n.Lock()
		g++
		me := g
		n.Unlock()
		for i := 0; pb.Next(); i++ {
			if err := f.WriteFile(b.Context(), fmt.Sprintf("/d%d/%d", me, i), p, client.WithParents()); err != nil {
				b.Error(err)
				return
			}
		}
	})
}
