package client

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"github.com/leasefs/leasefs/internal/fserror"
)

// dnsError is what dialing an address fails with if its name is looked up in vain.
func dnsError(address string, e net.DNSError) error {
	e.Name, _, _ = net.SplitHostPort(address)
	e.Server = "192.0.2.53:53"
	return &net.OpError{Op: "dial", Net: "tcp", Err: &e}
}

func missingName(address string) error {
	return dnsError(address, net.DNSError{Err: "no such host", IsNotFound: true})
}

// TestNamesThatDoNotExist: New ends after a few seconds if the name of no namenode
// exists, and names them all; it waits as long as it may for any other reason.
func TestNamesThatDoNotExist(t *testing.T) {
	t.Parallel()
	const limit, grace = time.Minute, 5 * time.Second
	for _, c := range []struct {
		name   string
		dial   func(address string) error
		within time.Duration
	}{
		{"none exists", missingName, 2 * grace},
		{"the name server fails", func(a string) error {
			return dnsError(a, net.DNSError{Err: "server misbehaving", IsTemporary: true})
		}, 0},
		{"the name server is silent", func(a string) error {
			return dnsError(a, net.DNSError{Err: "i/o timeout", IsTimeout: true, IsTemporary: true})
		}, 0},
		{"one exists", func(a string) error {
			if a == "nn2.example:8020" {
				return errors.New("connection refused")
			}
			return missingName(a)
		}, 0},
		{"another name is missing", func(string) error { return missingName("proxy.example:3128") }, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				_, err := New(t.Context(), Config{
					Namenodes: []string{"nn1.example:8020", "nn2.example:8020"}, User: "tester", Timeout: limit,
					DialOptions: []grpc.DialOption{grpc.WithContextDialer(func(_ context.Context, address string) (net.Conn, error) { return nil, c.dial(address) })},
				})
				took := time.Since(began)
				wantKind(t, err, fserror.Unavailable)
				for _, want := range []string{"nn1.example:8020", "nn2.example:8020"} {
					if !strings.Contains(err.Error(), want) {
						t.Errorf("%q does not tell %q", err, want)
					}
				}
				if r := fserror.ReasonOf(err); r != fserror.ReasonNoNamenode {
					t.Errorf("its reason is %q", r)
				}
				if c.within == 0 && took != limit {
					t.Errorf("ended after %s with %v, want %s", took, err, limit)
				}
				if c.within > 0 && (took < grace || took > c.within || !strings.Contains(err.Error(), "no such host")) {
					t.Errorf("ended after %s with %v, want after %s to %s", took, err, grace, c.within)
				}
			})
		})
	}
}

// TestANameThatComes: a name that the name server learns of soon is found.
func TestANameThatComes(t *testing.T) {
	t.Parallel()
	n, f := new(network), newFake()
	stop := n.serve("nn", f)
	t.Cleanup(stop)
	var tries atomic.Int32
	fs, err := New(t.Context(), Config{Namenodes: []string{"nn"}, User: "tester", Timeout: 2 * time.Minute,
		DialOptions: []grpc.DialOption{grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			if tries.Add(1) <= 3 {
				return nil, missingName(address)
			}
			return n.dial(ctx, address)
		})}})
	check(t, err)
	check(t, fs.Close())
}
