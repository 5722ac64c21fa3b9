package sim

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// inFleet runs fn in a world without clients, once a namenode is active.
func inFleet(t *testing.T, fn func(t *testing.T, w *World)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := New(t, Config{Seed: 1, Calm: true})
		if err := w.format(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, n := range w.nodes {
			w.running.Go(n.run)
		}
		w.waitActive(t.Context())
		fn(t, w)
		w.end()
	})
}

// active is the node of the active namenode.
func (w *World) active(t *testing.T) *Node {
	t.Helper()
	for _, n := range w.nodes {
		if n.active() {
			return n
		}
	}
	t.Fatal("nobody is active")
	return nil
}

// says is the address to which a namenode sends clients.
func (w *World) says(ctx context.Context, n *Node) string {
	conn, err := grpc.NewClient("passthrough:"+n.name+":8020", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			return w.operator.host.DialContext(ctx, "tcp", addr)
		}))
	if err != nil {
		return err.Error()
	}
	defer func() { _ = conn.Close() }()
	st, err := pb.NewAdminClient(conn).Status(ctx, &pb.StatusRequest{})
	if err != nil {
		return err.Error()
	}
	return st.GetActiveAddress()
}

// A standby sends clients to a new active namenode at once, also when its session has
// just moved to another server of ZooKeeper, or is about to.
func TestStandbyLearnsOfTheActive(t *testing.T) {
	const late = 500 * time.Millisecond
	inFleet(t, func(t *testing.T, w *World) {
		for round := range 12 {
			<-time.After(20*time.Second + time.Duration(round)*1137*time.Millisecond)
			old, server := w.active(t), w.zk.Server(round%w.cfg.ZooKeeper)
			if round >= 3 {
				server.Stop()
			}
			if round >= 6 {
				<-time.After(time.Second) // its sessions have moved
			}
			old.restart()
			for old.active() {
				<-time.After(time.Millisecond)
			}
			w.waitActive(t.Context())
			now := w.active(t)
			for _, n := range w.nodes {
				for began := time.Now(); n != old && n != now; {
					got := w.says(t.Context(), n)
					if got == now.name+":8020" {
						break
					}
					if d := time.Since(began); d > late {
						t.Errorf("round %d: %v after %s became active %s says %q", round, d, now.name, n.name, got)
						break
					}
				}
			}
			server.Start()
		}
	})
}

// Namenodes ask ZooKeeper little. While nothing changes a standby looks at each beat of
// the active one, and at how the others are once in some seconds. While much changes
// it reads each batch once, and how far the others are only as often.
func TestFleetAsksLittle(t *testing.T) {
	const minutes, pause = 5, 100 * time.Millisecond
	inFleet(t, func(t *testing.T, w *World) {
		c := w.clients[0]
		if err := c.connect(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer c.end()
		for _, busy := range []bool{false, true} {
			most := map[bool]int{true: 240, false: 300} // a minute, by whether it is active
			if busy {
				changes := int(time.Minute / pause)
				reports := int(time.Minute / (250 * time.Millisecond))
				most = map[bool]int{true: most[true] + changes + reports, false: most[false] + 2*changes + reports}
			}
			<-time.After(time.Minute) // they have come to rest
			before := w.zk.Requests()
			for began := time.Now(); time.Since(began) < minutes*time.Minute; <-time.After(pause) {
				if busy {
					if err := c.fs.MkdirAll(t.Context(), "/"+time.Now().Format("150405.000"), 0o755); err != nil {
						t.Fatal(err)
					}
				}
			}
			asked := map[string]int{}
			for what, n := range w.zk.Requests() {
				asked[what.From] += n - before[what]
			}
			for _, n := range w.nodes {
				if got := asked[n.name] / minutes; got > most[n.active()] {
					t.Errorf("%s, active: %t, busy: %t, asks %d times a minute; at most %d", n.name, n.active(), busy, got, most[n.active()])
				}
			}
		}
	})
}

// A standby that waits for an event that never comes follows again by itself.
func TestStandbyWithoutItsWatches(t *testing.T) {
	const late = 15 * time.Second
	inFleet(t, func(t *testing.T, w *World) {
		c := w.clients[0]
		if err := c.connect(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer c.end()
		<-time.After(time.Minute) // they have come to rest
		for i := range w.cfg.ZooKeeper {
			w.zk.Server(i).LoseWatches()
		}
		if err := c.fs.Mkdir(t.Context(), "/d", 0o755); err != nil {
			t.Fatal(err)
		}
		last, _ := w.active(t).tree().Last()
		<-time.After(late)
		for _, n := range w.nodes {
			if at, _ := n.tree().Last(); at < last {
				t.Errorf("%s, active: %t, is at %d after %v, and %d was durable then", n.name, n.active(), at, late, last)
			}
		}
	})
}
