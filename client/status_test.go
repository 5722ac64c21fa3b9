package client

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// statusFake is a namenode that says after a while how it is.
type statusFake struct {
	pb.UnimplementedAdminServer
	after time.Duration
	says  *pb.StatusResponse
}

func (f *statusFake) Status(ctx context.Context, _ *pb.StatusRequest) (*pb.StatusResponse, error) {
	select {
	case <-time.After(f.after):
		return f.says, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// TestStatusEndsInTime: all of it takes one limit, and an active namenode that was not
// listed is asked while a listed one is silent.
func TestStatusEndsInTime(t *testing.T) {
	t.Parallel()
	const limit = 3 * time.Second
	standby := func(active string) *pb.StatusResponse {
		return &pb.StatusResponse{Role: "standby", ActiveAddress: active}
	}
	active := &pb.StatusResponse{Role: "active"}
	for _, c := range []struct {
		name  string
		nodes map[string]*statusFake
		took  time.Duration
		want  []string // address and role of each; a role "" is of one that has not answered
	}{
		{
			"the active one is not listed, a listed one is silent",
			map[string]*statusFake{"a": {after: time.Hour}, "b": {after: time.Second, says: standby("c")}, "c": {after: time.Second, says: active}},
			limit, []string{"a ", "b standby", "c active"},
		}, {
			"it is silent, too",
			map[string]*statusFake{"a": {after: time.Hour}, "b": {after: time.Second, says: standby("c")}, "c": {after: time.Hour}},
			limit, []string{"a ", "b standby", "c "},
		}, {
			"who is named active is not, and a listed one is",
			map[string]*statusFake{"a": {after: 2 * time.Second, says: active}, "b": {after: time.Second, says: standby("c")}, "c": {after: time.Hour}},
			2 * time.Second, []string{"a active", "b standby"},
		}, {
			"two are named",
			map[string]*statusFake{"a": {says: standby("c")}, "b": {after: time.Second, says: standby("d")}, "c": {after: 2 * time.Second, says: standby("d")}, "d": {after: time.Second, says: active}},
			2 * time.Second, []string{"a standby", "b standby", "c standby", "d active"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				n := &network{lis: map[string]*pipes{}}
				for address, f := range c.nodes {
					l, s := newPipes(), grpc.NewServer()
					n.lis[address] = l
					pb.RegisterAdminServer(s, f)
					go func() { _ = s.Serve(l) }()
					defer s.Stop()
				}
				began := time.Now()
				list, err := QueryStatus(t.Context(), Config{
					Namenodes: []string{"a", "b"}, User: "tester", Timeout: limit,
					DialOptions: []grpc.DialOption{grpc.WithContextDialer(n.dial)},
				})
				check(t, err)
				if took := time.Since(began); took != c.took {
					t.Errorf("it took %s, want %s", took, c.took)
				}
				if len(list) != len(c.want) {
					t.Fatalf("%+v, want %q", list, c.want)
				}
				for i, s := range list {
					if got := s.Address + " " + s.Role; got != c.want[i] || (s.Err == nil) == (s.Role == "") {
						t.Errorf("%q (%v), want %q", got, s.Err, c.want[i])
					}
				}
			})
		})
	}
}
