package namenode_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/leasefs/leasefs/fserror"
	"github.com/leasefs/leasefs/fserror/wire"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
	"github.com/leasefs/leasefs/testenv"
)

// A watcher that reads nothing is cut off, and told why when it reads again; one
// that reads gets everything.
func TestSilentWatcherIsCutOff(t *testing.T) {
	n := testenv.Start(t)
	n.SetPatience(200 * time.Millisecond)
	r := n.Raw(t, "a")
	watch := func() pb.Namenode_WatchClient {
		cc, err := grpc.NewClient(n.Addr(), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithStaticStreamWindowSize(64<<10))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cc.Close() })
		st, err := pb.NewNamenodeClient(cc).Watch(t.Context(), &pb.WatchRequest{Caller: r.Who, Path: "/", Recursive: true})
		if err == nil {
			_, err = st.Recv()
		}
		if err != nil {
			t.Fatal(err)
		}
		return st
	}
	silent, reading := watch(), watch()
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
		if _, err := r.NN.Mkdir(t.Context(), &pb.MkdirRequest{Call: r.Call(), Caller: r.Who, Path: path}); err != nil {
			t.Fatal(err)
		}
		made++
	}
	name := strings.Repeat("x", 200)
	testenv.Eventually(t, "the silent watcher is cut off", func() bool {
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
