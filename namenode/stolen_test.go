package namenode_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fserror/wire"
	"github.com/leasefs/leasefs/internal/proof"
	"github.com/leasefs/leasefs/namenode"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
	"github.com/leasefs/leasefs/test/env"
)

// TestSessionsStayBound: when a session has neither a stream nor a file, and its namenode was
// restarted or another one has taken over, another user who knows its id can still not use it, under his
// own name either; and whose it is gets his results.
func TestSessionsStayBound(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tokens")
	ann, bob := token(proof.NewToken()), token(proof.NewToken())
	var lines []string
	for user, tok := range map[string]token{"ann": ann, "bob": bob} {
		line, err := proof.Line(string(tok), user)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, line)
	}
	if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	p := newPair(t)
	proves := func(c *namenode.Config) {
		var err error
		if c.Identity.Tokens, err = proof.OpenTokens(clock.System{}, file); err != nil {
			t.Fatal(err)
		}
		c.Superuser = "ann" // who may make names in the root directory
	}
	cfgs := make([]namenode.Config, 2)
	for i := range cfgs {
		cfgs[i], _ = p.config(proves)
	}
	as := func(addr string, tok token, user string) *env.Raw {
		return asUser(env.RawAt(t, addr, user, grpc.WithPerRPCCredentials(tok)), user)
	}
	who := as(cfgs[0].Listen, ann, "ann").Who
	made := &pb.MkdirRequest{Call: &pb.CallId{Session: who.GetSession(), Seq: 7}, Caller: who, At: pb.At("/made")}
	var txid uint64
	for i, name := range []string{"first", "another one", "first again"} {
		cfg := cfgs[i%len(cfgs)]
		s := p.active(cfg)
		owner, thief := as(cfg.Listen, ann, "ann"), as(cfg.Listen, bob, "bob")
		stolen := proto.CloneOf(who)
		stolen.User = "bob"
		claimed := proto.CloneOf(stolen)
		claimed.SessionUser = "ann"
		ctx := t.Context()
		if i > 0 { // at first nobody knows of it
			call := &pb.CallId{Session: who.GetSession(), Seq: uint64(1000 * i), Acked: uint64(1000*i) - 1} // would have the results forgotten
			mkdir := func(c *pb.Caller) error {
				_, err := thief.NN.Mkdir(ctx, &pb.MkdirRequest{Call: call, Caller: c, At: pb.At("/stolen")})
				return err
			}
			stream := func(c *pb.Caller) error {
				s, err := thief.NN.Session(ctx)
				if err == nil {
					err = s.Send(&pb.SessionRequest{Kind: &pb.SessionRequest_Hello{Hello: &pb.Hello{Caller: c, Stream: 99}}})
				}
				return first(s.Recv, err)
			}
			for what, send := range map[string]func() error{
				"a stream, as himself":          func() error { return stream(stolen) },
				"a stream, of her session":      func() error { return stream(claimed) },
				"a call, as himself":            func() error { return mkdir(stolen) },
				"a call, of her session":        func() error { return mkdir(claimed) },
				"her number, in a call of his":  func() error { return mkdir(thief.Who) },
				"her number, in a call as hers": func() error { return mkdir(who) },
				"a renewal": func() error {
					_, err := thief.NN.RenewLease(ctx, &pb.RenewLeaseRequest{Caller: thief.Who, Session: who.GetSession()})
					return err
				},
				"the end of a file": func() error {
					_, err := thief.NN.Close(ctx, &pb.CloseRequest{Call: call, Writer: &pb.WriterId{Inode: 1, Epoch: 1, Session: thief.Who.GetSession(), Token: make([]byte, 16)}})
					return err
				},
			} {
				if err := wire.FromStatus(send()); fserror.KindOf(err) != fserror.Permission {
					t.Errorf("%s, %s: %v", name, what, err)
				}
			}
		}
		r, err := owner.NN.Mkdir(ctx, made)
		if err != nil {
			t.Fatal(err)
		}
		if txid == 0 {
			txid = r.GetTxid()
		} else if r.GetTxid() != txid {
			t.Errorf("%s: her call was carried out by record %d, and by %d before", name, r.GetTxid(), txid)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
