package identity

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"log/slog"

	"google.golang.org/grpc/metadata"

	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode/identity/issuer"
	"github.com/leasefs/leasefs/test/env/issuerenv"
)

// ahead is the machine's clock with another time of day.
type ahead struct {
	clock.System
	by atomic.Int64
}

func (a *ahead) Wall() time.Time { return a.System.Wall().Add(time.Duration(a.by.Load())) }

// TestIssuersToken: a stream ends with the token of an issuer that it began with, and who
// shows a renewed one is proven again; groups are the token's, and none if it has none.
func TestIssuersToken(t *testing.T) {
	g, ctx, _ := guarded(t)
	is, wall := issuerenv.New(t), new(ahead)
	var err error
	if g.cfg.Issuers, err = issuer.New(wall, issuer.Config{URL: is.URL, Audiences: []string{issuerenv.Audience}, UserPrefix: "oidc/"}); err != nil {
		t.Fatal(err)
	}
	g.clock = wall
	run, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = g.cfg.Issuers.Run(run, slog.New(slog.DiscardHandler)) }()
	defer func() { cancel(); <-ended }()
	show := func(life time.Duration) (*Caller, error) {
		token := is.Token("ann", map[string]any{"exp": time.Now().Add(life).Unix()})
		return g.Prove(metadata.NewIncomingContext(ctx, metadata.Pairs(authorization, "Bearer "+token)))
	}
	c, err := show(time.Hour)
	if err != nil || c.User != "oidc/ann" || c.Groups == nil || len(c.Groups) != 0 || !c.Foreign() {
		t.Fatalf("%+v, %v", c, err)
	}
	if own, err := g.Prove(ctx); err != nil || own.User != "ann" || own.Foreign() {
		t.Errorf("a token of the file beside it: %+v, %v", own, err)
	}
	held, done := g.Hold(ctx, c)
	defer done()
	_ = g.Check(ctx) // the first keys are news, and there is no error
	if held.Err() != nil {
		t.Fatal("it ended too soon")
	}
	wall.by.Store(int64(2 * time.Hour))
	_ = g.Check(ctx)
	if why := context.Cause(held); fserror.KindOf(why) != fserror.Retry {
		t.Errorf("it outlives its token: %v", why)
	}
	if _, err := show(time.Hour); !errors.Is(err, fserror.Permission) {
		t.Errorf("an old token: %v", err)
	}
	if c, err := show(3 * time.Hour); err != nil || c.User != "oidc/ann" {
		t.Errorf("a renewed token: %+v, %v", c, err)
	}
}
