package s3_test

import (
	"crypto/rand"
	"net/http"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/blockstore/s3"
	"github.com/leasefs/leasefs/test/env/blocktest"
	"github.com/leasefs/leasefs/test/env/s3env"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open opens a store of a new namespace at the URL, with pauses too short to
// notice.
func open(t *testing.T, server *s3env.Server, url string, mods ...func(*s3.Config)) *s3.Store {
	t.Helper()
	loc, err := s3.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	cfg := s3.Config{Location: loc, Credentials: server.Credentials(), MaxBackoff: time.Microsecond}
	_, _ = rand.Read(cfg.NamespaceID[:])
	for _, mod := range mods {
		mod(&cfg)
	}
	store, err := s3.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return store
}

// client is an HTTP client that leaves nothing behind.
func client(t *testing.T) *http.Client {
	tr := &http.Transport{DisableCompression: true}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

// TestServers runs what needs a real server on each: one of a kind for all, since
// SeaweedFS works for seconds until it answers.
func TestServers(t *testing.T) {
	tests := []struct {
		name string
		test func(*testing.T, *s3env.Server)
	}{
		{"Conformance", conformance},
		{"Faults", faults},
		{"Parts", parts},
		{"WrongSettings", wrongSettings},
		{"ClockOff", clockOff},
		{"Environment", environment},
		{"ForeignNames", foreignNames},
		{"ManyBlocks", manyBlocks},
		{"ProbeLeavesNothing", probeLeavesNothing},
		{"Gone", gone}, // the last: it kills the server
	}
	for _, name := range s3env.Servers() {
		t.Run(name, func(t *testing.T) {
			server := s3env.Start(t, name)
			for _, c := range tests {
				t.Run(c.name, func(t *testing.T) { c.test(t, server) })
			}
		})
	}
}

func conformance(t *testing.T, server *s3env.Server) {
	blocktest.Run(t, func(t *testing.T) blocktest.Harness {
		return blocktest.Harness{Store: open(t, server, server.URL("some/where")), Client: client(t)}
	})
	blocktest.RunObjects(t, func(t *testing.T) (one, another blockstore.Objects) {
		var id [16]byte
		_, _ = rand.Read(id[:])
		same := func(c *s3.Config) { c.NamespaceID = id }
		return open(t, server, server.URL("some/where"), same), open(t, server, server.URL("some/where"), same)
	})
}
