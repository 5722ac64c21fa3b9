package crash

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/vfs"
	"github.com/leasefs/leasefs/namenode"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

const (
	dataDir  = "/srv/data"
	urlLife  = 15 * time.Minute
	patience = 2 * time.Minute // for what takes milliseconds; the sweeps run at a low priority
)

// epoch is when the first machine of a run is switched on.
var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// machine is a running namenode and a way to talk to it.
type machine struct {
	disk  vfs.FS
	clock *clock.Fake
	log   *logbook
	nn    *namenode.Server
	cc    *grpc.ClientConn
	api   pb.NamenodeClient
	admin pb.AdminClient
	web   *http.Client
	pipe  *http.Transport
}

// logbook keeps what the namenode logs, and above all the faults of its own.
type logbook struct {
	mu     sync.Mutex
	lines  []string
	faults []string
}

func (l *logbook) Enabled(context.Context, slog.Level) bool { return true }
func (l *logbook) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l *logbook) WithGroup(string) slog.Handler            { return l }
func (l *logbook) Handle(_ context.Context, r slog.Record) error {
	var b strings.Builder
	b.WriteString(r.Message)
	r.Attrs(func(a slog.Attr) bool { fmt.Fprintf(&b, " %s=%v", a.Key, a.Value); return true })
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, b.String())
	if strings.Contains(r.Message, "panicked") || strings.Contains(r.Message, "does not apply") || strings.Contains(r.Message, "was missing in the lease table") {
		l.faults = append(l.faults, b.String())
	}
	return nil
}

func (l *logbook) has(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.lines, func(s string) bool { return strings.Contains(s, text) })
}

func (l *logbook) fault() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.faults, "\n")
}

// option changes how a namenode is configured.
type option func(*namenode.Config)

// boot switches a machine on at a time of day.
func boot(disk vfs.FS, wall time.Time, opts ...option) (*machine, error) {
	m := &machine{disk: disk, clock: new(clock.Fake), log: new(logbook)}
	m.clock.ShiftWall(wall.Sub(m.clock.Wall()))
	cfg := namenode.Config{
		Data: dataDir, Listen: "127.0.0.1:0", HTTP: "127.0.0.1:0", FS: disk, Clock: m.clock,
		Superuser: "root", Supergroup: "wheel", Groups: func(string) []string { return nil },
		LeaseTimes: namenode.LeaseTimes{HardLimit: 100_000 * time.Hour}, URLLife: urlLife, BlockSize: blockstore.ChunkSize, Limits: namenode.Limits{MaxTail: 16 << 10, Reserve: 1, MemoryLimit: 1 << 50},
		JournalAhead: 2 << 10, Upkeep: namenode.Upkeep{CheckpointEvery: 100_000 * time.Hour}, Logger: slog.New(m.log),
	}
	for _, o := range opts {
		o(&cfg)
	}
	var err error
	if m.nn, err = namenode.Start(context.Background(), cfg); err != nil {
		return m, err
	}
	m.cc, err = grpc.NewClient("passthrough:"+m.nn.Addr(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 10 * time.Millisecond, MaxDelay: 50 * time.Millisecond, Multiplier: 2}, MinConnectTimeout: patience}))
	if err != nil {
		return m, errors.Join(err, m.nn.Close())
	}
	m.api, m.admin = pb.NewNamenodeClient(m.cc), pb.NewAdminClient(m.cc)
	m.pipe = &http.Transport{DisableCompression: true}
	m.web = &http.Client{Transport: m.pipe, Timeout: patience}
	if cfg.HardLimit > time.Hour {
		// Sessions have had their time to come back after a restart.
		m.clock.Advance(10 * time.Second)
	}
	if err := m.connect(); err != nil {
		return m, errors.Join(err, m.halt())
	}
	return m, nil
}

// connect waits for the connection, which calls fail without: the namenode gives up a handshake
// in which the process gets no processor for ten seconds.
func (m *machine) connect() error {
	ctx, cancel := background()
	defer cancel()
	for s := m.cc.GetState(); s != connectivity.Ready; s = m.cc.GetState() {
		m.cc.Connect()
		if !m.cc.WaitForStateChange(ctx, s) {
			return fmt.Errorf("no connection to the namenode: it is %s", s)
		}
	}
	return nil
}

// halt ends the namenode in order, as far as its disk lets it.
func (m *machine) halt() error {
	if m.nn == nil {
		return nil
	}
	_ = m.cc.Close()
	m.pipe.CloseIdleConnections()
	done := make(chan error, 1)
	go func() { done <- m.nn.Close() }()
	select {
	case err := <-done:
		if f := m.log.fault(); f != "" {
			return fmt.Errorf("the namenode found a fault of its own: %s", f)
		}
		return err
	case <-time.After(patience):
		return errors.New("the namenode does not end")
	}
}

// background has a limit far beyond what any call may take.
func background() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), patience)
}

var root = &pb.Caller{User: "root", Client: "checker", Session: []byte("checker-session-"), Host: "h", Pid: 1}

// state reads the whole namespace, as a client would.
func (m *machine) state() (*model, error) {
	ctx, cancel := background()
	defer cancel()
	got := &model{nodes: map[string]*node{}, bin: map[string]*node{}}
	safe, err := m.admin.SafeMode(ctx, &pb.SafeModeRequest{Caller: root, Action: pb.SafeModeRequest_ACTION_GET})
	if err != nil {
		return nil, err
	}
	got.safe = safe.GetOn()
	err = m.everything(ctx, "/", func(path string, a *pb.Attr) (err error) {
		n := &node{typ: a.GetType(), mode: a.GetMode(), target: a.GetLinkTarget(), mtime: a.GetMtimeUnixMs(), inode: a.GetInode(), snapshots: a.GetSnapshots()}
		if o := a.GetOpen(); o != nil {
			n.open = &writer{session: string(o.GetHolder().GetSession()), id: &pb.WriterId{Inode: a.GetInode(), Epoch: o.GetEpoch()}}
		}
		if a.GetXattrs() > 0 {
			x, err := m.api.Xattrs(ctx, &pb.XattrsRequest{Caller: root, At: pb.Inode(a.GetInode())})
			if err != nil {
				return err
			}
			for _, x := range x.GetXattrs() {
				n.xattr += x.GetName() + "=" + string(x.GetValue()) + " "
			}
		}
		if n.typ == file {
			if n.data, err = m.content(ctx, a.GetInode()); err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			if int64(len(n.data)) != a.GetLength() {
				return fmt.Errorf("%s has %d bytes, its length is %d", path, len(n.data), a.GetLength())
			}
		}
		if past(path) {
			n.inode &= 1<<44 - 1 // the live one's
		}
		got.nodes[path] = n
		return nil
	})
	if err != nil {
		return nil, err
	}
	trash, err := m.api.ListTrash(ctx, &pb.ListTrashRequest{Caller: root, All: true})
	if err != nil {
		return nil, err
	}
	for _, e := range trash.GetEntries() {
		a := e.GetAttr()
		got.bin[e.GetPath()] = &node{typ: a.GetType(), mode: a.GetMode(), cut: a.GetLength()}
	}
	return got, m.quotas(ctx, got)
}

// content reads a file: blocks by their URLs, each verified, and the tail.
func (m *machine) content(ctx context.Context, inode uint64) (string, error) {
	f, err := m.api.GetFile(ctx, &pb.GetFileRequest{Caller: root, At: pb.Inode(inode)})
	if err != nil {
		return "", err
	}
	if f.GetMoreBlocks() {
		return "", errors.New("more blocks than this reader asks for")
	}
	var b strings.Builder
	for _, blk := range f.GetBlocks() {
		object, status, err := m.fetch(ctx, http.MethodGet, blk.GetUrl(), blk.GetHeaders(), nil)
		key := blockstore.Key{Term: blk.GetTerm(), Seq: blk.GetSeq()}
		if err == nil && status != http.StatusOK {
			err = fmt.Errorf("block %s: %d %s", key, status, object)
		}
		if err == nil {
			err = blockstore.Verify(key, object, blk.GetCrc32C())
		}
		if err != nil {
			return "", err
		}
		b.Write(object[:blk.GetUsedLength()])
	}
	if crc(f.GetTail()) != f.GetTailCrc32C() {
		return "", errors.New("the tail's checksum is wrong")
	}
	b.Write(f.GetTail())
	return b.String(), nil
}

// fetch sends a signed request to this machine, whichever it was signed by. It asks again when
// a connection is cut, as the library does.
func (m *machine) fetch(ctx context.Context, method, to string, headers map[string]string, body []byte) (answer []byte, status int, err error) {
	for range 3 {
		if answer, status, err = m.fetchOnce(ctx, method, to, headers, body); err == nil || status != 0 {
			break
		}
	}
	return answer, status, err
}

func (m *machine) fetchOnce(ctx context.Context, method, to string, headers map[string]string, body []byte) ([]byte, int, error) {
	u, err := url.Parse(to)
	if err != nil {
		return nil, 0, err
	}
	u.Host = m.nn.HTTPAddr()
	req, err := blockstore.Signed{Method: method, URL: u.String()}.NewRequest(ctx, body)
	if err != nil {
		return nil, 0, err
	}
	for k, v := range headers {
		if k != "Content-Length" {
			req.Header.Set(k, v)
		}
	}
	resp, err := m.web.Do(req)
	if err != nil {
		return nil, 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	return answer, resp.StatusCode, err
}

// referenced is the set of blocks that files have, also those in snapshots.
func (m *machine) referenced() (map[blockstore.Key]bool, error) {
	ctx, cancel := background()
	defer cancel()
	keys := map[blockstore.Key]bool{}
	return keys, m.everything(ctx, "/", func(_ string, a *pb.Attr) error {
		if a.GetBlocks() == 0 {
			return nil
		}
		f, err := m.api.GetFile(ctx, &pb.GetFileRequest{Caller: root, At: pb.Inode(a.GetInode()), NoUrls: true})
		for _, b := range f.GetBlocks() {
			keys[blockstore.Key{Term: b.GetTerm(), Seq: b.GetSeq()}] = true
		}
		return err
	})
}

// walkDisk calls fn for every file of a disk.
func walkDisk(disk vfs.FS, dir string, fn func(name string)) error {
	names, err := disk.List(dir)
	if err != nil {
		return err
	}
	for _, n := range names {
		p := path.Join(dir, n)
		in, err := disk.Stat(p)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return err
		case in.IsDir():
			if err := walkDisk(disk, p, fn); err != nil {
				return err
			}
		default:
			fn(p)
		}
	}
	return nil
}

// blocks is the folder of this namespace's blocks.
func (m *machine) blocks() (string, error) {
	ctx, cancel := background()
	defer cancel()
	st, err := m.admin.Status(ctx, &pb.StatusRequest{Caller: root})
	return dataDir + "/blocks/" + st.GetNamespaceId(), err
}

// stored is the set of blocks that are on the disk. Those of a format that was
// broken off have another namespace id.
func (m *machine) stored() (map[blockstore.Key]bool, error) {
	dir, err := m.blocks()
	if err != nil {
		return nil, err
	}
	keys := map[blockstore.Key]bool{}
	err = walkDisk(m.disk, dir, func(name string) {
		seq, ok := strings.CutSuffix(path.Base(name), ".blk")
		if !ok {
			return
		}
		term := path.Base(path.Dir(path.Dir(name)))
		t, err1 := strconv.ParseUint(term, 16, 64)
		s, err2 := strconv.ParseUint(seq, 16, 64)
		if err1 == nil && err2 == nil {
			keys[blockstore.Key{Term: t, Seq: s}] = true
		}
	})
	return keys, err
}

// collected lets all URLs end and the collector run, until the store has
// exactly what files have. Reclaiming a deleted folder continues in the background, so it
// may take a few rounds.
func (m *machine) collected() error {
	over := time.NewTimer(patience)
	defer over.Stop()
	for round := 0; ; round++ {
		// In this order: the namenode may seal a tail meanwhile, into a new block,
		// and nothing is deleted before collect.
		want, err := m.referenced()
		if err != nil {
			return err
		}
		have, err := m.stored()
		if err != nil {
			return err
		}
		trash, err := m.api.ListTrash(context.Background(), &pb.ListTrashRequest{Caller: root, All: true})
		if err != nil {
			return err
		}
		var lost, left []string
		for k := range want {
			if !have[k] {
				lost = append(lost, k.String())
			}
		}
		for k := range have {
			if !want[k] && len(trash.GetEntries()) == 0 { // else it may be of what can be restored
				left = append(left, k.String())
			}
		}
		switch {
		case len(lost) > 0:
			return fmt.Errorf("blocks %v of files are not in the store", lost)
		case len(left) == 0 && round >= 2:
			return nil
		}
		select {
		case <-over.C:
			return fmt.Errorf("blocks %v belong to no file and are not collected", left)
		default:
		}
		m.endURLs()
		if err := m.collect(); err != nil {
			return err
		}
	}
}

// endURLs moves the clock on until all URLs handed out so far are over. The
// results of calls are forgotten by then, so no call may be under way.
func (m *machine) endURLs() { m.clock.Advance(urlLife + 2*time.Minute) }

func (m *machine) collect() error {
	ctx, cancel := background()
	defer cancel()
	_, err := m.admin.Collect(ctx, &pb.CollectRequest{Caller: root})
	return err
}

// fsck wants no problem.
func (m *machine) fsck() error {
	ctx, cancel := background()
	defer cancel()
	stream, err := m.admin.Fsck(ctx, &pb.FsckRequest{Caller: root, Blocks: true})
	if err != nil {
		return err
	}
	var problems []string
	for {
		r, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if p := r.GetProblem(); p != "" {
			problems = append(problems, r.GetPath()+": "+p)
		}
	}
	if len(problems) > 0 {
		return fmt.Errorf("fsck: %s", strings.Join(problems, "; "))
	}
	return nil
}

// litter is what unfinished work left on the disk for good. Blocks of a format
// that was broken off belong to another namespace, which nobody may touch.
func (m *machine) litter() ([]string, error) {
	dir, err := m.blocks()
	if err != nil {
		return nil, err
	}
	var out []string
	err = walkDisk(m.disk, dataDir, func(name string) {
		foreign := strings.HasPrefix(name, dataDir+"/blocks/") && !strings.HasPrefix(name, dir)
		if !foreign && (strings.HasSuffix(name, ".tmp") || path.Base(name) == "FORMATTING") {
			out = append(out, name)
		}
	})
	return out, err
}
