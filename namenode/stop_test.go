package namenode_test

import (
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/leasefs/leasefs/testenv"
)

// A connection on which a client has not asked anything yet (they connect ahead
// of need) does not hold up the end of the namenode.
func TestStopWithUnusedConnections(t *testing.T) {
	t.Parallel()
	n := testenv.Start(t)
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
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("the stop took %s", took)
	}
}
