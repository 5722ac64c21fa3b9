package identity

import (
	"context"
	"sync"
	"testing"

	"google.golang.org/grpc/peer"

	"github.com/leasefs/leasefs/internal/fserror"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// members are the groups that a machine has users in.
type members struct {
	mu sync.Mutex
	of map[string][]string
}

func (m *members) groups(user string) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.of[user]
}

func (m *members) set(user string, groups ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.of[user] = groups
}

// TestCheckGroups: a stream ends when the machine has one of its users in a group no more, and with
// it the others of its connection; not when a token names the groups.
func TestCheckGroups(t *testing.T) {
	g, ctx, _ := guarded(t)
	m := &members{of: map[string][]string{"ann": {"crew", "staff"}, "bob": {"crew"}, "gw": {"supers"}}}
	g.Knows(People{Groups: m.groups, Superuser: func() (user, group string) { return "root", "supers" }})
	elsewhere := func() context.Context { return peer.NewContext(t.Context(), &peer.Peer{AuthInfo: new(memory)}) }
	streams := map[string]context.Context{}
	hold := func(ctx context.Context, name string, c *Caller) {
		held, done := g.Hold(ctx, c)
		t.Cleanup(done)
		streams[name] = held
	}
	own := func(user string) *Caller { return &Caller{User: user, guard: g} }
	hold(elsewhere(), "ann's", own("ann"))
	hold(elsewhere(), "ann's, by a token", &Caller{User: "ann", Groups: []string{"crew"}, guard: g})
	hold(elsewhere(), "bob's", own("bob"))
	hold(ctx, "a gateway's", own("gw"))
	hold(ctx, "the gateway's session", own("gw"))
	hold(t.Context(), "trusted", nil)
	hold(t.Context(), "trusted, bob's", nil)
	check := func(when string, ended ...string) {
		t.Helper()
		if err := g.CheckGroups(ctx); err != nil {
			t.Fatal(err)
		}
		for _, name := range ended {
			if held := streams[name]; Ended(held) == nil || fserror.KindOf(context.Cause(held)) != fserror.Retry {
				t.Errorf("%s, %s stream ended with %v", when, name, context.Cause(held))
			}
			delete(streams, name)
		}
		for name, held := range streams {
			if held.Err() != nil {
				t.Errorf("%s, %s stream ended with %v", when, name, context.Cause(held))
			}
		}
	}
	for name, user := range map[string]string{"a gateway's": "ann", "trusted": "ann", "trusted, bob's": "bob"} {
		who := &pb.Caller{User: user}
		if name == "a gateway's" {
			who.RealUser = "gw"
		}
		if err := Says(streams[name], &pb.StatRequest{Caller: who}); err != nil {
			t.Fatal(err)
		}
	}
	check("at first")
	m.set("ann", "staff", "crew")
	check("in another order")
	m.set("ann", "staff")
	check("out of a group", "ann's", "a gateway's", "the gateway's session", "trusted")
	m.set("bob", "crew", "staff")
	check("in one more")
	m.set("bob", "crew")
	check("out of that one", "bob's", "trusted, bob's")
}

// TestRuleGoesMeanwhile: who may act for another just before that is known of its stream may no
// more if the rule goes in between: the end of streams that need it has passed.
func TestRuleGoesMeanwhile(t *testing.T) {
	g, ctx, _ := guarded(t)
	asked := 0
	g.Knows(People{
		Superuser: func() (user, group string) { return "root", "supers" },
		Groups: func(user string) []string {
			if asked++; user == "gw" && asked <= 2 { // when it is held, and when it is asked for
				return []string{"supers"}
			}
			return nil
		},
	})
	held, done := g.Hold(ctx, &Caller{User: "gw", guard: g})
	defer done()
	if err := Of(held).Is("ann"); fserror.KindOf(err) != fserror.Permission {
		t.Errorf("the rule has gone: %v", err)
	}
}
