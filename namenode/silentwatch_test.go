package namenode_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fserror/wire"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
	"github.com/leasefs/leasefs/test/env"
)

// narrowConn is a connection whose streams take 64 KiB before they are read.
type narrowConn struct{ *grpc.ClientConn }

func narrow(t *testing.T, n *env.Namenode) narrowConn {
	t.Helper()
	cc, err := grpc.NewClient(n.Addr(), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithStaticStreamWindowSize(64<<10))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cc.Close() })
	return narrowConn{cc}
}

// watch begins to watch everything from a txid on.
func (c narrowConn) watch(t *testing.T, r *env.Raw, from uint64) pb.Namenode_WatchClient {
	t.Helper()
	st, err := pb.NewNamenodeClient(c).Watch(t.Context(), &pb.WatchRequest{Caller: r.Who, Path: "/", Recursive: true, FromTxid: from})
	if err == nil {
		_, err = st.Recv()
	}
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// Watchers that ask for all that is kept, and read nothing of it, do not hold up
// another that asks for as much and reads it.
func TestSilentWatchersHoldUpNoOther(t *testing.T) {
	n := env.Start(t)
	n.SetPatience(time.Hour)
	r := n.Raw(t, "a")
	from := r.TxID() + 1
	dir := "/" + strings.TrimSuffix(strings.Repeat(strings.Repeat("x", 200)+"/", 5), "/")
	mkdir := func(path string) {
		if _, err := r.NN.Mkdir(t.Context(), &pb.MkdirRequest{Call: r.CallInTurn(), Caller: r.Who, At: pb.At(path), Parents: true}); err != nil {
			t.Fatal(err)
		}
	}
	mkdir(dir)
	for i := range 300 { // a kilobyte each
		mkdir(fmt.Sprintf("%s/%d", dir, i))
	}
	mkdir("/last")
	silent := narrow(t, n)
	for range 100 {
		silent.watch(t, r, from)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	reading := narrow(t, n).watch(t, r, from)
	told := make(chan error, 1)
	go func() {
		for {
			resp, err := reading.Recv()
			if e := resp.GetEvents(); err != nil || len(e) > 0 && e[len(e)-1].GetPath() == "/last" {
				told <- err
				return
			}
		}
	}()
	select {
	case err := <-told:
		if err != nil {
			t.Fatal(err)
		}
	case <-ctx.Done():
		t.Fatal("the one that reads waits for those that do not")
	}
}

// Streams whose clients leave count as canceled, and not as faults of the namenode.
func TestStreamsOfWhoLeaves(t *testing.T) {
	t.Parallel()
	n := env.Start(t)
	r := n.Raw(t, "a")
	c := narrow(t, n)
	c.watch(t, r, 0)
	session, err := pb.NewNamenodeClient(c).Session(t.Context())
	if err == nil {
		err = session.Send(&pb.SessionRequest{Kind: &pb.SessionRequest_Hello{Hello: &pb.Hello{Caller: r.Who}}})
	}
	if err == nil {
		_, err = session.Recv()
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	for _, method := range []string{"watch", "session"} {
		env.Eventually(t, "the end of the "+method+" is counted", func() bool {
			return strings.Contains(n.Metrics(t), fmt.Sprintf("leasefs_call_errors_total{kind=\"CANCELED\",method=%q} 1\n", method))
		})
	}
	if strings.Contains(n.Metrics(t), `kind="INTERNAL"`) {
		t.Error("who leaves is counted as a fault")
	}
}

// A watcher that does not read for a while is cut off, and resumes where it was when it reads again.
func TestSlowWatcherGoesOn(t *testing.T) {
	t.Parallel()
	n := env.Start(t)
	n.SetPatience(200 * time.Millisecond)
	fs := n.Client(t)
	dir := "/" + strings.TrimSuffix(strings.Repeat(strings.Repeat("x", 200)+"/", 15), "/")
	if err := fs.MkdirAll(t.Context(), dir, 0o755); err != nil {
		t.Fatal(err)
	}
	w, err := n.Client(t, env.Named("slow"), func(c *client.Config) {
		c.DialOptions = append(c.DialOptions, grpc.WithStaticStreamWindowSize(64<<10))
	}).Watch(t.Context(), "/", client.WatchOptions{Recursive: true})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	const count = 100 // more than a stream takes unread
	for i := range count {
		if err := fs.Mkdir(t.Context(), fmt.Sprintf("%s/%d", dir, i), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	env.Eventually(t, "it is cut off", func() bool { return strings.Contains(n.Metrics(t), "\nleasefs_watchers 0\n") })
	for i := 0; i < count; {
		events, err := w.Next()
		if err != nil {
			t.Fatalf("after %d of %d: %v", i, count, err)
		}
		for _, e := range events {
			if want := fmt.Sprintf("%s/%d", dir, i); e.Path != want {
				t.Fatalf("number %d is %v of %s", i, e.Type, e.Path)
			}
			i++
		}
	}
}

// A watcher that reads nothing is cut off, and told why when it reads again; one
// that reads gets everything.
func TestSilentWatcherIsCutOff(t *testing.T) {
	t.Parallel()
	n := env.Start(t)
	n.SetPatience(10 * time.Second) // who reads may not seem silent because the machine stalls
	r := n.Raw(t, "a")
	silent, reading := narrow(t, n).watch(t, r, 0), narrow(t, n).watch(t, r, 0)
	seen := make(chan int, 1)
	go func() {
		count := 0
		for {
			resp, err := reading.Recv()
			if err != nil {
				break
			}
			count += len(resp.GetEvents())
			if e := resp.GetEvents(); len(e) > 0 && e[len(e)-1].GetPath() == "/last" {
				break
			}
		}
		seen <- count
	}()
	made := 0
	mkdir := func(path string) {
		if _, err := r.NN.Mkdir(t.Context(), &pb.MkdirRequest{Call: r.CallInTurn(), Caller: r.Who, At: pb.At(path)}); err != nil {
			t.Fatal(err)
		}
		made++
	}
	name := strings.Repeat("x", 200)
	env.Eventually(t, "the silent watcher is cut off", func() bool {
		for range 100 {
			mkdir(fmt.Sprintf("/%s%d", name, made))
		}
		return strings.Contains(n.Metrics(t), "\nleasefs_watchers 1\n")
	})
	mkdir("/last")
	if got := <-seen; got < made {
		t.Errorf("the one that reads got %d of %d events", got, made)
	}
	var err error
	for err == nil {
		_, err = silent.Recv()
	}
	if err = wire.FromStatus(err); !errors.Is(err, fserror.Deadline) {
		t.Errorf("the silent one: %v", err)
	}
}

// Who keeps leases alive and takes none of the answers is cut off, too.
func TestSilentKeeperIsCutOff(t *testing.T) {
	n := env.Start(t)
	n.SetPatience(200 * time.Millisecond)
	r := n.Raw(t, "a")
	st, err := pb.NewNamenodeClient(narrow(t, n)).KeepAlive(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	m := &pb.KeepAliveRequest{Caller: r.Who, Ids: make([]uint64, 50_000)} // the answer to each has more than 64 KiB
	for range 4 {
		if st.Send(m) != nil {
			break // it is cut off by now
		}
	}
	env.Eventually(t, "the silent keeper is cut off", func() bool {
		return strings.Contains(n.Metrics(t), "leasefs_call_errors_total{kind=\"DEADLINE\",method=\"keepalive\"} 1\n")
	})
	for err == nil {
		_, err = st.Recv()
	}
	if err := wire.FromStatus(err); !errors.Is(err, fserror.Deadline) {
		t.Errorf("it was told %v", err)
	}
}
