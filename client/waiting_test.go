package client

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/namecall"
)

// notes gathers what OnWait is told.
type notes struct {
	mu  sync.Mutex
	all []Waiting
}

func (n *notes) take(w Waiting) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.all = append(n.all, w)
}

func (n *notes) list() []Waiting {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.all)
}

// refuseUntilTold answers calls of a method with the errors in turn, each until
// so many notes were taken, and then lets them through.
func refuseUntilTold(f *fake, n *notes, method string, errs ...*fserror.Error) {
	f.set(func() {
		f.before = func(m string, _ any) error {
			if told := len(n.list()); m == method && told < len(errs) {
				return errs[told]
			}
			return nil
		}
	})
}

var (
	safeMode = &fserror.Error{Kind: fserror.Retry, Message: "the namenode is in safe mode", RetryAfter: 20 * time.Millisecond}
	overload = &fserror.Error{Kind: fserror.Retry, Message: "overloaded", RetryAfter: 20 * time.Millisecond}
	standby  = &fserror.Error{Kind: fserror.NotActive, Message: "this namenode is a standby"}
)

// A call tells each cause that it waits for, once, in words.
func TestACallTellsWhatItWaitsFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, n := newFake(), new(notes)
		fs := start(t, f, func(c *Config) { c.OnWait, c.Timeout = n.take, MaxTimeout })
		refuseUntilTold(f, n, "Mkdir", safeMode, overload, standby)
		check(t, fs.Mkdir(t.Context(), "/d", 0o755))
		want := []struct {
			kind fserror.Kind
			text string
		}{
			{fserror.Retry, "the namenode is in safe mode"},
			{fserror.Retry, "overloaded"},
			{fserror.NotActive, "no namenode is active at nn (this namenode is a standby)"},
		}
		got := n.list()
		if len(got) != len(want) {
			t.Fatalf("told %d times: %v", len(got), got)
		}
		for i, w := range got {
			if w.Op != "mkdir" || w.Path != "/d" || w.Limit != MaxTimeout || w.For < namecall.WaitNote || w.Cause.Kind != want[i].kind || w.Cause.Error() != want[i].text {
				t.Errorf("told %+v, cause %v", w, w.Cause)
			}
		}
		// Another call that waits for the same tells nothing so soon after.
		served := time.Now().Add(namecall.WaitNote + 200*time.Millisecond)
		f.set(func() {
			f.before = func(m string, _ any) error {
				if m == "Mkdir" && time.Now().Before(served) {
					return safeMode
				}
				return nil
			}
		})
		check(t, fs.Mkdir(t.Context(), "/e", 0o755))
		if more := n.list(); len(more) != len(want) {
			t.Errorf("told again: %+v", more[len(want):])
		}
	})
}

// While New looks for a namenode it tells so, and again if there is one that is
// not active.
func TestNewTellsWhatItWaitsFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := new(notes)
		w := new(network)
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		told := errors.New("told")
		_, err := New(ctx, Config{
			Namenodes: []string{"nn1", "nn2"}, User: "tester", Timeout: MaxTimeout,
			DialOptions: []grpc.DialOption{grpc.WithContextDialer(w.dial)},
			OnWait:      func(w Waiting) { n.take(w); cancel(told) },
		})
		wantKind(t, err, fserror.Unavailable)
		got := n.list()
		if len(got) != 1 || got[0].Op != "connect" || got[0].Path != "" || got[0].Cause.Kind != fserror.Unavailable ||
			got[0].Cause.Error() != "no namenode answers at nn1, nn2 (connection refused)" {
			t.Errorf("told %+v", got)
		}
	})
}

// Watchers wait without end, streams of answers as calls do; both tell.
func TestStreamsTellWhatTheyWaitFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net, f, n := new(network), newFake(), new(notes)
		stop := net.serve("nn", f)
		fs := connect(t, net, f, func(c *Config) { c.OnWait, c.Timeout = n.take, MaxTimeout })
		stop()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		w := &Watcher{f: fs.engine, path: "/w", ctx: ctx, cancel: cancel, started: true}
		for len(n.list()) == 0 { // as Next does
			if _, err := w.receive(); err == nil {
				t.Fatal("nobody is there, and there was an answer")
			} else if err := w.again(err); err != nil {
				t.Fatal(err)
			}
		}
		got := n.list()
		if len(got) != 1 || got[0].Op != "watch" || got[0].Path != "/w" || got[0].Limit != 0 || !strings.HasPrefix(got[0].Cause.Error(), "no namenode answers at nn (") {
			t.Errorf("told %+v", got)
		}
	})
}

// What waits for the block store says that.
func TestABlockTellsThatItWaitsForTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, n := newFake(), new(notes)
		f.put = func(int) int {
			if len(n.list()) == 0 {
				return http.StatusServiceUnavailable
			}
			return 0
		}
		fs := start(t, f, func(c *Config) { c.OnWait, c.Timeout = n.take, MaxTimeout })
		want := put(t, fs, "/a", 300<<10)
		got := n.list()
		if len(got) != 1 || got[0].Path != "/a" || got[0].Cause.Kind != fserror.Unavailable || !strings.HasPrefix(got[0].Cause.Error(), "the block store does not serve (") {
			t.Errorf("told %+v", got)
		}
		f.set(func() {
			f.get = func(int, blockstore.Key) int {
				if len(n.list()) == 1 {
					return http.StatusServiceUnavailable
				}
				return 0
			}
		})
		fs2 := start(t, f, func(c *Config) { c.OnWait, c.Timeout, c.Client = n.take, MaxTimeout, "other" })
		if back, err := fs2.ReadFile(t.Context(), "/a"); err != nil || len(back) != len(want) {
			t.Fatal(err)
		}
		if got := n.list(); len(got) != 2 || got[1].Op != "read" || got[1].Path != "/a" {
			t.Errorf("told %+v", got)
		}
	})
}
