package namenode_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"math/rand/v2"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/leasefs/leasefs/internal/proof"
	"github.com/leasefs/leasefs/namenode"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// frame is a frame of HTTP/2.
func frame(kind, flags byte, stream uint32, payload []byte) []byte {
	n := len(payload)
	b := []byte{byte(n >> 16), byte(n >> 8), byte(n), kind, flags}
	return append(binary.BigEndian.AppendUint32(b, stream), payload...)
}

// hostile are the ways in which a connection of somebody who wants no good begins.
func hostile(r *rand.Rand) []byte {
	noise := make([]byte, r.IntN(2000))
	for i := range noise {
		noise[i] = byte(r.Uint32())
	}
	h2 := append([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), frame(4, 0, 0, nil)...)
	switch r.IntN(9) {
	case 0:
		return noise
	case 1: // a handshake of TLS that is none
		return append([]byte{22, 3, 1, byte(len(noise) >> 8), byte(len(noise)), 1}, noise...)
	case 2: // headers without an end
		return []byte("GET /metrics HTTP/1.1\r\nHost: h\r\nX: " + strings.Repeat("x", 64<<10) + "\r\n\r\n")
	case 3: // rapid reset
		for i := range uint32(200) {
			h2 = append(append(h2, frame(1, 4, 2*i+1, []byte{0x82, 0x86, 0x84})...), frame(3, 0, 2*i+1, []byte{0, 0, 0, 8})...)
		}
		return h2
	case 4: // settings
		return append(h2, bytes.Repeat(frame(4, 0, 0, []byte{0, 3, 0, 0, 0, 1}), 500)...)
	case 5: // pings
		return append(h2, bytes.Repeat(frame(6, 0, 0, make([]byte, 8)), 500)...)
	case 6: // continuations without an end
		return append(append(h2, frame(1, 0, 1, []byte{0x82})...), bytes.Repeat(frame(9, 0, 1, make([]byte, 1000)), 100)...)
	case 7: // a loris: the beginning of a request, and no more
		return []byte("GET /v1/blocks/1/2?sig=0 HTTP/1.1\r\nHost: h\r\nX")
	}
	return append(h2, noise...)
}

// loris holds connections open on which requests begin and never end, one byte at a time, and opens
// others for those that are closed, until over.
func loris(addr string, n int, over <-chan struct{}) {
	var all sync.WaitGroup
	defer all.Wait()
	for i := range n {
		all.Go(func() {
			begin := [][]byte{[]byte("GET /v1/blocks/1/2?sig="), []byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), {22, 3, 1, 2, 0, 1}}[i%3]
			for {
				c, err := net.DialTimeout("tcp", addr, 10*time.Second)
				if err == nil {
					_, err = c.Write(begin)
				}
				for err == nil {
					select {
					case <-over:
						_ = c.Close()
						return
					case <-time.After(200 * time.Millisecond):
						_, err = c.Write([]byte("0"))
					}
				}
				if c != nil {
					_ = c.Close()
				}
				select {
				case <-over:
					return
				case <-time.After(50 * time.Millisecond): // there is no room for him, which is fine
				}
			}
		})
	}
}

// liars make calls whose proofs are wrong, each in another way, and tell what was not refused.
func liars(f *fort, n int) (taken int64) {
	var all sync.WaitGroup
	var wrong atomic.Int64
	body := strings.Repeat("e", 4000)
	for i, shown := range []string{"Bearer " + proof.NewToken(), "Bearer " + body + "." + body + "." + body, "Negotiate " + body, "Negotiate =", "Basic cm9vdDpyb290", "Bearer", strings.Repeat("x", 30_000)} {
		cc := f.connect(f.shows(nil, nil))
		all.Go(func() {
			nn := pb.NewNamenodeClient(cc)
			who := &pb.Caller{User: "root", Client: "liar", Session: bytes.Repeat([]byte{byte(i)}, 16)}
			for range n {
				ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(f.t.Context(), "authorization", shown), time.Minute)
				if _, err := nn.Stat(ctx, &pb.StatRequest{Caller: who, At: pb.Follow("/")}); err == nil {
					wrong.Add(1)
				}
				cancel()
			}
		})
	}
	all.Wait()
	return wrong.Load()
}

// TestHostileRequests: 10,000 bad connections to each port, with slow ones and wrong proofs beside
// them, take no memory and no goroutines for good, and somebody who asks for something meanwhile is answered.
func TestHostileRequests(t *testing.T) {
	f := newFort(t, func(c *namenode.Config) { c.Pages = "127.0.0.1:0"; c.MaxConnections = 512 })
	by := f.Raw(t, "bystander")
	by.Make("/d")
	plain := startServer(t, func(c *namenode.Config) { c.Pages = "127.0.0.1:0"; c.MaxConnections = 512 })
	other := connect(t, plain.Addr(), "bystander")
	runtime.GC()
	goroutines := runtime.NumGoroutine()
	const each, workers = 10_000, 32
	var done sync.WaitGroup
	for _, addr := range []string{f.Addr(), f.HTTPAddr(), plain.Addr(), plain.HTTPAddr(), plain.PagesAddr()} {
		for w := range workers {
			done.Go(func() {
				r := rand.New(rand.NewPCG(1, uint64(w)))
				for range each / workers {
					c, err := net.DialTimeout("tcp", addr, 10*time.Second)
					if err != nil {
						continue // there is no room for him, which is fine
					}
					_ = c.SetDeadline(time.Now().Add(2 * time.Second))
					_, _ = c.Write(hostile(r)) // cut off is fine
					if r.IntN(50) == 0 {
						_, _ = c.Read(make([]byte, 100))
					}
					_ = c.Close()
				}
			})
		}
	}
	slow := make(chan struct{})
	var lorises sync.WaitGroup
	for _, addr := range []string{f.Addr(), f.HTTPAddr(), plain.Addr(), plain.HTTPAddr(), plain.PagesAddr()} {
		lorises.Go(func() { loris(addr, 60, slow) })
	}
	done.Go(func() {
		if n := liars(f, 1000); n > 0 {
			t.Errorf("%d calls with a wrong proof were answered", n)
		}
	})
	// He has the address of the others, so his connection may be the one that was idle for
	// longest when there are too many of that address: he asks again, as all clients do.
	ask := func(n int, question func() error) {
		t.Helper()
		for end := time.Now().Add(time.Minute); ; <-time.After(20 * time.Millisecond) {
			err := question()
			if err == nil {
				return
			}
			if status.Code(err) != codes.Unavailable || time.Now().After(end) {
				t.Fatalf("question %d: %v", n, err)
			}
		}
	}
	over := make(chan struct{})
	go func() { done.Wait(); close(over) }()
	asked, peak := 0, uint64(0)
	var m runtime.MemStats
	for finished := false; !finished || asked == 0; asked++ {
		select {
		case <-over:
			finished = true
		case <-time.After(50 * time.Millisecond):
		}
		runtime.ReadMemStats(&m)
		peak = max(peak, m.HeapAlloc)
		ask(asked, func() error {
			_, err := by.NN.Stat(t.Context(), &pb.StatRequest{Caller: by.Who, At: pb.Follow("/d")})
			return err
		})
		ask(asked, func() error {
			_, err := other.nn.Stat(t.Context(), &pb.StatRequest{Caller: other.caller(), At: pb.Follow("/")})
			return err
		})
	}
	close(slow)
	lorises.Wait()
	resp, err := http.Get("http://" + plain.PagesAddr() + "/metrics")
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("metrics: %v", err)
	}
	_ = resp.Body.Close()
	if resp, err = http.Get("http://" + plain.HTTPAddr() + "/metrics"); err != nil || resp.StatusCode != http.StatusNotFound {
		t.Errorf("metrics are with the blocks, too: %v", err)
	}
	_ = resp.Body.Close()
	end := time.Now().Add(time.Minute)
	for runtime.NumGoroutine() > goroutines+100 && time.Now().Before(end) {
		<-time.After(100 * time.Millisecond)
	}
	runtime.GC()
	runtime.ReadMemStats(&m)
	if n := runtime.NumGoroutine(); n > goroutines+100 || m.HeapAlloc > 256<<20 || peak > 1<<30 {
		buf := make([]byte, 1<<20)
		t.Errorf("%d goroutines, %d before; %d bytes of heap, %d at most\n%s", n, goroutines, m.HeapAlloc, peak, buf[:runtime.Stack(buf, true)])
	}
	t.Logf("%d questions; %d goroutines, %d MiB of heap after, %d at most", asked, runtime.NumGoroutine(), m.HeapAlloc>>20, peak>>20)
}
