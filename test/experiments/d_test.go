package experiments

import (
	"container/heap"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/google/btree"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/leasemanager"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
	"github.com/leasefs/leasefs/test/experiments/report"
)

// managers measures what a renewal, a look for expired leases and a lease's memory cost,
// in four ways to keep leases in order, and in the servers.
func managers(t *testing.T, r *report.Result) {
	counts := sizes([]int{1_000, 10_000}, []int{1_000, 10_000, 100_000, 1_000_000})
	kinds := []struct {
		name string
		make func(n int) order
	}{
		{"linear scan", newScan},
		{"heap", newHeap},
		{"exact B-tree", newExact},
		{"lazy B-tree (leasefs)", newLazy},
	}
	table := report.Table{
		Title:   "In one process, one goroutine: leases renewed in random order; then a look for expired ones, of which there are none; then memory. Times are those of the fastest of five rounds.",
		Columns: []string{"leases, kept in order by", "a renewal", "a look", "bytes a lease"},
	}
	renewals := report.Chart{Name: "renewal", Title: "A renewal", X: report.Axis{Label: "leases", Log: true}, Y: report.Axis{Label: "nanoseconds", Log: true}}
	looks := report.Chart{Name: "look", Title: "A look for expired leases, of which there are none", X: report.Axis{Label: "leases", Log: true}, Y: report.Axis{Label: "nanoseconds", Log: true}}
	for _, k := range kinds {
		renewal, look := report.Series{Name: k.name}, report.Series{Name: k.name}
		for _, n := range counts {
			before := heapBytes()
			o := k.make(n)
			bytes := float64(heapBytes()-before) / float64(n)
			for i := range n { // a first round, after which a lazy order is unsorted
				o.renew(i)
			}
			rnd := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // chance by a seed
			each := timeOf(func(int) { o.renew(rnd.IntN(n)) })
			o.look() // which sorts a lazy order
			one := timeOf(func(int) { o.look() })
			table.Row(fmt.Sprintf("%s, %s", report.Show(n), k.name), each, one, bytes)
			renewal.Add(float64(n), float64(each))
			look.Add(float64(n), float64(one))
			runtime.KeepAlive(o)
		}
		renewals.Series, looks.Series = append(renewals.Series, renewal), append(looks.Series, look)
	}

	shared := report.Table{
		Title:   "In one process: all files kept alive once, by one lease that they share or by a lease each.",
		Columns: []string{"files", "one lease for all", "a lease each", "times"},
	}
	for _, n := range counts {
		all := newShared(n)
		one := timeOf(func(int) { all() })
		single := newGranted(n)
		many := min(round(1, func(int) { single() }), round(1, func(int) { single() }), round(1, func(int) { single() }))
		shared.Row(n, one, many, float64(many)/float64(max(one, 1)))
	}

	servers := report.Table{
		Title:   fmt.Sprintf("Servers in processes of their own, on loopback: granted leases (TTL one hour), kept alive 20 times each. etcd %s has keep-alives of one lease a message.", etcdVersion()),
		Columns: []string{"leases, in", "streams", "keep-alives a second", "server's processor time for one", "server's memory a lease"},
	}
	n, times := sizes(500, 5000), 20
	type side struct {
		name    string
		streams int
		run     func(t *testing.T, n, times, streams int) kept
	}
	sides := []side{{"leasefs, one lease a message", 1, leasefsKept(1)}, {"leasefs, 500 leases a message", 1, leasefsKept(500)}, {"leasefs, one lease a message, a connection a lease", sizes(50, 500), leasefsKept(1)}}
	if *etcd != "" {
		sides = append(sides, side{"etcd", 1, etcdKept}, side{"etcd, a connection a lease", sizes(50, 500), etcdKept})
	}
	for _, s := range sides {
		leases := n
		if s.streams > 1 {
			leases = s.streams
		}
		k := s.run(t, leases, times, s.streams)
		memory := report.Show(k.bytes / float64(leases))
		if s.streams > 1 {
			memory += " with its connection"
		}
		servers.Row(fmt.Sprintf("%s, %s", report.Show(leases), s.name), s.streams, float64(leases*times)/k.took.Seconds(), k.cpu/time.Duration(leases*times), memory)
	}
	r.Tables, r.Charts = []report.Table{table, shared, servers}, []report.Chart{renewals, looks}
}

// timeOf is how long one call takes in the fastest of five rounds, since other work of the
// machine only adds to it. Each round has enough calls to be measured well.
func timeOf(do func(i int)) time.Duration {
	least := sizes(10*time.Millisecond, 50*time.Millisecond)
	for n := 1; ; n *= 4 {
		best := round(n, do)
		if best < least && n < 1<<26 {
			continue
		}
		for range 4 {
			best = min(best, round(n, do))
		}
		return best / time.Duration(n)
	}
}

func round(n int, do func(i int)) time.Duration {
	began := time.Now()
	for i := range n {
		do(i)
	}
	return time.Since(began)
}

func heapBytes() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc) //nolint:gosec // less than that
}

// order is a table of leases, all with the same time to live, none of them expired.
type order interface {
	renew(i int)
	look() int // how many have expired
}

const longTTL = time.Hour

func randomIDs(n int) []leasemanager.SessionID {
	rnd := rand.New(rand.NewPCG(3, 4)) //nolint:gosec // chance by a seed
	ids := make([]leasemanager.SessionID, n)
	for i := range ids {
		binary.LittleEndian.PutUint64(ids[i][:], rnd.Uint64())
	}
	return ids
}

// scan is a map of stamps: a look goes through all.
type scan struct {
	mu    sync.Mutex
	clock clock.System
	ids   []leasemanager.SessionID
	all   map[leasemanager.SessionID]*time.Duration
}

func newScan(n int) order {
	s := &scan{ids: randomIDs(n), all: make(map[leasemanager.SessionID]*time.Duration, n)}
	for _, id := range s.ids {
		now := s.clock.Mono()
		s.all[id] = &now
	}
	return s
}

func (s *scan) renew(i int) {
	s.mu.Lock()
	*s.all[s.ids[i]] = s.clock.Mono()
	s.mu.Unlock()
}

func (s *scan) look() (over int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.Mono()
	for _, stamp := range s.all {
		if now-*stamp > longTTL {
			over++
		}
	}
	return over
}

// stamped is a lease of a heap or an exact tree.
type stamped struct {
	stamp time.Duration
	n     int
	at    int // in the heap
}

func (s *stamped) less(o *stamped) bool {
	return s.stamp < o.stamp || s.stamp == o.stamp && s.n < o.n
}

// oldest is container/heap's kind of a heap.
type oldest []*stamped

func (h oldest) Len() int           { return len(h) }
func (h oldest) Less(i, j int) bool { return h[i].less(h[j]) }
func (h oldest) Swap(i, j int)      { h[i], h[j] = h[j], h[i]; h[i].at, h[j].at = i, j }

// Push implements heap.Interface.
func (h *oldest) Push(x any) { s := x.(*stamped); s.at = len(*h); *h = append(*h, s) }

// Pop implements heap.Interface.
func (h *oldest) Pop() any { s := (*h)[len(*h)-1]; *h = (*h)[:len(*h)-1]; return s }

type heaped struct {
	mu    sync.Mutex
	clock clock.System
	ids   []leasemanager.SessionID
	all   map[leasemanager.SessionID]*stamped
	order oldest
}

func newHeap(n int) order {
	h := &heaped{ids: randomIDs(n), all: make(map[leasemanager.SessionID]*stamped, n)}
	for i, id := range h.ids {
		s := &stamped{stamp: h.clock.Mono(), n: i}
		h.all[id] = s
		heap.Push(&h.order, s)
	}
	return h
}

func (h *heaped) renew(i int) {
	h.mu.Lock()
	s := h.all[h.ids[i]]
	s.stamp = h.clock.Mono()
	heap.Fix(&h.order, s.at)
	h.mu.Unlock()
}

func (h *heaped) look() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.clock.Mono()-h.order[0].stamp > longTTL {
		return 1
	}
	return 0
}

// exact is a B-tree by the last renewal, which each renewal changes.
type exact struct {
	mu    sync.Mutex
	clock clock.System
	ids   []leasemanager.SessionID
	all   map[leasemanager.SessionID]*stamped
	order *btree.BTreeG[stamped]
}

func newExact(n int) order {
	e := &exact{ids: randomIDs(n), all: make(map[leasemanager.SessionID]*stamped, n), order: btree.NewG(32, func(a, b stamped) bool { return a.less(&b) })}
	for i, id := range e.ids {
		s := &stamped{stamp: e.clock.Mono(), n: i}
		e.all[id] = s
		e.order.ReplaceOrInsert(*s)
	}
	return e
}

func (e *exact) renew(i int) {
	e.mu.Lock()
	s := e.all[e.ids[i]]
	e.order.Delete(*s)
	s.stamp = e.clock.Mono()
	e.order.ReplaceOrInsert(*s)
	e.mu.Unlock()
}

func (e *exact) look() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	if s, _ := e.order.Min(); e.clock.Mono()-s.stamp > longTTL {
		return 1
	}
	return 0
}

// lazy is leasefs's own: sessions with a file each, as the namenode has them.
type lazy struct {
	m   *leasemanager.Manager
	ids []leasemanager.SessionID
}

func newLazy(n int) order {
	l := &lazy{m: leasemanager.New(leasemanager.Config{Clock: clock.System{}, Soft: longTTL, Hard: longTTL}), ids: randomIDs(n)}
	for i, id := range l.ids {
		ref := leasemanager.Ref{Inode: uint64(i + 1), Epoch: 1} //nolint:gosec // small
		l.m.Open(leasemanager.Holder{User: "u", Client: "c", Session: id, Host: "h"}, ref.Inode, ref.Epoch)
		l.m.Renew(leasemanager.Renewal{Session: id, Version: 1, HasSet: true, Open: []leasemanager.Ref{ref}})
	}
	return l
}

func (l *lazy) renew(i int) { l.m.Renew(leasemanager.Renewal{Session: l.ids[i], Version: 1}) }
func (l *lazy) look() int   { return len(l.m.Expire(10)) }

// newShared is a session with so many files; what it returns renews all of them.
func newShared(n int) (renew func()) {
	m := leasemanager.New(leasemanager.Config{Clock: clock.System{}, Soft: longTTL, Hard: longTTL})
	h := leasemanager.Holder{User: "u", Session: leasemanager.SessionID{1}}
	set := make([]leasemanager.Ref, n)
	for i := range set {
		set[i] = leasemanager.Ref{Inode: uint64(i + 1), Epoch: 1} //nolint:gosec // small
		m.Open(h, set[i].Inode, 1)
	}
	m.Renew(leasemanager.Renewal{Session: h.Session, Version: 1, HasSet: true, Open: set})
	return func() { m.Renew(leasemanager.Renewal{Session: h.Session, Version: 1}) }
}

// newGranted is so many granted leases; what it returns keeps each alive.
func newGranted(n int) (keep func()) {
	m := leasemanager.New(leasemanager.Config{Clock: clock.System{}, Soft: longTTL, Hard: longTTL})
	for i := range n {
		m.Grant(leasemanager.Holder{User: "u"}, uint64(i+1), longTTL) //nolint:gosec // small
	}
	return func() {
		for i := range n {
			m.KeepAlive(uint64(i + 1)) //nolint:gosec // small
		}
	}
}

// kept is what keep-alives cost a server.
type kept struct {
	took, cpu time.Duration
	bytes     float64
}

// keeper is a stream on which leases are kept alive.
type keeper struct {
	ids  []uint64
	send func(ids []uint64) error
	recv func() error
}

// keepAll has each keeper name its leases so many times, at most batch a message and
// window messages on their way.
func keepAll(t *testing.T, p *process, before float64, all []keeper, times, batch int) (k kept) {
	const window = 16
	cpu, began := p.cpu(t), time.Now()
	var running sync.WaitGroup
	for _, s := range all {
		running.Go(func() {
			slots := make(chan struct{}, window)
			messages := times * ((len(s.ids) + batch - 1) / batch)
			running.Go(func() {
				for range messages {
					if err := s.recv(); err != nil {
						t.Error(err)
					}
					<-slots
				}
			})
			for range times {
				for i := 0; i < len(s.ids); i += batch {
					slots <- struct{}{}
					if err := s.send(s.ids[i:min(i+batch, len(s.ids))]); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	running.Wait()
	return kept{time.Since(began), p.cpu(t) - cpu, max(0, p.rss(t)-before)}
}

// dial is a connection of its own.
func dial(t *testing.T, addr string) *grpc.ClientConn {
	cc, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(t, err)
	t.Cleanup(func() { _ = cc.Close() })
	return cc
}

// split hands out so many leases to so many streams.
func split(ids []uint64, streams int) (all [][]uint64) {
	for i := range streams {
		all = append(all, ids[i*len(ids)/streams:(i+1)*len(ids)/streams])
	}
	return all
}

func leasefsKept(batch int) func(t *testing.T, n, times, streams int) kept {
	return func(t *testing.T, n, times, streams int) kept {
		p := startNamenode(t)
		defer p.kill()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		who := &pb.Caller{User: "u", Client: "c", Session: make([]byte, 16), Host: "h"}
		who.Session[0] = 1
		fs, err := client.New(ctx, client.Config{Namenodes: []string{p.addr}, User: "u"})
		must(t, err)
		defer fs.Close()
		before := p.rss(t)
		ids := make([]uint64, n)
		grantAll(t, n, func(i int) error {
			g, err := fs.Leases().Grant(ctx, longTTL, 0)
			ids[i] = uint64(g.ID)
			return err
		})
		var all []keeper
		for _, mine := range split(ids, streams) {
			stream, err := pb.NewNamenodeClient(dial(t, p.addr)).KeepAlive(ctx)
			must(t, err)
			all = append(all, keeper{mine,
				func(ids []uint64) error { return stream.Send(&pb.KeepAliveRequest{Caller: who, Ids: ids}) },
				func() error { _, err := stream.Recv(); return err }})
		}
		return keepAll(t, p, before, all, times, batch)
	}
}

func etcdKept(t *testing.T, n, times, streams int) kept {
	s := startEtcd(t)
	defer s.kill()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c := etcdClient(t, s.clients)
	_, err := c.Grant(ctx, 3600)
	must(t, err)
	before := s.rss(t)
	ids := make([]uint64, n)
	grantAll(t, n, func(i int) error {
		g, err := c.Grant(ctx, 3600)
		if err == nil {
			ids[i] = uint64(g.ID) //nolint:gosec // its bits
		}
		return err
	})
	var all []keeper
	for _, mine := range split(ids, streams) {
		stream, err := etcdserverpb.NewLeaseClient(dial(t, s.clients)).LeaseKeepAlive(ctx)
		must(t, err)
		all = append(all, keeper{mine,
			func(ids []uint64) error {
				return stream.Send(&etcdserverpb.LeaseKeepAliveRequest{ID: int64(clientv3.LeaseID(ids[0]))}) //nolint:gosec // its bits
			},
			func() error { _, err := stream.Recv(); return err }})
	}
	return keepAll(t, s.process, before, all, times, 1)
}

// grantAll asks for n leases, many at once.
func grantAll(t *testing.T, n int, grant func(i int) error) {
	var running sync.WaitGroup
	const workers = 32
	for w := range workers {
		running.Go(func() {
			for i := w; i < n; i += workers {
				if err := grant(i); err != nil {
					t.Error(err)
				}
			}
		})
	}
	running.Wait()
}
