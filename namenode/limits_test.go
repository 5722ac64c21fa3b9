package namenode_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fserror/wire"
	"github.com/leasefs/leasefs/namenode"
	"github.com/leasefs/leasefs/namenode/serve"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
	"github.com/leasefs/leasefs/test/env"
)

func TestStartRefusals(t *testing.T) {
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = busy.Close() }()
	foreign := t.TempDir()
	if err := os.WriteFile(filepath.Join(foreign, "photo.jpg"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	running := t.TempDir()
	startServer(t, func(c *namenode.Config) { c.Data = running })
	for _, tc := range []struct {
		name string
		mod  func(*namenode.Config)
		want string
	}{
		{"no folder", func(c *namenode.Config) { c.Data = "" }, fserror.ReasonData},
		{"port in use", func(c *namenode.Config) { c.Listen = busy.Addr().String() }, fserror.ReasonListen},
		{"HTTP port in use", func(c *namenode.Config) { c.HTTP = busy.Addr().String() }, fserror.ReasonHTTP},
		{"folder of something else", func(c *namenode.Config) { c.Data = foreign }, "photo.jpg"},
		{"folder locked", func(c *namenode.Config) { c.Data = running }, "in use by another namenode"},
		{"URL life too short", func(c *namenode.Config) { c.URLLife = 4999 * time.Millisecond }, "URL life 4.999s"},
		{"soft limit too short", func(c *namenode.Config) { c.SoftLimit = time.Millisecond }, "soft limit 1ms"},
		{"least time to live too long", func(c *namenode.Config) { c.MinLeaseTTL = 9000 * time.Hour }, "more than a lease can have, 365 days"},
		{"hard below soft", func(c *namenode.Config) { c.HardLimit = time.Second }, "below the soft limit"},
		{"block size", func(c *namenode.Config) { c.BlockSize = 5 }, "block size 5"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cfg := namenode.Config{Data: filepath.Join(t.TempDir(), "d"), Listen: "127.0.0.1:0", HTTP: "127.0.0.1:0", Superuser: "root", Supergroup: "g"}
			tc.mod(&cfg)
			s, err := namenode.Start(t.Context(), cfg)
			if err == nil {
				_ = s.Close()
				t.Fatal("it started")
			}
			if !strings.Contains(err.Error(), tc.want) && fserror.ReasonOf(err) != tc.want {
				t.Fatalf("the error does not say %q: %v", tc.want, err)
			}
		})
	}
}

func TestFolderOfAnotherFormat(t *testing.T) {
	for _, tc := range []struct{ name, file, content, want string }{
		{"newer", "VERSION", "format = 99\nnamespace = \"00112233445566778899aabbccddeeff\"\n", "feature level 99"},
		{"damaged", "VERSION", "\x00\x01garbage", "VERSION"},
		{"no namespace", "VERSION", "format = 1\n", "VERSION"},
		{"short secret", "secret", "abc", "secret"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			s := startServer(t, func(c *namenode.Config) { c.Data = dir })
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, tc.file), []byte(tc.content), 0o600); err != nil {
				t.Fatal(err)
			}
			s, err := namenode.Start(t.Context(), namenode.Config{Data: dir, Listen: "127.0.0.1:0", HTTP: "127.0.0.1:0", Superuser: "root", Supergroup: "g"})
			if err == nil {
				_ = s.Close()
				t.Fatal("it started")
			}
			if !strings.Contains(err.Error(), tc.want) && fserror.ReasonOf(err) != tc.want {
				t.Fatalf("the error does not say %q: %v", tc.want, err)
			}
		})
	}
}

// TestJournalGone: a journal that lost all or its last segments must not start,
// as an empty namespace or as an older one.
func TestJournalGone(t *testing.T) {
	for _, tc := range []struct {
		name  string
		image bool
		gone  func(dir string) error
	}{
		{"folder", false, func(dir string) error { return os.RemoveAll(filepath.Join(dir, "journal")) }},
		{"segments", false, func(dir string) error { return removeAll(filepath.Join(dir, "journal", "*.log")) }},
		{"folder, with an image", true, func(dir string) error { return os.RemoveAll(filepath.Join(dir, "journal")) }},
		{"older than the image", true, func(dir string) error {
			if err := os.RemoveAll(filepath.Join(dir, "journal")); err != nil {
				return err
			}
			return os.CopyFS(filepath.Join(dir, "journal"), os.DirFS(filepath.Join(dir, "..", "early")))
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			base := t.TempDir()
			dir := filepath.Join(base, "data")
			s := startServer(t, func(c *namenode.Config) { c.Data = dir })
			connect(t, s.Addr(), "a").create("/f")
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if err := os.CopyFS(filepath.Join(base, "early"), os.DirFS(filepath.Join(dir, "journal"))); err != nil {
				t.Fatal(err)
			}
			s = startServer(t, func(c *namenode.Config) { c.Data = dir })
			r := connect(t, s.Addr(), "b")
			r.create("/g")
			if tc.image {
				if _, err := r.admin.Checkpoint(t.Context(), &pb.CheckpointRequest{Caller: r.caller()}); err != nil {
					t.Fatal(err)
				}
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if err := tc.gone(dir); err != nil {
				t.Fatal(err)
			}
			s, err := namenode.Start(t.Context(), namenode.Config{Data: dir, Listen: "127.0.0.1:0", HTTP: "127.0.0.1:0", Superuser: "root", Supergroup: "g"})
			if err == nil {
				_ = s.Close()
				t.Fatal("it started without its journal")
			}
			if !strings.Contains(err.Error(), "journal") || !strings.Contains(err.Error(), "backup") {
				t.Fatal(err)
			}
		})
	}
}

// TestJournalOfABackupGone: a backup needs no journal to be started on, but has one from then on.
func TestJournalOfABackupGone(t *testing.T) {
	t.Parallel()
	n := env.Start(t)
	r := n.Raw(t, "a")
	r.Make("/1")
	dir := t.TempDir()
	if err := backupTo(t, r, dir, nil); err != nil {
		t.Fatal(err)
	}
	used := env.Start(t, func(c *namenode.Config) { c.Data = dir })
	used.Raw(t, "b").Make("/2")
	used.Stop(t)
	if err := os.RemoveAll(filepath.Join(dir, "journal")); err != nil {
		t.Fatal(err)
	}
	s, err := namenode.Start(t.Context(), used.Config())
	if err == nil {
		_ = s.Close()
		t.Fatal("it started without its journal")
	}
	if !errors.Is(err, fserror.Damaged) || !strings.Contains(err.Error(), "no journal segments") {
		t.Error(err)
	}
}

func removeAll(pattern string) error {
	all, err := filepath.Glob(pattern)
	for _, name := range all {
		err = errors.Join(err, os.Remove(name))
	}
	return err
}

func TestBadPaths(t *testing.T) {
	s := startServer(t)
	r := connect(t, s.Addr(), "a")
	for _, tc := range []struct {
		name, path string
		want       fserror.Kind
	}{
		{"empty", "", fserror.InvalidPath},
		{"relative", "a/b", fserror.InvalidPath},
		{"dot", "/a/./b", fserror.InvalidPath},
		{"dot dot", "/a/../b", fserror.InvalidPath},
		{"NUL", "/a\x00b", fserror.InvalidPath},
		{"doubled slash", "/a//b", fserror.InvalidPath},
		{"256 bytes", "/" + strings.Repeat("x", 256), fserror.NameTooLong},
		{"10,000 deep", strings.Repeat("/d", 10_000), fserror.NameTooLong},
		{"100,000 bytes", "/" + strings.Repeat("abcdefg/", 12_500) + "x", fserror.NameTooLong},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := r.nn.Create(t.Context(), &pb.CreateRequest{Call: r.call(), Caller: r.caller(), At: pb.At(tc.path), Parents: true})
			if err = wire.FromStatus(err); !errors.Is(err, tc.want) {
				t.Errorf("create: %v, want %v", err, tc.want)
			}
			_, err = r.nn.Stat(t.Context(), &pb.StatRequest{Caller: r.caller(), At: pb.At(tc.path)})
			if err = wire.FromStatus(err); !errors.Is(err, tc.want) {
				t.Errorf("stat: %v, want %v", err, tc.want)
			}
		})
	}
	longest := "/" + strings.Repeat("x", 255)
	r.create(longest)
}

func TestBadRequests(t *testing.T) {
	s := startServer(t)
	r := connect(t, s.Addr(), "a")
	w := r.create("/f")
	data := []byte("x")
	for _, tc := range []struct {
		name string
		call func(ctx context.Context) error
		want codes.Code
	}{
		{"no call id", func(ctx context.Context) error {
			_, err := r.nn.Mkdir(ctx, &pb.MkdirRequest{Caller: r.caller(), At: pb.At("/d")})
			return err
		}, codes.InvalidArgument},
		{"short session", func(ctx context.Context) error {
			_, err := r.nn.Mkdir(ctx, &pb.MkdirRequest{Call: &pb.CallId{Session: []byte("x"), Seq: 1}, Caller: r.caller(), At: pb.At("/d")})
			return err
		}, codes.InvalidArgument},
		{"acked beyond", func(ctx context.Context) error {
			_, err := r.nn.Mkdir(ctx, &pb.MkdirRequest{Call: &pb.CallId{Session: r.session, Seq: 5, Acked: 9}, Caller: r.caller(), At: pb.At("/d")})
			return err
		}, codes.InvalidArgument},
		{"no user", func(ctx context.Context) error {
			_, err := r.nn.Stat(ctx, &pb.StatRequest{At: pb.At("/")})
			return err
		}, codes.InvalidArgument},
		{"no writer", func(ctx context.Context) error {
			_, err := r.nn.AppendTail(ctx, &pb.AppendTailRequest{Data: data, Crc32C: crc(data)})
			return err
		}, codes.InvalidArgument},
		{"wrong token", func(ctx context.Context) error {
			_, err := r.nn.AppendTail(ctx, &pb.AppendTailRequest{Writer: &pb.WriterId{Inode: w.GetInode(), Epoch: w.GetEpoch(), Token: make([]byte, 16)}, Data: data, Crc32C: crc(data)})
			return err
		}, codes.Aborted},
		{"wrong checksum", func(ctx context.Context) error {
			_, err := r.nn.AppendTail(ctx, &pb.AppendTailRequest{Writer: w, Data: data, Crc32C: 1})
			return err
		}, codes.InvalidArgument},
		{"negative offset", func(ctx context.Context) error {
			_, err := r.nn.AppendTail(ctx, &pb.AppendTailRequest{Writer: w, Offset: -1, Data: data, Crc32C: crc(data)})
			return err
		}, codes.InvalidArgument},
		{"message over the limit", func(ctx context.Context) error {
			_, err := r.nn.AppendTail(ctx, &pb.AppendTailRequest{Writer: w, Data: make([]byte, serve.MaxMessage+1)})
			return err
		}, codes.ResourceExhausted},
		{"block of nothing", func(ctx context.Context) error {
			_, err := r.nn.AllocateBlock(ctx, &pb.AllocateBlockRequest{Writer: w, Blocks: []*pb.BlockIntent{{StoredLength: 3}}})
			return err
		}, codes.InvalidArgument},
		{"commit of a block that was never put", func(ctx context.Context) error {
			_, err := r.nn.Commit(ctx, &pb.CommitRequest{Writer: w, Block: &pb.Block{Term: 1, Seq: 77, StoredLength: 14, UsedLength: 10}})
			return err
		}, codes.InvalidArgument},
		{"mode", func(ctx context.Context) error {
			_, err := r.nn.Mkdir(ctx, &pb.MkdirRequest{Call: r.call(), Caller: r.caller(), At: pb.At("/d"), HasMode: true, Mode: 0o70000})
			return err
		}, codes.InvalidArgument},
		{"session without hello", func(ctx context.Context) error {
			st, err := r.nn.Session(ctx)
			if err != nil {
				return err
			}
			if err := st.Send(&pb.SessionRequest{Kind: &pb.SessionRequest_Renew{Renew: &pb.RenewLeaseRequest{}}}); err != nil {
				return err
			}
			_, err = st.Recv()
			return err
		}, codes.InvalidArgument},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := tc.call(t.Context())
			if status.Code(err) != tc.want {
				t.Fatalf("%v, want %v", err, tc.want)
			}
			if status.Convert(err).Message() == "" {
				t.Fatal("the error says nothing")
			}
		})
	}
	if err := r.flush(w, 0, "still writable"); err != nil {
		t.Fatalf("the writer suffered from bad requests: %v", err)
	}
}

// TestHalfRequests: connections that break off in the middle do not
// stop a namenode.
func TestHalfRequests(t *testing.T) {
	s := startServer(t)
	for _, addr := range []string{s.Addr(), s.HTTPAddr()} {
		for _, half := range []string{"", "PUT /v1/blocks/x HTTP/1.1\r\nContent-Le", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\xff", "\x00\x01\x02\x03\xff\xfe"} {
			c, err := net.Dial("tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.WriteString(c, half)
			_ = c.Close()
		}
	}
	r := connect(t, s.Addr(), "a")
	r.create("/after")
}

func TestPages(t *testing.T) {
	s := startServer(t)
	for path, want := range map[string]string{
		"/healthz": "ok", "/readyz": "ok", "/activez": "ok", "/metrics": "leasefs_ready 1",
	} {
		if code, body := page(t, s.HTTPAddr(), path); code != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("%s: %d %.200s", path, code, body)
		}
	}
	if _, body := page(t, s.HTTPAddr(), "/metrics"); !regexp.MustCompile(`(?m)^leasefs_build_info\{goversion="go[^"]+",version="dev"\} 1$`).MatchString(body) {
		t.Error("/metrics does not say which version serves them")
	}
	if code, _ := page(t, s.HTTPAddr(), "/debug/pprof/"); code != http.StatusNotFound {
		t.Errorf("profiles are served without being asked for: %d", code)
	}
}

// page asks a namenode for one of its pages.
func page(t testing.TB, addr, path string) (code int, body string) {
	t.Helper()
	resp, err := http.Get("http://" + addr + path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// What callers are called is shown on the terminals of others: it can be printed. And
// a time to live is within its limits however it would be computed.
func TestCallersNamesArePrintable(t *testing.T) {
	t.Parallel()
	n := env.Start(t)
	good := n.Raw(t, "good")
	for what, mod := range map[string]func(*pb.Caller){
		"user":            func(c *pb.Caller) { c.User = "root\x1b[2J" },
		"client":          func(c *pb.Caller) { c.Client = "a\nlease 1: granted to b" },
		"host":            func(c *pb.Caller) { c.Host = "h\x1b]0;title\a" },
		"direction":       func(c *pb.Caller) { c.Host = "\u202etsoh" },
		"length":          func(c *pb.Caller) { c.Host = strings.Repeat("h", 256) },
		"time to live":    func(c *pb.Caller) { c.TtlMs = 1<<58 + 1000 }, // a second, in 64 bits of nanoseconds
		"negative":        func(c *pb.Caller) { c.TtlMs = -1 },
		"more than hours": func(c *pb.Caller) { c.TtlMs = 1 << 62 },
	} {
		bad := n.Raw(t, "bad")
		mod(bad.Who)
		if _, err := bad.NN.Create(t.Context(), &pb.CreateRequest{Call: bad.Call(), Caller: bad.Who, At: pb.At("/" + what)}); !errors.Is(err, fserror.InvalidArgument) {
			t.Errorf("%s: %v", what, err)
		}
	}
	good.Create("/mine")
	for what, req := range map[string]*pb.SetAttrRequest{"owner": {User: "x\x1b[2J"}, "group": {Group: "x\n"}} {
		req.Call, req.Caller, req.At = good.Call(), good.Who, pb.At("/mine")
		if _, err := good.NN.SetAttr(t.Context(), req); !errors.Is(err, fserror.InvalidArgument) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
