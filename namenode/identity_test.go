package namenode_test

import (
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode"
	"github.com/leasefs/leasefs/namenode/identity"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
	"github.com/leasefs/leasefs/test/env"
)

// TestWhoIsTrusted: who is reached from other machines asks for a proof, or says that he
// asks for none, before he starts and in his status and log.
func TestWhoIsTrusted(t *testing.T) {
	for _, c := range []struct {
		listen string
		trust  bool
		trusts string // empty: it does not start
	}{
		{"127.0.0.1:0", false, "machine"},
		{"localhost:0", false, "machine"},
		{"[::1]:0", false, "machine"},
		{"127.0.0.1:0", true, "everybody"},
		{":0", false, ""},
		{"0.0.0.0:0", false, ""},
		{"[::]:0", false, ""},
		{"0.0.0.0:0", true, "everybody"},
	} {
		var log logText
		cfg := namenode.Config{Data: t.TempDir(), Listen: c.listen, HTTP: "127.0.0.1:0", Identity: identity.Config{TrustClients: c.trust}}
		log.config(&cfg)
		s, err := namenode.Start(t.Context(), cfg)
		if c.trusts == "" {
			if !errors.Is(err, fserror.InvalidArgument) || fserror.ReasonOf(err) != fserror.ReasonIdentity || !strings.Contains(err.Error(), "any user") {
				t.Errorf("%s: %v", c.listen, err)
			}
			continue
		}
		if err != nil {
			if strings.Contains(c.listen, "::1") && !hasIPv6() {
				continue
			}
			t.Fatal(err)
		}
		_, port, err := net.SplitHostPort(s.Addr())
		if err != nil {
			t.Fatal(err)
		}
		host := "127.0.0.1"
		if strings.Contains(c.listen, "::1") {
			host = "::1"
		}
		r, err := env.RawAt(t, net.JoinHostPort(host, port), "c").Admin.Status(t.Context(), &pb.StatusRequest{})
		if err != nil || r.GetTrusts() != c.trusts {
			t.Errorf("%s: status says %q, %v; want %q", c.listen, r.GetTrusts(), err, c.trusts)
		}
		if log.has("clients are trusted") != c.trust {
			t.Errorf("%s, %t: the log is %s", c.listen, c.trust, log.String())
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	cfg := namenode.Config{Data: t.TempDir(), Listen: "127.0.0.1:0", HTTP: "0.0.0.0:0"}
	if _, err := namenode.Start(t.Context(), cfg); fserror.ReasonOf(err) != fserror.ReasonIdentity {
		t.Errorf("blocks and pages for everybody: %v", err)
	}
	cfg = namenode.Config{Data: t.TempDir(), Listen: "127.0.0.1:0", HTTP: "127.0.0.1:0", Identity: identity.Config{TrustClients: true, Certificates: true}}
	if _, err := namenode.Start(t.Context(), cfg); !errors.Is(err, fserror.InvalidArgument) || !strings.Contains(err.Error(), "choose one") {
		t.Errorf("proof and trust: %v", err)
	}
}

func hasIPv6() bool {
	l, err := net.Listen("tcp", "[::1]:0")
	if err == nil {
		_ = l.Close()
	}
	return err == nil
}
