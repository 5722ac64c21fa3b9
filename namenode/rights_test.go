package namenode_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fserror/wire"
	"github.com/leasefs/leasefs/internal/proof"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
	"github.com/leasefs/leasefs/test/env"
)

// right is what a call needs of who makes it.
type right int

const (
	anybody  right = iota // whom the namenode knows
	searches              // what is in ann's directories
	reads                 // and what these have in them
	writes                // into ann's directories and files
	owns                  // be ann, or a superuser
	bound                 // be who has ann's session, or may act for her
	proves                // prove by himself who he is
	left                  // be the client who has left the file open
	rules                 // be a superuser
)

// needs says of each call of vanisher.sendings, all of which are about what user ann has, who may
// make it.
var needs = map[string]right{
	"Session": anybody, "CancelOpen": anybody, "ListLeases": anybody, "GrantLease": anybody, "WhoAmI": anybody, "Status": anybody, "ListTrash": anybody, "ListQuotas": anybody, "ListSnapshotDirs": anybody, "GetDelegationToken": proves,
	"Watch": anybody, "LeaseTimeToLive": anybody, // of which they are shown what they may see
	"Stat": searches, "Acl": searches, "LeaseHistory": searches, "GetQuota": searches,
	"ListSnapshots": reads, "GetFile": reads, "List": reads, "Summary": reads, "Find": reads, "Xattrs": reads,
	"Create": writes, "Mkdir": writes, "Symlink": writes, "Rename": writes, "Delete": writes, "Transact": writes, "Concat": writes, "Carry": writes,
	"Append": writes, "Truncate": writes, "SetXattr": writes, "Recover": writes, "DetachLease": writes, "CloseAbandoned": left,
	"SetAttr": owns, "ChangeAcl": owns, "RestoreTrash": owns, "EmptyTrash": owns, // what ann has deleted
	"MakeSnapshot": owns, "RenameSnapshot": owns, "DeleteSnapshot": owns, "DiffSnapshots": owns,
	"AppendTail": bound, "AllocateBlock": bound, "Commit": bound, "Close": bound, "RenewLease": bound,
	"AttachLease": owns, "RevokeLease": owns, "KeepAlive": owns, "ChangeDelegationToken": owns, // a lease, a token
	"ListDelegationTokens": rules, // of all
	"SetQuota":             rules,
	"AllowSnapshots":       rules,
	"Checkpoint":           rules, "SafeMode": rules, "Fsck": rules, "Collect": rules, "Failover": rules, "ResolveStore": rules, "Upgrade": rules, "Backup": rules,
}

// tap notes what a connection is told.
type tap struct {
	mu   sync.Mutex
	told []byte
}

func (t *tap) note(m any, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err != nil {
		t.told = fmt.Appendf(t.told, "%v", err)
		for _, d := range status.Convert(err).Proto().GetDetails() {
			t.told = append(t.told, d.GetValue()...)
		}
		return
	}
	raw, _ := proto.Marshal(m.(proto.Message)) //nolint:errcheck // all are
	t.told = append(t.told, raw...)
}

// take returns what was noted since it was called last.
func (t *tap) take() []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	told := t.told
	t.told = nil
	return told
}

func (t *tap) options() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			err := invoke(ctx, method, req, reply, cc, opts...)
			t.note(reply, err)
			return err
		}),
		grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			s, err := streamer(ctx, desc, cc, method, opts...)
			return &tapped{s, t}, err
		}),
	}
}

type tapped struct {
	grpc.ClientStream
	tap *tap
}

func (s *tapped) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	s.tap.note(m, err)
	return err
}

// TestRightsOfEachCall makes each call of the contract as each kind of user, whose proof is right: what he may do is decided by the owner, the group, the mode and the ACL of
// what the call is about, whoever proves it for him. No answer tells anybody the id of another's session: who knew
// that could take the session while the namenode does not know whose it is, after a restart.
func TestRightsOfEachCall(t *testing.T) {
	t.Parallel()
	f := newFort(t)
	tokens := map[string]token{}
	lines := f.lines
	for user, groups := range map[string][]string{
		"ann": nil, "gus": {"staff"}, "eve": {"others"}, "carl": {"none"}, "lee": {"lab"}, "rita": {"none"}, "dan": {"staff"}, "sue": {"supergroup"}, "mnt": {"none"}, "liar": {"none"},
	} {
		tokens[user] = token(proof.NewToken())
		lines = append(lines, f.line(tokens[user], user, groups...))
	}
	f.writeTokens(lines...)
	f.writeProxies("mnt users=* from=*")
	for user, tok := range tokens {
		cc := f.connect(f.shows(nil, tok))
		env.Eventually(t, "the token is taken", func() bool { return f.statAs(user, cc) == nil })
	}
	asMnt := f.connect(append(f.shows(nil, tokens["mnt"]), standsFor("mnt")...))
	env.Eventually(t, "the rules are read", func() bool { return f.statAs("ann", asMnt) == nil })

	// All is ann's, in the group staff, and what is made inherits who else may do what.
	root := f.Raw(t, "root")
	ctx := t.Context()
	list := []*pb.AclEntry{
		{Tag: pb.AclTag_ACL_TAG_OWNER, Perm: 7}, {Tag: pb.AclTag_ACL_TAG_USER, Name: "carl", Perm: 7}, {Tag: pb.AclTag_ACL_TAG_USER, Name: "rita", Perm: 5}, {Tag: pb.AclTag_ACL_TAG_USER, Name: "dan"},
		{Tag: pb.AclTag_ACL_TAG_OWNING_GROUP, Perm: 5}, {Tag: pb.AclTag_ACL_TAG_GROUP, Name: "lab", Perm: 7}, {Tag: pb.AclTag_ACL_TAG_MASK, Perm: 7}, {Tag: pb.AclTag_ACL_TAG_OTHER},
	}
	for _, e := range slices.Clone(list) {
		list = append(list, &pb.AclEntry{Tag: e.GetTag(), Name: e.GetName(), Perm: e.GetPerm(), Default: true})
	}
	if _, err := root.NN.SetAttr(ctx, &pb.SetAttrRequest{Call: root.Call(), Caller: root.Who, At: pb.At("/"), User: "ann", Group: "staff"}); err != nil {
		t.Fatal(err)
	}
	if _, err := root.NN.ChangeAcl(ctx, &pb.ChangeAclRequest{Call: root.Call(), Caller: root.Who, At: pb.At("/"), Action: pb.AclAction_ACL_ACTION_WHOLE, Entries: list}); err != nil {
		t.Fatal(err)
	}
	f.Dial = f.shows(nil, tokens["ann"])
	ann := asUser(f.Raw(t, "ann"), "ann")
	v := &vanisher{t: t, n: f.Namenode, r: ann, w: ann.Create("/w"), super: root}
	rows, waits := v.sendings()
	f.carries(rows, v)
	own := func() *pb.Ref { // a directory in which nobody else has any
		dir := v.path()
		ann.Create(dir + "/f")
		return pb.Follow(dir)
	}
	rows["Summary"] = func() sending {
		req := &pb.SummaryRequest{Caller: ann.Who, At: own()}
		return func(ctx context.Context, l link) error { _, err := l.nn.Summary(ctx, req); return err }
	}
	rows["Find"] = func() sending {
		req := &pb.FindRequest{Caller: ann.Who, At: own()}
		return func(ctx context.Context, l link) error { return all(l.nn.Find(ctx, req)) }
	}
	rows["KeepAlive"] = func() sending { // which answers for each lease
		req := &pb.KeepAliveRequest{Caller: ann.Who, Ids: []uint64{v.lease()}}
		return func(ctx context.Context, l link) error {
			st, err := l.nn.KeepAlive(ctx)
			if err == nil {
				err = st.Send(req)
			}
			if err != nil {
				return err
			}
			m, err := st.Recv()
			if err == nil && m.GetLeases()[0].GetTtlMs() == 0 {
				err = fserror.New(fserror.Permission, "", "", "it is kept alive by %s", m.GetLeases()[0].GetOwner())
			}
			return err
		}
	}
	for _, service := range []string{"Namenode", "Admin", "Calls"} {
		methods := pb.File_leasefs_v1_leasefs_proto.Services().ByName(protoreflect.Name(service)).Methods()
		for i := range methods.Len() {
			name := string(methods.Get(i).Name())
			if _, said := needs[name]; !said || rows[name] == nil {
				t.Errorf("it is not said what %s needs", name)
			}
		}
	}

	// as is a connection on which somebody makes calls in a user's name, in a session of his own.
	heard := new(tap)
	as := func(prover, user string, more func(*pb.Caller)) *grpc.ClientConn {
		session := pb.NewSession(prover)
		return f.connect(append(append(f.shows(nil, tokens[prover]), heard.options()...), recasts(func(c *pb.Caller) {
			c.User, c.Session, c.RealUser, c.SessionUser = user, session, "", ""
			if prover != user {
				c.RealUser, c.SessionUser = prover, prover
			}
			if more != nil {
				more(c)
			}
		}, func(c *pb.CallId) { c.Session = session })...))
	}
	tokens["root"] = f.root
	columns := []struct {
		name string
		cc   *grpc.ClientConn
		may  []right // besides anybody; and proves, who is no proxy
	}{
		{"the owner", as("ann", "ann", nil), []right{searches, reads, writes, owns, bound, left}},
		{"one of the group", as("gus", "gus", nil), []right{searches, reads}},
		{"another", as("eve", "eve", nil), nil},
		{"a user whom the ACL names", as("carl", "carl", nil), []right{searches, reads, writes}},
		{"a user whom the ACL lets read", as("rita", "rita", nil), []right{searches, reads}},
		{"one of a group that the ACL names", as("lee", "lee", nil), []right{searches, reads, writes}},
		{"one of the group to whom the ACL gives nothing", as("dan", "dan", nil), nil},
		{"the superuser", as("root", "root", nil), []right{searches, reads, writes, owns, bound, rules}},
		{"one of the supergroup", as("sue", "sue", nil), []right{searches, reads, writes, owns, bound, rules}},
		{"a proxy, for the owner", as("mnt", "ann", nil), []right{searches, reads, writes, owns, bound}},
		{"a proxy, for one whom the ACL names", as("mnt", "carl", nil), []right{searches, reads, writes, bound}},
		{"a proxy, for another", as("mnt", "eve", nil), []right{bound}},
		{"a proxy, for one who it says is in the group", as("mnt", "eve", func(c *pb.Caller) { c.Groups = []string{"staff", "lab", "supergroup"} }), []right{bound}},
		{"a proxy, for nobody", as("mnt", "nobody", func(c *pb.Caller) { c.Nobody = true }), []right{bound}},
	}
	// Who acts without a rule is refused whatever it is; but who he is himself, all may ask.
	none := as("liar", "ann", nil)

	for _, name := range slices.Sorted(maps.Keys(rows)) {
		t.Run(name, func(t *testing.T) {
			try := func(cc *grpc.ClientConn, may bool) error {
				send, patience := rows[name](), time.Minute
				if may && waits[name] {
					patience = 100 * time.Millisecond // it was let in: it waits
				}
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				err := wire.FromStatus(send(ctx, linkOf(cc)))
				if waits[name] && fserror.KindOf(err) == fserror.Deadline {
					return nil
				}
				return err
			}
			for _, c := range columns {
				may, denied := slices.Contains(c.may, needs[name]), fserror.Permission
				switch needs[name] {
				case anybody:
					may = true
				case proves:
					may = !strings.HasPrefix(c.name, "a proxy")
				case left:
					if slices.Contains(c.may, writes) {
						denied = fserror.Held // by another client
					}
				}
				if name == "ChangeDelegationToken" {
					denied = fserror.NotFound // who may not is not told that there is one
				}
				err := try(c.cc, may)
				if may != (err == nil) || err != nil && fserror.KindOf(err) != denied {
					t.Errorf("%s: %v, and may: %t", c.name, err, may)
				}
			}
			if err := try(none, false); fserror.KindOf(err) != fserror.Permission || err == nil {
				t.Errorf("a proxy without a rule: %v", err)
			}
			told := heard.take()
			if name == "Backup" { // by which superusers get all that the namenode has
				return
			}
			for _, id := range append(v.sessions, ann.Who.GetSession()) {
				if bytes.Contains(told, id) || bytes.Contains(told, []byte(hex.EncodeToString(id))) {
					t.Error("somebody was told the id of another's session")
				}
			}
		})
	}
	f.Dial = f.shows(nil, f.root)
	fsckClean(t, f.Raw(t, "fsck"))
}
