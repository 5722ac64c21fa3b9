package giveback

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"

	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/namecall"
	"github.com/leasefs/leasefs/internal/session"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// namenode cancels a call once it may.
type namenode struct {
	pb.UnimplementedNamenodeServer
	may chan struct{}

	mu         sync.Mutex
	busy, most int
	cancelled  map[uint64]int
}

func (n *namenode) CancelOpen(ctx context.Context, r *pb.CancelOpenRequest) (*pb.MutateResponse, error) {
	n.mu.Lock()
	n.busy++
	n.most = max(n.most, n.busy)
	n.mu.Unlock()
	select {
	case <-n.may:
	case <-ctx.Done():
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.busy--
	if ctx.Err() == nil {
		n.cancelled[r.GetCall().GetSeq()]++
	}
	return new(pb.MutateResponse), ctx.Err()
}

// with runs a test in a bubble, with a Table and its namenode.
func with(t *testing.T, test func(t *testing.T, table *Table, n *namenode, end func())) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := &namenode{may: make(chan struct{}), cancelled: map[uint64]int{}}
		lis, server := bufconn.Listen(64<<10), grpc.NewServer()
		pb.RegisterNamenodeServer(server, n)
		go func() { _ = server.Serve(lis) }() // until Stop
		defer server.Stop()
		ctx, cancel := context.WithCancel(t.Context())
		caller := &pb.Caller{User: "ann", Session: []byte("0123456789abcdef")}
		nn, err := namecall.New(ctx, namecall.Config{
			Namenodes: []string{"nn"}, Caller: caller, Timeout: time.Minute, Attempt: 10 * time.Second, Conns: 1,
			DialOptions: []grpc.DialOption{grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) })},
		})
		if err != nil {
			t.Fatal(err)
		}
		defer nn.Close()
		log := slog.New(slog.DiscardHandler)
		var all sync.WaitGroup
		table := New(ctx, Config{
			Namenodes: nn, Caller: caller, Logger: log,
			Session: session.New(ctx, session.Config{Namenodes: nn, Caller: caller, Clock: clock.System{}, Logger: log}),
			Go: func(fn func()) bool {
				if ctx.Err() == nil {
					all.Go(fn)
				}
				return ctx.Err() == nil
			},
		})
		end := func() { cancel(); all.Wait() }
		defer end()
		test(t, table, n, end)
	})
}

// lose is an opening call whose answer was lost.
func lose(t *Table) {
	ids := t.cfg.Namenodes.IDs()
	id := ids.Next()
	defer ids.Retire(id)
	t.Opening(&namecall.Call{Op: "append", Path: "/f", AnyLost: true}, id, fserror.Ended(context.Background(), "append", "/f"))
}

// Calls that are to be cancelled take a bounded number of goroutines and of entries, and keep their ids
// until they are.
func TestManyOpens(t *testing.T) {
	with(t, func(t *testing.T, table *Table, n *namenode, _ func()) {
		for range maxOpens + 100 {
			lose(table)
		}
		synctest.Wait()
		if len(table.opens) != maxOpens || table.workers != maxWorkers || n.most != maxWorkers {
			t.Errorf("%d calls, %d workers, %d calls at once", len(table.opens), table.workers, n.most)
		}
		began := time.Now()
		if table.Settle(t.Context()) || time.Since(began) != settleTime {
			t.Errorf("waited for %s", time.Since(began))
		}
		close(n.may)
		for table.Settle(t.Context()) {
		}
		synctest.Wait()
		if under := table.cfg.Namenodes.IDs().Under(); len(n.cancelled) != maxOpens || len(table.opens) != 0 || table.workers != 0 || under != 0 {
			t.Errorf("%d calls are cancelled, %d are left, with %d workers, %d ids", len(n.cancelled), len(table.opens), table.workers, under)
		}
	})
}

// What was answered, or never sent, is not cancelled; nor is anything once the client has ended.
func TestNothingToCancel(t *testing.T) {
	with(t, func(t *testing.T, table *Table, n *namenode, end func()) {
		id := table.cfg.Namenodes.IDs().Next()
		table.Opening(&namecall.Call{AnyLost: true}, id, nil)
		table.Opening(new(namecall.Call), id, fserror.Ended(t.Context(), "append", "/f"))
		if table.Settle(t.Context()) {
			t.Error("there was something to wait for")
		}
		lose(table)
		synctest.Wait()
		end() // while it is being cancelled
		lose(table)
		if len(table.opens) != 0 || table.workers != 0 || len(n.cancelled) != 0 {
			t.Errorf("%d calls, %d workers, %v cancelled", len(table.opens), table.workers, n.cancelled)
		}
	})
}
