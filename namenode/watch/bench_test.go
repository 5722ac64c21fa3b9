package watch

import (
	"fmt"
	"testing"
)

// each adds and publishes events one by one, in turn in 100 directories.
func each(b *testing.B, h *Hub, after func()) {
	const dirs = 100
	var events [dirs][]Event
	for i := range events {
		events[i] = []Event{{Type: Create, Inode: uint64(i + 1), Path: fmt.Sprintf("/data/tables/t%02d/part/file", i)}} //nolint:gosec // small
	}
	b.ReportAllocs()
	tx := h.Newest()
	for b.Loop() {
		tx++
		h.Add(events[tx%dirs], tx)
		publish(h, tx)
		if after != nil {
			after()
		}
	}
}

// BenchmarkPublish is Add and Publish of one event: with none watching, with
// watchers of other paths, with watchers that have the event to read and do not
// come, and with one that reads each.
func BenchmarkPublish(b *testing.B) {
	for _, n := range []int{0, 1, 1000} {
		b.Run(fmt.Sprintf("watchers=%d/elsewhere", n), func(b *testing.B) {
			h := New(Config{}, 0)
			for i := range n {
				watch(b, h, 0, Filter{Path: fmt.Sprintf("/data/tables/u%d/part", i), Recursive: true})
			}
			each(b, h, nil)
		})
	}
	b.Run("watchers=1000/behind", func(b *testing.B) {
		h := New(Config{}, 0)
		for i := range 1000 {
			watch(b, h, 0, Filter{Path: fmt.Sprintf("/data/tables/t%02d", i%100), Recursive: true})
		}
		each(b, h, nil)
	})
	b.Run("watchers=1/reading", func(b *testing.B) {
		h := New(Config{}, 0)
		w := watch(b, h, 0, Filter{Path: "/", Recursive: true})
		each(b, h, func() {
			if _, _, err := w.Next(b.Context()); err != nil {
				b.Fatal(err)
			}
		})
	})
	b.Run("watchers=1000/reading", func(b *testing.B) {
		h := New(Config{}, 0)
		ws := make([]*Watcher, 1000)
		for i := range ws {
			ws[i] = watch(b, h, 0, Filter{Path: "/data", Recursive: true})
		}
		each(b, h, func() {
			for _, w := range ws {
				if _, _, err := w.Next(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		})
	})
}

// BenchmarkPublishGroup is Add of 256 changes and one Publish, with a thousand
// idle watchers, as a group commit does.
func BenchmarkPublishGroup(b *testing.B) {
	h := New(Config{}, 0)
	for i := range 1000 {
		watch(b, h, 0, Filter{Path: fmt.Sprintf("/data/tables/u%d/part", i), Recursive: true})
	}
	e := []Event{file("/data/tables/t00/part/file")}
	b.ReportAllocs()
	tx := uint64(0)
	for b.Loop() {
		for range 256 {
			tx++
			h.Add(e, tx)
		}
		publish(h, tx)
	}
}

// BenchmarkScan is a watch from the oldest of 100,000 events, of which none
// matches.
func BenchmarkScan(b *testing.B) {
	h := New(Config{}, 0)
	for tx := uint64(1); tx <= DefaultMaxEvents; tx++ {
		put(h, tx, file("/data/tables/t00/part/file"))
	}
	b.ReportAllocs()
	for b.Loop() {
		w := watch(b, h, 1, Filter{Path: "/data/tables/t01/part"})
		if _, _, err := poll(b, w); err == nil {
			b.Fatal("a match")
		}
		w.Close()
	}
}

// BenchmarkWait is one long poll that finds its answer.
func BenchmarkWait(b *testing.B) {
	h := New(Config{}, 0)
	e := []Event{{Type: Length, Inode: 5, Path: "/data/file"}}
	b.ReportAllocs()
	tx := uint64(0)
	for b.Loop() {
		tx++
		ch, done := h.Wait(5)
		h.Add(e, tx)
		publish(h, tx)
		<-ch
		done()
	}
}
