package namenode_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fserror/wire"
	"github.com/leasefs/leasefs/internal/vfs"
	"github.com/leasefs/leasefs/namenode"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
	"github.com/leasefs/leasefs/test/env"
	"github.com/leasefs/leasefs/test/env/s3env"
)

// A connection on which a client has not asked anything yet (they connect ahead
// of need) does not hold up the end of the namenode.
func TestStopWithUnusedConnections(t *testing.T) {
	t.Parallel()
	n := env.Start(t)
	// A server that waits for them does so for five seconds, each time; a machine that
	// stalls holds up some stop, and not each.
	const most = 4500 * time.Millisecond
	took := most + 1
	for range 10 {
		if took = stopUnused(t, n); took <= most {
			return
		}
		n.Start(t)
	}
	t.Errorf("each stop took long, the last one %s", took)
}

// stopUnused tells how long a namenode takes to stop that has connections nobody uses.
func stopUnused(t *testing.T, n *env.Namenode) time.Duration {
	t.Helper()
	for range 3 {
		c, err := net.Dial("tcp", n.HTTPAddr())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	// Connections are accepted in their order: the three are known after this.
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+n.HTTPAddr()+"/healthz", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	began := time.Now()
	n.Stop(t)
	return time.Since(began)
}

// A stream that the namenode's end breaks off is not one that its client has
// broken off: it says that another namenode is to be asked. What a check was at
// is no damage.
func TestStopBreaksStreamsOff(t *testing.T) {
	server := s3env.Start(t, s3env.Versitygw)
	server.SetEnv(t)
	proxy := server.Proxy(t)
	n := env.Start(t, func(c *namenode.Config) { c.Blocks = proxy.URL("here") })
	r := n.Raw(t, "r")
	w := r.Create("/f")
	b, err := r.PutBlock(w, []byte("a block"))
	if err == nil {
		err = r.Commit(w, 0, b, "")
	}
	if err != nil {
		t.Fatal(err)
	}
	var once sync.Once
	reached := make(chan struct{})
	proxy.Set(func(req *http.Request, body []byte, send func([]byte) *s3env.Reply) *s3env.Reply {
		if req.Method != http.MethodGet || !strings.Contains(req.URL.Path, "/blocks/") {
			return send(body)
		}
		once.Do(func() { close(reached) })
		<-req.Context().Done()
		return nil
	})
	s, err := r.Admin.Fsck(t.Context(), &pb.FsckRequest{Caller: r.Who, Blocks: true})
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-reached:
	case <-s.Context().Done():
		t.Fatal("the check ended before it came to the block")
	}
	n.Stop(t)
	m, err := s.Recv()
	if err = wire.FromStatus(err); !errors.Is(err, fserror.NotActive) {
		t.Errorf("%v, %v; want %v", m, err, fserror.NotActive)
	}
}

// opened tells of each file that is opened.
type opened struct {
	vfs.FS
	tell func(name string)
}

func (o opened) Open(name string) (vfs.File, error) {
	o.tell(name)
	return o.FS.Open(name)
}

// A namenode that is asked to end while it loads an image does so.
func TestStopWhileAnImageLoads(t *testing.T) {
	n := env.Start(t)
	r := n.Raw(t, "r")
	r.Create("/f")
	if _, err := r.Admin.Checkpoint(t.Context(), &pb.CheckpointRequest{Caller: r.Who}); err != nil {
		t.Fatal(err)
	}
	n.Stop(t)
	ctx, cancel := context.WithCancel(t.Context())
	cfg := n.Config()
	cfg.FS = opened{vfs.OS(), func(name string) {
		if strings.HasSuffix(name, ".img") {
			cancel()
		}
	}}
	if s, err := namenode.Start(ctx, cfg); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, %v", s, err)
	}
}
