package e2e_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/leasefs/leasefs/test/env/s3env"
)

// TestHATakeOverWithoutTheStore: the store takes connections and answers nothing
// while the active namenode is killed. Another takes over in time; names and
// small files work; blocks do when the store is back.
func TestHATakeOverWithoutTheStore(t *testing.T) {
	t.Parallel()
	ctx := deadline(t, 2*time.Minute)
	server := s3env.Start(t, s3env.Versitygw)
	proxy := server.Proxy(t)
	e := startFleet(ctx, t, func(c *fleetConfig) { c.n, c.blocks, c.env = 2, proxy.URL(prefixOf(t)), server.Env() })
	big := strings.Repeat("0123456789abcdef", 200_000) // over the largest tail
	e.write(ctx, big, "create", "/big")
	a := e.settled(ctx)
	w, done := e.keepWriting(ctx, "/log")
	goesOn(ctx, w)
	proxy.Set(func(r *http.Request, _ []byte, _ func([]byte) *s3env.Reply) *s3env.Reply {
		<-r.Context().Done()
		return nil
	})
	a.kill()
	b := e.successor(ctx, a)
	goesOn(ctx, w)
	e.run(ctx, "mkdir", "/d")
	e.write(ctx, "small", "create", "/d/small")
	if got := e.run(ctx, "cat", "/d/small"); got != "small" {
		t.Errorf("%q", got)
	}
	if !strings.Contains(b.err.String(), "taking over without it") {
		t.Errorf("its log says nothing of the store: %s", b.err)
	}
	proxy.Set(nil)
	b.prints(ctx, b.err, "that the store answers", func(s string) bool { return strings.Contains(s, "the block store answers again") })
	done()
	e.write(ctx, big, "create", "/again")
	for _, path := range []string{"/big", "/again"} {
		if got := e.run(ctx, "cat", path); got != big {
			t.Errorf("%s: %d bytes of %d, or others", path, len(got), len(big))
		}
	}
	a.start(ctx)
	e.settled(ctx)
	e.fsck(ctx)
}
