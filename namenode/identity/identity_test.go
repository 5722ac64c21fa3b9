package identity

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/proof"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// guarded is a guard that knows ann's token, and the context of a call that shows it.
func guarded(t testing.TB) (g *Guard, ctx context.Context, file string) {
	t.Helper()
	token := proof.NewToken()
	line, err := proof.Line(token, "ann")
	if err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(file, []byte(line+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	tokens, err := proof.OpenTokens(clock.System{}, file)
	if err != nil {
		t.Fatal(err)
	}
	g = New(Config{Tokens: tokens}, clock.System{}, slog.New(slog.DiscardHandler))
	one, other := net.Pipe()
	t.Cleanup(func() { _, _ = one.Close(), other.Close() })
	_, info, err := g.Creds(insecure.NewCredentials()).ServerHandshake(one)
	if err != nil {
		t.Fatal(err)
	}
	ctx = peer.NewContext(t.Context(), &peer.Peer{Addr: one.LocalAddr(), AuthInfo: info})
	return g, metadata.NewIncomingContext(ctx, metadata.Pairs(authorization, "Bearer "+token)), file
}

// TestHeldTooLate: a stream that begins while its proof is being taken back ends as well.
func TestHeldTooLate(t *testing.T) {
	g, ctx, file := guarded(t)
	c, err := g.Prove(ctx)
	if err != nil || c.User != "ann" {
		t.Fatalf("%v, %v", c, err)
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := g.Check(ctx); err != nil { // before it is held
		t.Fatal(err)
	}
	held, done := g.Hold(ctx, c)
	defer done()
	if err := g.Check(ctx); err != nil {
		t.Fatal(err)
	}
	if why := context.Cause(held); fserror.KindOf(why) != fserror.Retry || fserror.ReasonOf(why) != fserror.ReasonProof {
		t.Errorf("it lives on: %v", why)
	}
	if _, err := g.Prove(ctx); !errors.Is(err, fserror.Permission) {
		t.Errorf("proven again: %v", err)
	}
	done()
	if len(g.streams) != 0 {
		t.Error("the stream is still known")
	}
}

func TestHeaders(t *testing.T) {
	g, ctx, _ := guarded(t)
	md, _ := metadata.FromIncomingContext(ctx)
	right := md.Get(authorization)[0]
	for _, values := range [][]string{{}, {""}, {"Bearer"}, {"Bearer "}, {right[7:]}, {"Basic " + right[7:]}, {right, right}, {right + " "}} {
		bad := metadata.NewIncomingContext(ctx, metadata.MD{authorization: values})
		if c, err := g.Prove(bad); !errors.Is(err, fserror.Permission) {
			t.Errorf("%d headers: %v, %v", len(values), c, err)
		}
	}
	if _, err := g.Prove(metadata.NewIncomingContext(ctx, metadata.Pairs(authorization, "bearer "+right[7:]))); err != nil {
		t.Errorf("the scheme is written otherwise: %v", err)
	}
	if _, err := g.Prove(metadata.NewIncomingContext(t.Context(), md)); !errors.Is(err, fserror.Permission) {
		t.Errorf("no connection: %v", err)
	}
}

// TestExpiry: a proof that was good for a time ends with it, without a change of a file.
func TestExpiry(t *testing.T) {
	g, ctx, _ := guarded(t)
	fake := new(clock.Fake)
	g.clock = fake
	c, err := g.Prove(ctx)
	if err != nil {
		t.Fatal(err)
	}
	short := *c
	short.until, short.sum = fake.Wall().Add(time.Minute), &[32]byte{}
	held, done := g.Hold(ctx, &short)
	defer done()
	_ = g.Check(ctx) // there is no error
	if held.Err() != nil {
		t.Fatal("it ended too soon")
	}
	fake.Advance(2 * time.Minute)
	_ = g.Check(ctx)
	if held.Err() == nil {
		t.Error("it outlives its proof")
	}
}

// BenchmarkProven is what each carried call costs: whether it is its stream's user's.
func BenchmarkProven(b *testing.B) {
	g, ctx, _ := guarded(b)
	c, err := g.Prove(ctx)
	if err != nil {
		b.Fatal(err)
	}
	ctx, done := g.Hold(ctx, c)
	defer done()
	req := &pb.CreateRequest{Caller: &pb.Caller{User: "ann"}}
	for b.Loop() {
		if err := Of(ctx).Says(req); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkProve is what a call outside of a stream costs.
func BenchmarkProve(b *testing.B) {
	g, ctx, _ := guarded(b)
	for b.Loop() {
		if _, err := g.Prove(ctx); err != nil {
			b.Fatal(err)
		}
	}
}

func TestSays(t *testing.T) {
	ann, bob := &pb.Caller{User: "ann"}, &pb.Caller{User: "bob"}
	hello := func(c *pb.Caller) *pb.SessionRequest {
		return &pb.SessionRequest{Kind: &pb.SessionRequest_Hello{Hello: &pb.Hello{Caller: c}}}
	}
	for _, c := range []struct {
		who     *Caller
		request any
		refused bool
	}{
		{nil, &pb.StatRequest{Caller: bob}, false},
		{&Caller{User: "ann"}, &pb.StatRequest{Caller: ann}, false},
		{&Caller{User: "ann"}, &pb.StatRequest{Caller: bob}, true},
		{&Caller{User: "ann"}, &pb.StatRequest{Caller: &pb.Caller{}}, true},
		{&Caller{User: "ann"}, hello(ann), false},
		{&Caller{User: "ann"}, hello(bob), true},
		{&Caller{User: "ann"}, &pb.KeepAliveRequest{}, false}, // it comes after one in somebody's name
		{&Caller{User: "ann"}, &pb.KeepAliveRequest{Caller: bob}, true},
		{&Caller{User: "ann"}, &pb.CloseRequest{}, false},
	} {
		if err := c.who.Says(c.request); errors.Is(err, fserror.Permission) != c.refused || err == nil == c.refused {
			t.Errorf("%v, %v: %v", c.who, c.request, err)
		}
	}
}
