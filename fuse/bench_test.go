package fuse_test

import (
	"errors"
	"os"
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
