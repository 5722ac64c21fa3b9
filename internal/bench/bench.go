package bench

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/callstream"
	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/login"
	"github.com/leasefs/leasefs/internal/namecall"
	"github.com/leasefs/leasefs/internal/proof"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// Config says what to measure. Zero values stand for defaults.
type Config struct {
	Client  client.Config
	Run     []string // names of workloads; empty: all
	Workers int      // calls under way at once; 32
	N       int      // operations of a namespace workload; others are scaled from it; 10,000
	Conns   int      // gRPC connections; 4
	Rate    int      // operations a second of a namespace workload; 0: as fast as it goes
	MB      int      // MiB of seqwrite and seqread; 1,024
	Dir     string   // must not exist; default /bench- and a random part
	DataDir string   // a folder on this machine's disk to time fdatasync in; empty: not timed
	Files   int      // empty files that are there besides
	Leases  int      // granted leases that are there besides, and are kept alive
	// Step, if set, is called before each workload with its number.
	Step func(name string, number int)
}

// Row is the result of one workload.
type Row struct {
	Name    string
	Ops     int64         // operations that were timed
	Seconds float64       // from the first one's begin to the last one's end
	P50     time.Duration // of one operation; 0 if it is not meaningful
	P99     time.Duration
	Bytes   int64  // moved by throughput workloads
	Note    string // what an operation is
}

// Rate is operations a second.
func (r Row) Rate() float64 {
	if r.Seconds <= 0 {
		return 0
	}
	return float64(r.Ops) / r.Seconds
}

// workload is one row's work.
type workload struct {
	name string
	run  func(*runner, context.Context) (Row, error)
}

// workloads run in this order: later ones use what earlier ones made.
var workloads = []workload{
	{"health", (*runner).health},
	{"mkdirs", (*runner).mkdirs},
	{"create", (*runner).create},
	{"stat", (*runner).stat},
	{"open", (*runner).open},
	{"list100", (*runner).list100},
	{"rename", (*runner).rename},
	{"delete", (*runner).remove},
	{"renew1", func(r *runner, ctx context.Context) (Row, error) { return r.renew(ctx, 1) }},
	{"renew1000", func(r *runner, ctx context.Context) (Row, error) { return r.renew(ctx, 1000) }},
	{"smallfile", (*runner).smallFile},
	{"fdatasync", (*runner).fdatasync},
	{"flush", func(r *runner, ctx context.Context) (Row, error) { return r.flush(ctx, 1) }},
	{"flush32", func(r *runner, ctx context.Context) (Row, error) { return r.flush(ctx, 32) }},
	{"seqwrite", (*runner).seqWrite},
	{"seqread", (*runner).seqRead},
	{"recover", (*runner).recover},
	{"expiry", (*runner).expiry},
	{"bulkput", (*runner).bulkPut},
	{"bulkrm", (*runner).bulkRemove},
}

// Names are the workloads that Config.Run may list, in the order of their runs.
func Names() []string {
	names := make([]string, len(workloads))
	for i, w := range workloads {
		names[i] = w.name
	}
	return names
}

// Chosen are the workloads that cfg asks for, in the order of their runs; an
// unknown name is an error.
func (c Config) Chosen() ([]string, error) {
	names, err := choose(Names(), c.Run)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(names, func(name string) bool { return name == "fdatasync" && c.DataDir == "" }), nil
}

// cleanupTime is how long the directory is tried to be removed.
const cleanupTime = time.Minute

// Run measures the workloads one after another and hands each row out as soon
// as it is there. It removes what it made, also when ctx ends.
func Run(ctx context.Context, cfg Config, emit func(Row) error) (err error) {
	names, err := cfg.Chosen()
	if err != nil {
		return err
	}
	r, err := newRunner(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := r.close(); err == nil {
			err = cerr
		}
	}()
	if err := r.fill(ctx); err != nil {
		return cmp.Or(context.Cause(ctx), err)
	}
	holding, release := context.WithCancel(ctx)
	defer release()
	kept, err := r.grant(holding)
	if err != nil {
		return cmp.Or(context.Cause(ctx), err)
	}
	defer func() {
		release()
		if kerr := <-kept; err == nil {
			err = kerr
		}
	}()
	for i, w := range slices.DeleteFunc(slices.Clone(workloads), func(w workload) bool { return !slices.Contains(names, w.name) }) {
		if cfg.Step != nil {
			cfg.Step(w.name, i)
		}
		row, err := w.run(r, ctx)
		if err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return fserror.With(err, "bench "+w.name, "")
		}
		row.Name = w.name
		if err := emit(row); err != nil {
			return err
		}
	}
	return nil
}

// runner has the connections, and what workloads leave for later ones.
type runner struct {
	cfg   Config
	dir   string
	fs    *client.FS
	conns []*callstream.Conn
	nn    []pb.NamenodeClient // one a connection

	actors    []*actor // one a worker
	files     int      // made by create
	renamed   bool
	bulkFiles int
	seqDone   bool
}

// actor is one worker's session: its calls are numbered one after another.
type actor struct {
	caller *pb.Caller
	seq    uint64
}

// call numbers the actor's next call. Its earlier ones are all answered.
func (a *actor) call() *pb.CallId {
	a.seq++
	return &pb.CallId{Session: a.caller.GetSession(), Seq: a.seq, Acked: a.seq - 1}
}

func newRunner(ctx context.Context, cfg Config) (*runner, error) {
	for v, d := range map[*int]int{&cfg.Workers: 32, &cfg.N: 10_000, &cfg.Conns: 4, &cfg.MB: 1024} {
		if *v <= 0 {
			*v = d
		}
	}
	if cfg.Dir == "" {
		cfg.Dir = "/bench-" + strings.ToLower(rand.Text()[:8])
	}
	cfg.Client.Conns = cfg.Conns
	r := &runner{cfg: cfg, dir: cfg.Dir}
	var err error
	if r.fs, err = client.New(ctx, cfg.Client); err != nil {
		return nil, err
	}
	if err := r.dial(ctx); err != nil {
		return nil, errorsJoin(err, r.disconnect())
	}
	for range cfg.Workers {
		r.actors = append(r.actors, r.newActor())
	}
	// A directory that was there is refused: it is removed at the end.
	if err := r.fs.Mkdir(ctx, r.dir, 0o755); err != nil {
		return nil, errorsJoin(fserror.With(err, "bench", r.dir), r.disconnect())
	}
	return r, nil
}

func (r *runner) newActor() *actor {
	user := r.fs.Info().User
	session := pb.NewSession(user)
	return &actor{caller: &pb.Caller{
		User: user, Client: fmt.Sprintf("bench-%x", session[:4]), Session: session, Host: "bench", Pid: 1,
	}}
}

// dial opens bare connections to the active namenode.
func (r *runner) dial(ctx context.Context) error {
	list, err := r.fs.Status(ctx)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(list, func(s client.NamenodeStatus) bool { return s.Err == nil && s.Role == "active" })
	if i < 0 {
		return fserror.New(fserror.Unavailable, "bench", "", "no active namenode could be reached")
	}
	creds := insecure.NewCredentials()
	if r.cfg.Client.TLS != nil {
		creds = credentials.NewTLS(r.cfg.Client.TLS)
	}
	opts := append([]grpc.DialOption{grpc.WithTransportCredentials(creds)}, r.cfg.Client.DialOptions...)
	switch cfg := &r.cfg.Client; {
	case cfg.TokenFile != "":
		own, err := proof.OpenOwn(clock.System{}, cfg.TokenFile)
		if err != nil {
			return err
		}
		cfg.Token = func(context.Context) (string, error) { return own.Get().Token, nil }
	case cfg.Login != "":
		l, err := login.Read(cfg.Login) // the session's FS renews it
		if err != nil {
			return err
		}
		cfg.Token = func(context.Context) (string, error) { return l.Token, nil }
	}
	if r.cfg.Client.Token != nil {
		opts = append(opts, grpc.WithPerRPCCredentials(namecall.Bearer(r.cfg.Client.Token)))
	}
	for range r.cfg.Conns {
		c, err := callstream.NewClient("passthrough:///"+list[i].Address, opts...)
		if err != nil {
			return fserror.Wrap(fserror.Unavailable, "bench", list[i].Address, err)
		}
		r.conns = append(r.conns, c)
		r.nn = append(r.nn, pb.NewNamenodeClient(c))
	}
	return nil
}

// of is the namenode as worker w reaches it.
func (r *runner) of(w int) pb.NamenodeClient { return r.nn[w%len(r.nn)] }

// close removes the directory, whatever became of the context.
func (r *runner) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), cleanupTime)
	defer cancel()
	err := r.fs.RemoveAll(ctx, r.dir)
	if err != nil {
		err = fserror.With(err, "bench cleanup", r.dir)
	}
	return errorsJoin(err, r.disconnect())
}

func (r *runner) disconnect() error {
	var err error
	for _, c := range r.conns {
		err = errorsJoin(err, c.Close())
	}
	return errorsJoin(err, r.fs.Close())
}

// errorsJoin is the first of two errors; both are seldom worth two lines.
func errorsJoin(first, second error) error {
	if first != nil {
		return first
	}
	return second
}
