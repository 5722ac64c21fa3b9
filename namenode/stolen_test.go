package namenode_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

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

// tokensOf makes a namenode's file of tokens with one for each user.
func tokensOf(t *testing.T, users ...string) (file string, tokens map[string]token) {
	t.Helper()
	file, tokens = filepath.Join(t.TempDir(), "tokens"), map[string]token{}
	for _, user := range users {
		tokens[user] = token(proof.NewToken())
	}
	keepTokens(t, file, tokens)
	return file, tokens
}

// keepTokens replaces a file of tokens, in one step.
func keepTokens(t *testing.T, file string, tokens map[string]token) {
	t.Helper()
	lines := []string{"# of a test"}
	for user, tok := range tokens {
		line, err := proof.Line(string(tok), user)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, line)
	}
	err := os.WriteFile(file+".new", []byte(strings.Join(lines, "\n")), 0o600)
	if err == nil {
		err = os.Rename(file+".new", file)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// takesTokens has namenodes take tokens of a file; ann is the superuser, who may make names in the root
// directory.
func takesTokens(t *testing.T, file string) func(*namenode.Config) {
	return func(c *namenode.Config) {
		var err error
		if c.Identity.Tokens, err = proof.OpenTokens(clock.System{}, file); err != nil {
			t.Fatal(err)
		}
		c.Superuser = "ann"
	}
}

// TestSessionsStayBound: when a session has neither a stream nor a file, and its namenode was
// restarted or another one has taken over, another user who knows its id can still not use it, under his
// own name either; and whose it is gets his results.
func TestSessionsStayBound(t *testing.T) {
	file, tokens := tokensOf(t, "ann", "bob")
	ann, bob := tokens["ann"], tokens["bob"]
	p := newPair(t)
	cfgs := make([]namenode.Config, 2)
	for i := range cfgs {
		cfgs[i], _ = p.config(takesTokens(t, file))
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

// TestRevokedDuringAFailover: a token is taken back while the namenode that knows of its session dies: the next one
// lets nobody in by it, the session neither, though that has a file open; others are let in.
func TestRevokedDuringAFailover(t *testing.T) {
	t.Parallel()
	file, tokens := tokensOf(t, "ann", "bob")
	p := newPair(t)
	acfg, _ := p.config(takesTokens(t, file))
	bcfg, _ := p.config(takesTokens(t, file))
	a := p.active(acfg)
	b := p.start(bcfg)
	as := func(addr, user string) *env.Raw {
		return asUser(env.RawAt(t, addr, user, grpc.WithPerRPCCredentials(tokens[user])), user)
	}
	ann, bob := as(acfg.Listen, "ann"), as(acfg.Listen, "bob")
	ctx := t.Context()
	if _, err := ann.NN.Mkdir(ctx, &pb.MkdirRequest{Call: ann.Call(), Caller: ann.Who, At: pb.At("/pub"), Mode: 0o1777, HasMode: true}); err != nil {
		t.Fatal(err)
	}
	w := bob.Create("/pub/f")
	if err := bob.Flush(w, 0, "before"); err != nil {
		t.Fatal(err)
	}
	keepTokens(t, file, map[string]token{"ann": tokens["ann"]})
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	p.becomes(b, "active")
	ann2, bob2 := as(bcfg.Listen, "ann"), as(bcfg.Listen, "bob")
	bob2.Who = bob.Who
	env.Eventually(t, "the token is refused", func() bool {
		_, err := bob2.NN.Stat(ctx, &pb.StatRequest{Caller: bob2.Who, At: pb.At("/pub/f")})
		return fserror.KindOf(err) == fserror.Permission
	})
	if err := bob2.Flush(w, 6, " and after"); fserror.KindOf(err) != fserror.Permission {
		t.Errorf("his writer: %v", err)
	}
	if err := bob2.Close(w, 6); fserror.KindOf(err) != fserror.Permission {
		t.Errorf("the end of his file: %v", err)
	}
	if f := ann2.File("/pub/f"); string(f.GetTail()) != "before" {
		t.Errorf("the file has %q", f.GetTail())
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

// TestACopiedMachine: a machine is copied while a client on it writes. Both have the same proof, session,
// number of the next call and writer: no call is carried out twice, one with another content is
// refused, and what one was told is written, the other does not overwrite.
func TestACopiedMachine(t *testing.T) {
	f := newFort(t)
	one := f.Raw(t, "one")
	defer one.Connect()()
	w := one.Create("/f")
	if err := one.Flush(w, 0, "both "); err != nil {
		t.Fatal(err)
	}
	two := f.Raw(t, "two")
	two.Who = proto.CloneOf(one.Who)
	defer two.Connect()()
	ctx := t.Context()

	id := func(seq uint64) *pb.CallId { return &pb.CallId{Session: one.Who.GetSession(), Seq: seq} }
	mkdir := func(r *env.Raw, seq uint64, path string) (uint64, error) {
		out, err := r.NN.Mkdir(ctx, &pb.MkdirRequest{Call: id(seq), Caller: r.Who, At: pb.At(path)})
		return out.GetTxid(), err
	}
	first, err := mkdir(one, 100, "/same")
	if err != nil {
		t.Fatal(err)
	}
	if again, err := mkdir(two, 100, "/same"); err != nil || again != first {
		t.Errorf("the same call: record %d, and %d before: %v", again, first, err)
	}
	if _, err := mkdir(two, 100, "/other"); fserror.KindOf(err) != fserror.InvalidArgument {
		t.Errorf("another call of the same number: %v", err)
	}
	if _, err := one.NN.Stat(ctx, &pb.StatRequest{Caller: one.Who, At: pb.At("/other")}); fserror.KindOf(err) != fserror.NotFound {
		t.Errorf("what it would have made: %v", err)
	}

	if err := one.Flush(w, 5, "of one"); err != nil {
		t.Fatal(err)
	}
	if err := two.Flush(w, 5, "of one"); err != nil {
		t.Errorf("the same bytes at the same place: %v", err)
	}
	if err := two.Flush(w, 5, "of the other"); err == nil {
		t.Error("other bytes were taken for the same place")
	}
	if err := two.Flush(w, 11, ", then of the other"); err != nil {
		t.Errorf("behind what there is: %v", err)
	}
	if err := one.Flush(w, 11, ", then of one"); err == nil {
		t.Error("bytes that were told to be written were overwritten")
	}
	const all = "both of one, then of the other"
	if err := two.Close(w, int64(len(all))); fserror.KindOf(err) != fserror.InvalidArgument {
		t.Errorf("a close with the number of the create: %v", err)
	}
	if _, err := two.NN.Close(ctx, &pb.CloseRequest{Call: id(101), Writer: w, Length: int64(len(all))}); err != nil {
		t.Fatal(err)
	}
	if err := one.Flush(w, int64(len(all)), "late"); err == nil {
		t.Error("a file that is closed was written")
	}
	if got := one.File("/f"); string(got.GetTail()) != all || got.GetAttr().GetLength() != int64(len(all)) {
		t.Errorf("the file has %q", got.GetTail())
	}
}

// TestACopiedReader: a machine is copied while a client on it answers from what it has read. The namenode tells
// of changes by the latest stream of their session; by the one before it, and by a second one of the
// same number, no term is renewed, so that each copy but one is out of date for one term at most.
func TestACopiedReader(t *testing.T) {
	n := env.Start(t, termOf(time.Hour))
	other := n.Raw(t, "other")
	if err := other.Close(other.Create("/f"), 0); err != nil {
		t.Fatal(err)
	}
	one, older := silentReader(t, n, "one")
	keep(t, one, "/f")
	copied := func(name string, number uint64) (*env.Raw, *cachingStream) {
		r := n.Raw(t, name)
		r.Who = proto.CloneOf(one.Who)
		return r, cache(t, r, number)
	}
	two, latest := copied("two", 2)
	_, same := copied("three", 2)
	if latest.renew() == 0 {
		t.Error("the latest stream has no term")
	}
	keep(t, two, "/f")
	for what, s := range map[string]*cachingStream{"the stream before": older, "a second stream of the same number": same} {
		if ms := s.renew(); ms != 0 {
			t.Errorf("%s has a term of %d ms", what, ms)
		}
	}
	changed := make(chan error, 1)
	go func() {
		_, err := other.NN.SetAttr(t.Context(), &pb.SetAttrRequest{Call: other.Call(), Caller: other.Who, At: pb.At("/f"), SetMode: true, Mode: 0o600})
		changed <- err
	}()
	latest.ack(<-latest.revoked)
	if err := <-changed; err != nil {
		t.Fatal(err)
	}
	for what, s := range map[string]*cachingStream{"the stream before": older, "a second stream of the same number": same} {
		if ms := s.renew(); ms != 0 || len(s.revoked) > 0 {
			t.Errorf("after the change %s has a term of %d ms, and was told of %d changes", what, ms, len(s.revoked))
		}
	}
	// Over a stream of its own it begins with nothing, and is told from then on.
	_, again := copied("one again", 3)
	if again.renew() == 0 || latest.renew() != 0 {
		t.Error("the stream that is the latest by now has no term, or the one before has")
	}
}

// TestANameChangesHands: between two calls about a name another user puts his own file in its place. What was
// begun stays with the file that it was begun with, and nothing is done to his for which it takes
// his rights, nor is he told what was written.
func TestANameChangesHands(t *testing.T) {
	t.Parallel()
	f := newFort(t)
	ann := token(proof.NewToken())
	f.writeTokens(append(f.lines, f.line(ann, "ann"))...)
	root := f.Raw(t, "root")
	ctx := t.Context()
	if _, err := root.NN.Mkdir(ctx, &pb.MkdirRequest{Call: root.Call(), Caller: root.Who, At: pb.At("/pub"), Mode: 0o777, HasMode: true}); err != nil {
		t.Fatal(err)
	}
	as := func(user string, tok token) *env.Raw {
		f.Dial = f.shows(nil, tok)
		return asUser(f.Raw(t, user), user)
	}
	env.Eventually(t, "the token is taken", func() bool { return f.statAs("ann", f.connect(f.shows(nil, ann))) == nil })
	a, b := as("ann", ann), as("bob", f.bob)
	private := func(r *env.Raw, path string) *pb.WriterId {
		out, err := r.NN.Create(ctx, &pb.CreateRequest{Call: r.Call(), Caller: r.Who, At: pb.At(path), Mode: 0o600, HasMode: true})
		if err != nil {
			t.Fatal(err)
		}
		return out.GetWriter()
	}
	w := private(a, "/pub/f")
	if err := a.Flush(w, 0, "secret"); err != nil {
		t.Fatal(err)
	}
	// The directory is everybody's, so bob may do this; what is in the file stays hers.
	if _, err := b.NN.Rename(ctx, &pb.RenameRequest{Call: b.Call(), Caller: b.Who, From: pb.At("/pub/f"), To: pb.At("/pub/g")}); err != nil {
		t.Fatal(err)
	}
	his := private(b, "/pub/f")
	if err := b.Close(his, 0); err != nil {
		t.Fatal(err)
	}
	if err := a.Flush(w, 6, " of ann"); err != nil {
		t.Errorf("her writer: %v", err)
	}
	if err := a.Close(w, 13); err != nil {
		t.Errorf("the end of her file: %v", err)
	}
	for what, err := range map[string]error{
		"his mode": func() error {
			_, err := a.NN.SetAttr(ctx, &pb.SetAttrRequest{Call: a.Call(), Caller: a.Who, At: pb.At("/pub/f"), SetMode: true, Mode: 0o644})
			return err
		}(),
		"his file, to be written": func() error { _, err := a.Append("/pub/f"); return err }(),
		"his file, to be read": func() error {
			_, err := a.NN.GetFile(ctx, &pb.GetFileRequest{Caller: a.Who, At: pb.At("/pub/f")})
			return err
		}(),
		"her file, by him": func() error {
			_, err := b.NN.GetFile(ctx, &pb.GetFileRequest{Caller: b.Who, At: pb.At("/pub/g")})
			return err
		}(),
	} {
		if fserror.KindOf(err) != fserror.Permission {
			t.Errorf("%s: %v", what, err)
		}
	}
	if got := root.File("/pub/g"); string(got.GetTail()) != "secret of ann" || got.GetAttr().GetUser() != "ann" {
		t.Errorf("her file is %s's and has %q", got.GetAttr().GetUser(), got.GetTail())
	}
	if got := root.File("/pub/f"); got.GetAttr().GetLength() != 0 || got.GetAttr().GetUser() != "bob" {
		t.Errorf("his file is %s's and has %d bytes", got.GetAttr().GetUser(), got.GetAttr().GetLength())
	}
	if _, err := a.NN.SetAttr(ctx, &pb.SetAttrRequest{Call: a.Call(), Caller: a.Who, At: pb.At("/pub/g"), User: "bob"}); fserror.KindOf(err) != fserror.Permission {
		t.Errorf("her file, made bob's: %v", err)
	}
}
