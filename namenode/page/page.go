// Package page is the web page of a namenode: who holds what, the tree, the fleet, rates and
// changes, for people. The browser gets static files, which are part of the program, and asks
// by POST with JSON below /page/api/. All of that but figures and the list of the fleet are
// calls of the namenode's own services, made by Config.Call: the page has no rights of its own, and no rule
// of who may do what is written here.
//
//   - /page/api/call/METHOD: one of the methods in calls.go; the request and the answer are
//     the messages of the wire contract, as JSON. A stream is a line of JSON for each message.
//   - /page/api/read: a part of a file's content, also while it grows.
//   - /page/api/fleet: the namenodes of the namespace.
//   - /page/api/figures: what was measured in the last hour.
//
// These paths are the page's own, and change with it.
package page

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"io"
	"io/fs"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"

	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/turn"
	"github.com/leasefs/leasefs/namenode/share"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// Hosts are the names by which a namenode with these addresses is reached, that of its
// machine among them.
func Hosts(addrs ...string) (names []string) {
	if host, err := os.Hostname(); err == nil {
		names = append(names, host)
	}
	for _, at := range addrs {
		if host, _, err := net.SplitHostPort(at); err == nil && host != "" {
			names = append(names, host)
		}
	}
	return names
}

// Config is what a page works with. All is required but Hosts.
type Config struct {
	Clock clock.Clock
	// Call makes a call of the namenode's services for who sent the request of ctx.
	Call func(ctx context.Context, method string, req proto.Message, take func(proto.Message) error) error
	// Fetch reads a block, checked, as it is stored: its data, then their checksums.
	Fetch func(ctx context.Context, b *pb.Block) ([]byte, error)
	// Fleet lists the namenodes of the namespace, the active one first; none of a namenode alone.
	Fleet func(ctx context.Context) ([]Member, error)
	// Rates are the namenode's metrics.
	Rates prometheus.Gatherer
	// Soft and Hard are the limits of leases that have none of their own.
	Soft, Hard time.Duration
	// Believes says that callers are believed who they are. Then the page must be asked for
	// by an address, or by one of Hosts: a name that somebody else can lead to this machine
	// would let his pages act here.
	Believes bool
	Hosts    []string
}

// Page serves the page. It is safe for concurrent use.
type Page struct {
	cfg     Config
	mux     *http.ServeMux
	cross   *http.CrossOriginProtection
	fetches *share.Turns // of blocks that are read here
	fleet   fleet
	figures figures
}

// maxFetches is how many blocks are read at once, each of which is in memory meanwhile.
const maxFetches = 2

// New returns the page.
func New(cfg Config) *Page {
	p := &Page{cfg: cfg, mux: http.NewServeMux(), cross: http.NewCrossOriginProtection(), fetches: share.NewTurns(maxFetches)}
	p.fleet.turn, p.figures.last = turn.New(), cfg.Clock.Mono()
	p.mux.HandleFunc("GET /page/{file...}", p.static)
	p.mux.HandleFunc("POST /page/api/call/{method}", p.api(p.call))
	p.mux.HandleFunc("POST /page/api/read", p.api(p.read))
	p.mux.HandleFunc("POST /page/api/fleet", p.api(p.tellFleet))
	p.mux.HandleFunc("POST /page/api/figures", p.api(p.tellFigures))
	return p
}

// policy lets the page load its own files and nothing else, run no script and use no style
// that is written into a page, and be shown in no other page. Text cannot become HTML either.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// ServeHTTP implements http.Handler.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	if err := p.mayBeHere(r); err != nil {
		http.Error(w, err.Error(), http.StatusMisdirectedRequest)
		return
	}
	p.mux.ServeHTTP(w, r)
}

// mayBeHere refuses a name that is not this machine's, where callers are believed: a page of
// somebody else would be of the same origin as this one if his name led here.
func (p *Page) mayBeHere(r *http.Request) error {
	if !p.cfg.Believes {
		return nil
	}
	host := r.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	is := func(name string) bool { return strings.EqualFold(name, host) } // browsers write names in lower case
	if _, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil || is("localhost") || slices.ContainsFunc(p.cfg.Hosts, is) {
		return nil
	}
	return fserror.New(fserror.Permission, "", "", "%q is not a name of this namenode, which believes who its callers are: ask for the page by the namenode's address", host)
}

//go:embed static
var embedded embed.FS

// file is a static file.
type file struct {
	data      []byte
	tag, kind string
}

var files = func() map[string]file {
	all := map[string]file{}
	err := fs.WalkDir(embedded, "static", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := embedded.ReadFile(name)
		sum := sha256.Sum256(data)
		all[strings.TrimPrefix(name, "static/")] = file{data, `"` + hex.EncodeToString(sum[:8]) + `"`, kinds[path.Ext(name)]}
		return err
	})
	if err != nil {
		panic(err) // it is part of the program
	}
	return all
}()

// kinds are the types of static files, whatever the machine's own table of them has.
var kinds = map[string]string{
	".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml",
}

// static serves the files of the page.
func (p *Page) static(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("file")
	if name == "" {
		name = "index.html"
	}
	f, ok := files[name]
	if !ok {
		http.Error(w, "there is no such file; the page is at /page/", http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", f.kind)
	w.Header().Set("Cache-Control", "no-cache") // ask whether it has changed
	w.Header().Set("Etag", f.tag)
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(patience))
	http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(f.data))
}

const (
	// maxAsked is how many bytes what is asked for may have.
	maxAsked = 64 << 10
	// patience is how long a browser may take to send what it asks for, and to take a part of
	// an answer.
	patience = 30 * time.Second
	// maxWait is how long an answer may take that is no stream.
	maxWait = time.Minute
)

// asked is what a browser sends.
type asked struct {
	// User is who asks, which he has to prove where that is needed.
	User string `json:"user"`
	// Tab is what tells this tab of a browser from others: pb.RandomSessionBytes random bytes.
	Tab     []byte          `json:"tab"`
	Request json.RawMessage `json:"request"`
}

// session is the id of the tab's session, which is the user's.
func (a *asked) session() []byte { return pb.SessionFor(a.User, [pb.RandomSessionBytes]byte(a.Tab)) }

// caller is who asks, for a call.
func (a *asked) caller(r *http.Request) *pb.Caller {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	return &pb.Caller{User: a.User, Client: "page", Session: a.session(), Host: host}
}

// answers writes the answer to what was asked, once or, of a stream, for each part.
type answers func(v []byte) error

// api serves what the page's scripts ask for. Only they can: a request of another page would
// have to say so, and have a type that needs permission to be sent.
func (p *Page) api(serve func(r *http.Request, a *asked, answer answers) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var mu sync.Mutex // a stream that is given up may still be answering
		told, over := false, false
		rc := http.NewResponseController(w)
		answer := func(v []byte) error {
			mu.Lock()
			defer mu.Unlock()
			if over {
				return fserror.New(fserror.Closed, "", "", "the answer is over")
			}
			if !told {
				told = true
				w.Header().Set("Content-Type", "application/json")
			}
			_ = rc.SetWriteDeadline(time.Now().Add(patience)) // who reads nothing is cut off
			if _, err := w.Write(append(v, '\n')); err != nil {
				return err
			}
			return rc.Flush()
		}
		a, err := p.ask(rc, w, r)
		if err == nil {
			err = serve(r, a, answer)
		}
		if err != nil && r.Context().Err() == nil {
			mu.Lock()
			if !told {
				told = true
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(statusOf(err))
			}
			mu.Unlock()
			_ = answer(wrong(err)) // of a stream its last line
		}
		mu.Lock()
		over = true
		mu.Unlock()
	}
}

// ask reads what is asked for.
func (p *Page) ask(rc *http.ResponseController, w http.ResponseWriter, r *http.Request) (*asked, error) {
	if err := p.cross.Check(r); err != nil {
		return nil, fserror.New(fserror.Permission, "", "", "this request comes from another page: %v", err)
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return nil, fserror.New(fserror.Permission, "", "", "the request is of type %q; only application/json is taken, which other pages cannot send", r.Header.Get("Content-Type"))
	}
	_ = rc.SetReadDeadline(time.Now().Add(patience))
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxAsked))
	_ = rc.SetReadDeadline(time.Time{})
	if err != nil {
		return nil, fserror.New(fserror.InvalidArgument, "", "", "the request could not be read (%v); it has at most %d bytes", err, maxAsked)
	}
	a := new(asked)
	if err := json.Unmarshal(body, a); err != nil {
		return nil, fserror.New(fserror.InvalidArgument, "", "", "the request is no JSON of the page: %v", err)
	}
	if len(a.Tab) != pb.RandomSessionBytes {
		return nil, fserror.New(fserror.InvalidArgument, "", "", "the request has %d bytes that tell the tab, not %d: it is of a page of another build; load the page again", len(a.Tab), pb.RandomSessionBytes)
	}
	return a, nil
}

// knows makes sure that who asks may ask anything: what follows is no call.
func (p *Page) knows(r *http.Request, a *asked) error {
	return p.cfg.Call(r.Context(), pb.Admin_Status_FullMethodName, &pb.StatusRequest{Caller: a.caller(r)}, func(proto.Message) error { return nil })
}
