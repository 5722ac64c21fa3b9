package namenode_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fserror/wire"
	"github.com/leasefs/leasefs/internal/proof"
	"github.com/leasefs/leasefs/namenode"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
	"github.com/leasefs/leasefs/test/env"
)

// auditLine is what the tests look at of a line.
type auditLine struct {
	Time                                                                  time.Time
	User, RealUser, Address, Client, Session, Op, Path, Result, Kind, Why string
	Reason, Lease                                                         string
	Call, Inode, Epoch, TxID                                              uint64
	US                                                                    int64
}

// auditOf stops a namenode and reads what its audit log says.
func auditOf(t *testing.T, n *env.Namenode) (lines []auditLine) {
	t.Helper()
	n.Stop(t)
	raw, err := os.ReadFile(n.Config().Audit.File)
	if err != nil {
		t.Fatal(err)
	}
	for text := range bytes.Lines(raw) {
		var l struct {
			auditLine
			RealUser string `json:"real_user"`
		}
		if err := json.Unmarshal(text, &l); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		l.auditLine.RealUser = l.RealUser
		lines = append(lines, l.auditLine)
	}
	return lines
}

func audited(file string) func(*namenode.Config) {
	return func(c *namenode.Config) { c.Audit.File = file }
}

// TestEachCallIsAudited: each method of the contract has a line with a good proof, with a bad
// one and in another's name, with the user, the address and what became of it.
func TestEachCallIsAudited(t *testing.T) {
	t.Parallel()
	f := newFort(t, audited(filepath.Join(t.TempDir(), "audit")))
	r := f.Raw(t, "a")
	v := &vanisher{t: t, n: f.Namenode, r: r, w: r.Create("/w")}
	rows, waits := v.sendings()
	good, bad, other := linkOf(f.connect(f.shows(nil, f.root))), linkOf(f.connect(f.shows(nil, token(proof.NewToken())))), linkOf(f.connect(f.shows(nil, f.bob)))
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		send := rows[name]()
		for i, l := range []link{bad, other, good} {
			patience := time.Minute
			if waits[name] && i == 2 { // it is let in: it waits, for long enough to arrive on a slow machine
				patience = 5 * time.Second
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			_ = send(ctx, l) // TestProofOfEachCall knows what is to become of it
			cancel()
		}
	}
	names := map[string]string{
		"Delete": "rm", "Rename": "mv", "GetFile": "open", "List": "ls", "Summary": "du", "AppendTail": "flush",
		"AllocateBlock": "write", "Commit": "write", "CloseAbandoned": "close", "CancelOpen": "close", "RenewLease": "renew", "Collect": "gc", "ResolveStore": "resolve",
	}
	lines := auditOf(t, f.Namenode)
	for name := range rows {
		op := strings.ToLower(name)
		if names[name] != "" {
			op = names[name]
		}
		var allowed, unproven, others bool
		for _, l := range lines {
			if l.Op != op {
				continue
			}
			if !strings.HasPrefix(l.Address, "127.0.0.1:") || l.Time.IsZero() || l.Result == "" {
				t.Errorf("%+v", l)
			}
			if l.User == "root" && l.RealUser == "bob" && l.Result == "ok" {
				t.Errorf("bob acts for root, says %+v", l)
			}
			denied := l.Result == "denied" && l.Kind == fserror.Permission.String() && (l.Reason == fserror.ReasonProof || l.Reason == fserror.ReasonProxy)
			allowed = allowed || !denied && (l.User == "root" || op == "status")
			unproven = unproven || denied && strings.Contains(l.Why, "not known")
			others = others || l.RealUser == "bob" && denied || l.User == "bob"
		}
		if name == "Status" {
			others = true // it is in nobody's name
		}
		if !allowed || !unproven || !others {
			t.Errorf("%s (%s): allowed %t, unproven %t, in another's name %t", name, op, allowed, unproven, others)
		}
	}
}

// TestAuditLinesTellWhat: of calls that came in the stream of calls, too, lines have the user,
// the client, the path as asked and what was made.
func TestAuditLinesTellWhat(t *testing.T) {
	n := env.Start(t, audited(filepath.Join(t.TempDir(), "audit")))
	fs := n.Client(t)
	ctx := t.Context()
	if err := fs.Mkdir(ctx, "/d", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := fs.WriteFile(ctx, "/d/f", []byte("x")); err != nil {
		t.Fatal(err)
	}
	if err := fs.Rename(ctx, "/d/f", "/d/g", false); err != nil {
		t.Fatal(err)
	}
	if _, err := fs.Stat(ctx, "/d/none\x7f"); err == nil {
		t.Fatal("there is no such file")
	}
	if _, err := fs.Leases().Grant(ctx, time.Minute, 0); err != nil {
		t.Fatal(err)
	}
	last := n.Raw(t, "b").TxID()
	lines := auditOf(t, n)
	find := func(op string) auditLine {
		t.Helper()
		i := slices.IndexFunc(lines, func(l auditLine) bool { return l.Op == op })
		if i < 0 {
			t.Fatalf("there is no line of %s: %+v", op, lines)
		}
		return lines[i]
	}
	for _, op := range []string{"mkdir", "create", "mv", "grantlease"} {
		l := find(op)
		if l.User == "" || l.Client == "" || l.Session == "" || l.Call == 0 || l.TxID == 0 || l.TxID > last || l.Result != "ok" {
			t.Errorf("%+v", l)
		}
	}
	if l := find("mkdir"); l.Path != "/d" || l.Inode == 0 {
		t.Errorf("%+v", l)
	}
	if l := find("grantlease"); l.Lease == "" {
		t.Errorf("%+v", l)
	}
	begun := find("session")
	if begun.Result != "begun" || begun.User == "" || begun.Session == "" {
		t.Errorf("%+v", begun)
	}
	ended := slices.ContainsFunc(lines, func(l auditLine) bool {
		return l.Op == "session" && l.Result != "begun" && l.Session == begun.Session
	})
	if !ended {
		t.Error("the end of the session has no line")
	}
}

// TestNoSecretIsWritten: nothing that proves who one is, that lets somebody do something, or
// that files hold is in the namenode's log, audit log, metrics, errors or arguments.
func TestNoSecretIsWritten(t *testing.T) {
	t.Parallel()
	var log logText
	f := newFort(t, audited(filepath.Join(t.TempDir(), "audit")), func(c *namenode.Config) {
		c.Logger, c.Pprof = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})), true
	})
	r := f.Raw(t, "a")
	ctx := t.Context()
	secrets := map[string][]byte{"root's token": []byte(f.root), "bob's token": []byte(f.bob), "session": r.Who.GetSession()}
	var errs []string
	failed := func(err error) {
		t.Helper()
		if err == nil {
			t.Fatal("it did not fail")
		}
		errs = append(errs, wire.FromStatus(err).Error())
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	w := r.Create("/secret")
	secrets["writer's token"] = w.GetToken()
	content := []byte("what-is-in-the-file")
	secrets["content"], secrets["attribute"] = content, []byte("what-the-attribute-says")
	must(r.Flush(w, 0, string(content)))
	failed(r.Flush(w, 5, string(content)))
	_, err := r.NN.SetXattr(ctx, &pb.SetXattrRequest{Call: r.Call(), Caller: r.Who, At: pb.At("/secret"), Name: "user.a", Value: secrets["attribute"]})
	must(err)
	_, err = r.NN.SetXattr(ctx, &pb.SetXattrRequest{Call: r.Call(), Caller: r.Who, At: pb.At("/secret"), Name: "user.a", Value: secrets["attribute"], Action: pb.XattrAction_XATTR_ACTION_CREATE})
	failed(err)
	_, err = r.NN.Transact(ctx, &pb.TransactRequest{Call: r.Call(), Caller: r.Who,
		Compares: []*pb.TxCompare{{Path: "/secret", What: &pb.TxCompare_Xattr{Xattr: &pb.TxXattr{Name: "user.a", Value: []byte("what-the-attribute-says-not")}}}},
		Ops:      []*pb.TxOp{{Path: "/other", Op: &pb.TxOp_Mkdir{Mkdir: &pb.TxDir{}}}}})
	failed(err)
	block, err := r.PutBlock(w, bytes.Repeat(content, 10_000))
	must(err)
	must(r.Commit(w, 0, block, string(content)))
	failed(r.Commit(w, 1, block, "another tail"))
	got, err := r.NN.GetFile(ctx, &pb.GetFileRequest{Caller: r.Who, At: pb.At("/secret")})
	must(err)
	for _, b := range got.GetBlocks() {
		secrets["URL"] = []byte(b.GetUrl())
		_, query, _ := strings.Cut(b.GetUrl(), "?")
		secrets["signature"] = []byte(query)
		for _, bad := range []string{b.GetUrl() + "0", b.GetUrl()} {
			req, err := http.NewRequestWithContext(ctx, http.MethodDelete, bad, nil)
			must(err)
			resp, err := f.HTTP.Do(req)
			must(err)
			_ = resp.Body.Close()
		}
	}
	if len(secrets["URL"]) == 0 || len(secrets["signature"]) == 0 {
		t.Fatal("there is no URL")
	}
	wrong := token(proof.NewToken())
	secrets["wrong token"] = []byte(wrong)
	failed(f.stat(f.connect(f.shows(nil, wrong))))
	failed(f.statAs("bob", f.connect(f.shows(nil, f.root))))
	f.writeTokens(append(f.lines, "nonsense "+string(f.root))...) // a token in the wrong file
	env.Eventually(t, "the bad file is told of", func() bool { return log.has("cannot be used as it is") })

	pages := ""
	for _, page := range []string{"metrics", "debug/pprof/cmdline", "debug/pprof/goroutine?debug=2"} {
		resp, err := f.HTTP.Get("https://" + f.HTTPAddr() + "/" + page)
		must(err)
		text, err := io.ReadAll(resp.Body)
		must(err)
		_ = resp.Body.Close()
		pages += string(text)
	}
	lines := auditOf(t, f.Namenode)
	if len(lines) < 10 {
		t.Fatalf("%d lines", len(lines))
	}
	raw, err := os.ReadFile(f.Config().Audit.File)
	must(err)
	written := map[string]string{"the audit log": string(raw), "the log": log.String(), "a page": pages, "an error": strings.Join(errs, "\n")}
	for where, text := range written {
		for what, s := range secrets {
			for _, form := range []string{string(s), hex.EncodeToString(s), base64.StdEncoding.EncodeToString(s), base64.RawURLEncoding.EncodeToString(s)} {
				if i := strings.Index(text, form); i >= 0 {
					t.Errorf("%s has the %s: …%q…", where, what, text[max(0, i-60):min(len(text), i+len(form)+20)])
				}
			}
		}
	}
}

// TestAuditThatFails: calls are answered while the audit log cannot be written, and status and
// metrics tell of it.
func TestAuditThatFails(t *testing.T) {
	n := env.Start(t, audited("/dev/full"))
	r := n.Raw(t, "a")
	r.Make("/a", "/b")
	env.Eventually(t, "the trouble is told", func() bool {
		st, err := r.Admin.Status(t.Context(), &pb.StatusRequest{})
		return err == nil && strings.Contains(st.GetAudit().GetProblem(), "no space")
	})
	if text := n.Metrics(t); !strings.Contains(text, "\nleasefs_audit_failing 1\n") || !strings.Contains(text, "\nleasefs_audit_lost_total 0\n") {
		t.Errorf("the metrics have %s", text)
	}
}
