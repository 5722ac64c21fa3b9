package scenarios_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/fserror"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
	"github.com/leasefs/leasefs/test/env"
)

// opening is a call of client A that opens /d/f, which has "old".
type opening struct {
	method  string
	call    func(ctx context.Context, a *client.FS) error
	content string // what /d/f has when the call was carried out
}

func openings() map[string]opening {
	of := func(_ any, err error) error { return err }
	return map[string]opening{
		"append": {"Append", func(ctx context.Context, a *client.FS) error { return of(a.Append(ctx, "/d/f")) }, "old"},
		"lock":   {"Append", func(ctx context.Context, a *client.FS) error { return of(a.Lock(ctx, "/d/f", client.LockOptions{})) }, "old"},
		"create": {"Create", func(ctx context.Context, a *client.FS) error {
			return of(a.Create(ctx, "/d/f", client.WithOverwrite()))
		}, ""},
	}
}

// carriedOut makes the call, which is carried out, and whose answer is lost when its caller
// gives it up.
func (o opening) carriedOut(t *testing.T, a *client.FS, wire *env.Wire) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	wire.Set(func(m string, _ any, send func() error) error {
		err := send()
		if m == o.method {
			cancel()
			err = errors.Join(err, env.ErrLost)
		}
		return err
	})
	err := o.call(ctx, a)
	wire.Set(nil)
	wantKind(t, err, fserror.Canceled)
}

// Nobody has a file that was opened by a call whose answer was lost when its caller gave it up: its
// lease is given back at once, to the same client and to others, though no time passes.
func TestLostOpenIsGivenBack(t *testing.T) {
	t.Parallel()
	for name, o := range openings() {
		next := map[string]func(t *testing.T, a, b *client.FS) *client.Writer{
			"append": func(t *testing.T, a, _ *client.FS) *client.Writer { return appendTo(t, a, "/d/f") },
			"create": func(t *testing.T, a, _ *client.FS) *client.Writer {
				return create(t, a, "/d/f", client.WithOverwrite())
			},
			"another": func(t *testing.T, _, b *client.FS) *client.Writer {
				return appendTo(t, b, "/d/f", client.WithWait(time.Minute))
			},
			"another, once the client has ended": func(t *testing.T, a, b *client.FS) *client.Writer {
				must(t, a.Close())
				return appendTo(t, b, "/d/f")
			},
		}
		for who, open := range next {
			t.Run(name+"/"+who, func(t *testing.T) {
				t.Parallel()
				n, _ := frozen(t)
				a, wire := n.Wired(t, env.Named("A"))
				b := n.Client(t, env.Named("B"))
				must(t, b.WriteFile(t.Context(), "/d/f", []byte("old"), client.WithParents()))
				o.carriedOut(t, a, wire)
				w := open(t, a, b)
				must(t, w.Close())
				want := o.content
				if who == "create" {
					want = ""
				}
				wantContent(t, b, "/d/f", want)
			})
		}
	}
}

// The namenode is gone, and another one begins, before the lease is given back.
func TestLostOpenAndRestart(t *testing.T) {
	t.Parallel()
	for name, o := range openings() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, _ := frozen(t)
			a, wire := n.Wired(t, env.Named("A"))
			must(t, a.WriteFile(t.Context(), "/d/f", []byte("old"), client.WithParents()))
			var cut sync.Once
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			wire.Set(func(m string, _ any, send func() error) error {
				err := send()
				if m == o.method {
					cut.Do(wire.Cut)
					cancel()
					return env.ErrLost
				}
				return err
			})
			wantKind(t, o.call(ctx, a), fserror.Canceled)
			n.Restart(t)
			b := n.Client(t, env.Named("B"))
			_, err := b.Append(t.Context(), "/d/f")
			wantHeld(t, err, "A")
			wire.Set(nil)
			wire.Mend()
			must(t, appendTo(t, b, "/d/f", client.WithWait(time.Minute)).Close())
			wantContent(t, b, "/d/f", o.content)
		})
	}
}

// A request that comes when its caller has given it up for long, and has been told of that, changes
// nothing, also where another namenode serves since then.
func TestLostOpenComesLate(t *testing.T) {
	t.Parallel()
	for name, o := range openings() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, _ := frozen(t)
			a, wire := n.Wired(t, env.Named("A"))
			must(t, a.WriteFile(t.Context(), "/d/f", []byte("old"), client.WithParents()))
			var late proto.Message
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			wire.Set(func(m string, req any, send func() error) error {
				switch m {
				case "Renew":
					return nil // it is not to be held
				case o.method:
					late = proto.Clone(req.(proto.Message)) //nolint:errcheck,forcetypeassert // it is one
					wire.Hold(env.ToNamenode)
				}
				return send()
			})
			var err error
			var call sync.WaitGroup
			call.Go(func() { err = o.call(ctx, a) })
			env.Eventually(t, "the request is on its way", func() bool { return wire.Holds(env.ToNamenode) })
			cancel()
			call.Wait()
			wantKind(t, err, fserror.Canceled)
			wire.Cut() // and what was held is lost
			var cancelled atomic.Bool
			wire.Set(func(m string, _ any, send func() error) error {
				err := send()
				if m == "CancelOpen" && err == nil {
					cancelled.Store(true)
				}
				return err
			})
			wire.Release()
			wire.Mend()
			env.Eventually(t, "the call is cancelled", cancelled.Load)
			must(t, a.WriteFile(t.Context(), "/d/f", []byte("new"), client.WithOverwrite()))
			for _, restart := range []bool{false, true} {
				if restart {
					n.Restart(t)
				}
				raw := n.Raw(t, "late")
				var err error
				switch req := late.(type) {
				case *pb.AppendRequest:
					_, err = raw.NN.Append(t.Context(), req)
				case *pb.CreateRequest:
					_, err = raw.NN.Create(t.Context(), req)
				}
				wantKind(t, err, fserror.InvalidArgument)
				wantContent(t, a, "/d/f", "new")
				wantLeased(t, a, "A")
			}
		})
	}
}

// Hundreds of them are given back once the namenode answers again.
func TestManyLostOpens(t *testing.T) {
	t.Parallel()
	const many = 300
	n, _ := frozen(t)
	a, wire := n.Wired(t, env.Named("A"))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var sent sync.WaitGroup
	sent.Add(many)
	wire.Set(func(m string, _ any, send func() error) error {
		switch m {
		case "CancelOpen":
			return env.ErrLost
		case "Create":
			err := send()
			sent.Done()
			<-ctx.Done()
			return errors.Join(err, env.ErrLost)
		}
		return send()
	})
	var all sync.WaitGroup
	for i := range many {
		all.Go(func() {
			if _, err := a.Create(ctx, fmt.Sprint("/f", i)); !errors.Is(err, fserror.Canceled) {
				t.Errorf("create %d: %v", i, err)
			}
		})
	}
	sent.Wait()
	cancel()
	all.Wait()
	b := n.Client(t, env.Named("B"))
	if l := leases(t, b, "A"); len(l) != 1 || l[0].FileCount != many {
		t.Errorf("A has %v, want one over %d files", l, many)
	}
	wire.Set(nil)
	env.Eventually(t, "all are given back", func() bool { return len(leases(t, b, "A")) == 0 })
}

// Only what the call itself has opened is closed, once.
func TestCancelOpen(t *testing.T) {
	t.Parallel()
	n, _ := frozen(t)
	a, b := n.Raw(t, "A"), n.Client(t, env.Named("B"))
	call := a.Call()
	_, err := a.NN.Create(t.Context(), &pb.CreateRequest{Call: call, Caller: a.Who, At: pb.At("/f")})
	must(t, err)
	wantOpen(t, b, "/f", "A")
	cancelOpen := func() {
		t.Helper()
		_, err := a.NN.CancelOpen(t.Context(), &pb.CancelOpenRequest{Call: call, Caller: a.Who})
		must(t, err)
	}
	cancelOpen()
	wantLeased(t, b, "A")
	if _, err := a.Append("/f"); err != nil {
		t.Fatal(err)
	}
	cancelOpen()
	wantOpen(t, b, "/f", "A")
	n.Restart(t)
	cancelOpen()
	wantOpen(t, n.Client(t, env.Named("C")), "/f", "A")
}
