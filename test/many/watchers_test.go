package many

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
	"github.com/leasefs/leasefs/test/env"
	"github.com/leasefs/leasefs/test/env/frames"
)

// eachField calls each with the fields of a message that have bytes, of that number.
func eachField(b []byte, number protowire.Number, each func([]byte) error) error {
	for len(b) > 0 {
		num, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		if n = protowire.ConsumeFieldValue(num, kind, b); n < 0 {
			return protowire.ParseError(n)
		}
		if num == number && kind == protowire.BytesType {
			v, _ := protowire.ConsumeBytes(b)
			if err := each(v); err != nil {
				return err
			}
		}
		b = b[n:]
	}
	return nil
}

// watcher is told of the directories /w/0, /w/1 and so on, in order and without a gap.
type watcher struct {
	next  int
	times bool            // it notes how late it is told
	late  []time.Duration // of all changes
}

// told takes a WatchResponse. made says when the change was made.
func (w *watcher) told(b []byte, made func(i int) time.Time) error {
	return eachField(b, 1, func(event []byte) error {
		return eachField(event, 3, func(path []byte) error {
			i, err := strconv.Atoi(strings.TrimPrefix(string(path), "/w/"))
			if err != nil || i != w.next {
				return fmt.Errorf("told of %s after %d others: %w", path, w.next, err)
			}
			w.next++
			if w.times {
				w.late = append(w.late, time.Since(made(i)))
			}
			return nil
		})
	})
}

// watch has watchers begin to watch /w, perConn of them over a connection. done waits until each was
// told of so many changes, in order. when is told.
func watch(t testing.TB, n *namenode, all []watcher, changes int, when func(int) time.Time) (done func()) {
	t.Helper()
	const perConn = 500
	var begun, ended atomic.Int64
	var wg sync.WaitGroup
	t.Cleanup(wg.Wait)
	who := env.RawAt(t, n.listen, "watcher").Who
	for some := range slices.Chunk(all, perConn) {
		c, err := frames.Connect(t.Context(), n.listen, "")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		here := map[uint32]*watcher{}
		for i := range some {
			stream, err := c.Open(pb.Namenode_Watch_FullMethodName, &pb.WatchRequest{Caller: who, Path: "/w"})
			if err == nil {
				err = c.Send(stream, nil)
			}
			if err != nil {
				t.Fatal(err)
			}
			here[stream] = &some[i]
			here[stream].times = i%50 == 0
		}
		wg.Go(func() {
			welcomed := map[uint32]bool{}
			for {
				stream, m, err := c.Next()
				switch {
				case errors.Is(err, frames.ErrEnded):
					t.Error("a watch was ended")
					continue
				case err != nil:
					return
				case !welcomed[stream]:
					welcomed[stream] = true
					begun.Add(1)
					continue
				}
				w := here[stream]
				before := w.next
				if err := w.told(m, when); err != nil {
					t.Error(err)
					return
				}
				if before < changes && w.next == changes {
					ended.Add(1)
				}
			}
		})
	}
	await := func(what string, n *atomic.Int64) {
		t.Helper()
		env.Eventually(t, what, func() bool { return n.Load() == int64(len(all)) })
	}
	await("all watch", &begun)
	return func() { t.Helper(); await("all are told of all", &ended) }
}

// BenchmarkWatchers is so many watchers of one directory, in which 100 changes are made a
// second: how late each watcher is told, and what a bystander gets of it. It is checked that each
// is told all, in order.
func BenchmarkWatchers(b *testing.B) {
	const rate, seconds = 100, 15
	for _, watchers := range []int{500, 2000, 10_000} {
		b.Run(fmt.Sprint(watchers), func(b *testing.B) {
			n := startNamenode(b)
			maker := env.RawAt(b, n.listen, "maker")
			mkdir := func(path string) {
				if _, err := maker.NN.Mkdir(b.Context(), &pb.MkdirRequest{Call: maker.CallInTurn(), Caller: maker.Who, At: pb.At(path)}); err != nil {
					b.Fatal(err)
				}
			}
			mkdir("/w")
			var made [rate * seconds]atomic.Int64 // when, in Unix ns
			when := func(i int) time.Time { return time.Unix(0, made[i].Load()) }
			all := make([]watcher, watchers)
			done := watch(b, n, all, len(made), when)
			stop := n.bystander()
			wait := n.profileCPU("watch", seconds)
			cpu, began := n.cpu(), time.Now()
			tick := time.NewTicker(time.Second / rate)
			defer tick.Stop()
			for i := range made {
				made[i].Store(time.Now().UnixNano())
				mkdir(fmt.Sprint("/w/", i))
				<-tick.C
			}
			took := time.Since(began)
			done()
			cpu = n.cpu() - cpu
			wait()
			beside := stop()
			var late []time.Duration
			for i := range all {
				late = append(late, all[i].late...)
			}
			report(b, late, "told")
			report(b, beside, "bystander")
			b.ReportMetric(float64(len(made))/took.Seconds(), "changes/s")
			b.ReportMetric(cpu.Seconds()*1e9/float64(len(made))/float64(watchers), "cpu-ns/told")
			b.ReportMetric(cpu.Seconds()/took.Seconds(), "processors")
			b.ReportMetric(0, "ns/op")
		})
	}
}
