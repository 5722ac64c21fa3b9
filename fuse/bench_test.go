package fuse_test

import (
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/fuse"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/test/env"
)

// lastCloses are the ways to find the last close: see docs/adr/0020-the-last-close.md.
var lastCloses = map[string]fuse.Options{
	"proc":         {},
	"release":      fuse.Options{}.WithLinger(0),
	"release+10ms": fuse.Options{}.WithLinger(10 * time.Millisecond),
}

// BenchmarkNextOpener: a program on a mount appends to a file and closes it; then a
// client opens it for write, until it can.
func BenchmarkNextOpener(b *testing.B) {
	for how, o := range lastCloses {
		for _, mapped := range []bool{false, true} {
			name := how
			if mapped {
				name += "/mapped"
			}
			b.Run(name, func(b *testing.B) {
				r := newRig(b)
				m, other := r.mount(o), r.Client(b)
				m.write("f", "text")
				busy, waits := 0, time.Duration(0)
				for range b.N {
					f := m.open("f", os.O_RDWR|os.O_APPEND)
					say(b, f, "more")
					var mapping []byte
					if mapped {
						var err error
						mapping, err = unix.Mmap(int(f.Fd()), 0, 4, unix.PROT_READ, unix.MAP_PRIVATE)
						must(b, err)
					}
					must(b, f.Close())
					began := time.Now()
					w, err := other.Append(b.Context(), "/f")
					if errors.Is(err, fserror.Held) {
						busy++
						if mapped {
							must(b, unix.Munmap(mapping))
							mapping = nil
						}
						for errors.Is(err, fserror.Held) {
							w, err = other.Append(b.Context(), "/f")
						}
					}
					waits += time.Since(began)
					must(b, err)
					must(b, w.Close())
					if mapping != nil {
						must(b, unix.Munmap(mapping))
					}
				}
				b.ReportMetric(float64(busy), "busy")
				b.ReportMetric(float64(waits.Microseconds())/float64(b.N), "µs/open")
			})
		}
	}
}

// BenchmarkSmallFiles counts the calls to the namenode of a small file.
func BenchmarkSmallFiles(b *testing.B) {
	for how, o := range lastCloses {
		b.Run(how, func(b *testing.B) {
			r, wire := newRig(b, longTerm), new(env.Wire)
			m := r.mount(o, func(c *client.Config) { c.DialOptions = append(c.DialOptions, wire.DialOptions()...) })
			must(b, os.Mkdir(m.path("d"), 0o755))
			env.Eventually(b, "a file is made without a call", func() bool {
				before := wire.Count("Create")
				f := m.open("d/warm"+strconv.Itoa(before), os.O_CREATE|os.O_WRONLY)
				is := wire.Count("Create") == before
				must(b, f.Close())
				return is
			})
			before := wire.Total()
			b.ResetTimer()
			for i := range b.N {
				m.write("d/"+strconv.Itoa(i), "text")
			}
			b.ReportMetric(float64(wire.Total()-before)/float64(b.N), "calls/file")
		})
	}
}

// BenchmarkReadAgain reads a file through a mount: from the block store, from a block
// cache that has it, and from the pages that the kernel kept; and the same bytes from a
// file of the local file system. Whole: all of it in pieces of 1 MiB; random: 64 KiB
// here and there. Cold: without what the local file system has of all that in
// memory. The block store is on the same machine and disk.
func BenchmarkReadAgain(b *testing.B) {
	const size, piece, chunk = 256 << 20, 1 << 20, 64 << 10
	for _, cold := range []string{"warm", "cold"} {
		for _, how := range []string{"whole", "random"} {
			for _, from := range []string{"store", "cache", "kernel", "local"} {
				if from == "kernel" && cold == "cold" {
					continue
				}
				b.Run(how+"/"+cold+"/"+from, func(b *testing.B) {
					r, dir := newRig(b), blockFolder(b)
					m := r.mount(fuse.Options{}, func(c *client.Config) {
						if from == "cache" {
							c.BlockCache, c.BlockCacheSize = dir, 2*size
						}
					})
					path := m.path("f")
					if from == "local" {
						path = filepath.Join(dir, "f")
					}
					data, buf := make([]byte, size), make([]byte, piece)
					_, _ = rand.NewChaCha8([32]byte{}).Read(data) // never fails
					must(b, os.WriteFile(path, data, 0o600))
					whole := func() {
						f, err := os.Open(path)
						must(b, err)
						defer f.Close()
						for range size / piece {
							_, err := io.ReadFull(f, buf)
							must(b, err)
						}
					}
					random := func() {
						f, err := os.Open(path)
						must(b, err)
						defer f.Close()
						for range size / piece {
							_, err := f.ReadAt(buf[:chunk], int64(rand.IntN(size/chunk))*chunk)
							must(b, err)
						}
					}
					drop := func() {
						if from != "local" && from != "kernel" {
							dropPages(b, m.dir)
						}
						if cold == "cold" {
							dropPages(b, dir)
							dropPages(b, r.Config().Data)
						}
					}
					whole()
					if from == "cache" {
						env.Eventually(b, "all is in the block cache", func() bool {
							drop()
							before := m.FS().Stats().BlockCache
							whole()
							return m.FS().Stats().BlockCache.Misses == before.Misses
						})
					}
					before := m.FS().Stats().BlockCache
					read, n := whole, int64(size)
					if how == "random" {
						read, n = random, size/piece*chunk
					}
					b.SetBytes(n)
					for b.Loop() {
						b.StopTimer()
						drop()
						b.StartTimer()
						read()
					}
					if got := m.FS().Stats().BlockCache; from == "cache" && (got.Misses != before.Misses || got.Hits == before.Hits) {
						b.Errorf("not all came from the block cache: %+v, before %+v", got, before)
					}
				})
			}
		}
	}
}
