package local

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/vfs"
)

// MinSecret is the least length of Config.Secret in bytes.
const MinSecret = 32

// DefaultMaxPuts is how many PUTs a store takes at a time unless told otherwise.
const DefaultMaxPuts = 64

// Config says where and how a Store keeps its blocks.
type Config struct {
	FS          vfs.FS   // nil is vfs.OS()
	Dir         string   // of all namespaces; made if missing
	NamespaceID [16]byte // the folder in Dir that is used
	// Secret signs URLs: at least MinSecret bytes, the same in all processes
	// that share Dir. Whoever has it can read and write every block.
	Secret []byte
	// BaseURL is what clients reach Handler under, such as
	// "http://host:8020", without the path. It is asked at each signature, for
	// a port that is known late. Nil gives URLs without scheme and host.
	BaseURL func() string
	Clock   clock.Clock // nil is clock.System; its Wall ends signatures
	// Reserve is how many bytes of the disk stay free: a PUT that would go
	// below gets NoSpace, so that the rest of the namenode keeps running.
	Reserve int64
	Logger  *slog.Logger // nil is slog.Default()
	// Tracer begins a span for each PUT and GET by a good URL; nil: none has one.
	Tracer trace.Tracer
	// Observe is told how long each PUT and GET by a good URL has taken, as "put" and "get";
	// nil: nobody asks.
	Observe func(op string, took time.Duration)
	// MaxObject is the most stored bytes of one object; 0 is
	// blockstore.MaxObjectSize.
	MaxObject int64
	// MaxPuts is how many HTTP PUTs are taken at a time; 0 is DefaultMaxPuts.
	// More get 503. Each takes 512 KiB of memory.
	MaxPuts int
	// Exclusive opens the namespace's folder only if Format made it, and no
	// other exclusive store has it: for those who delete blocks.
	Exclusive bool
	// Shared is Exclusive without the second half: several namenodes of one
	// namespace share the folder, and an election lets one of them delete.
	Shared bool
}

// Store is a blockstore.Store over a folder. It is safe for concurrent use, and
// several processes may share the folder.
type Store struct {
	cfg   Config
	root  string // the namespace's folder
	tmp   scratch
	owner io.Closer // of an exclusive store, else nil
	mac   *signer
	slots *slots // the HTTP PUTs under way
	gate  *gate  // the reads in the file system

	pending atomic.Int64 // bytes that PUTs under way, and large named objects, may still write
	closed  atomic.Bool
	folders folders
	stats   counters
}

var _ blockstore.Store = (*Store)(nil)

// Open makes the folder ready and removes what crashed stores left in tmp.
// InvalidArgument for a bad Config; Unavailable if the disk does not play along;
// of an exclusive store also NotFound (no folder that Format made) and
// Unavailable (another has it).
func Open(cfg Config) (*Store, error) {
	if cfg.Dir == "" {
		return nil, fserror.New(fserror.InvalidArgument, "open blocks", "", "no folder given")
	}
	if len(cfg.Secret) < MinSecret {
		return nil, fserror.New(fserror.InvalidArgument, "open blocks", cfg.Dir, "the secret has %d bytes, must have %d or more", len(cfg.Secret), MinSecret)
	}
	cfg.FS = cmp.Or(cfg.FS, vfs.OS())
	cfg.Clock = cmp.Or[clock.Clock](cfg.Clock, clock.System{})
	cfg.Logger = cmp.Or(cfg.Logger, slog.Default())
	if cfg.BaseURL == nil {
		cfg.BaseURL = func() string { return "" }
	}
	if cfg.MaxObject <= 0 || cfg.MaxObject > blockstore.MaxObjectSize {
		cfg.MaxObject = blockstore.MaxObjectSize
	}
	if cfg.MaxPuts <= 0 {
		cfg.MaxPuts = DefaultMaxPuts
	}
	cfg.Dir = filepath.Clean(cfg.Dir)
	s := &Store{
		cfg:   cfg,
		root:  filepath.Join(cfg.Dir, hex.EncodeToString(cfg.NamespaceID[:])),
		mac:   newSigner(cfg.Secret, cfg.Clock),
		slots: newSlots(cfg.MaxPuts, cfg.Clock.Mono),
		gate:  newGate(mostReads, cfg.Clock.Mono),
	}
	s.tmp.fs, s.tmp.dir = cfg.FS, filepath.Join(s.root, tmpFolder)
	s.folders.fs = cfg.FS
	if cfg.Exclusive || cfg.Shared {
		if err := s.own(); err != nil {
			return nil, err
		}
	}
	if err := s.prepare(); err != nil {
		if s.owner != nil {
			_ = s.owner.Close() // the first error says more
		}
		return nil, fserror.With(diskError("open blocks", s.what(), err), "", cfg.Dir)
	}
	return s, nil
}

// prepare makes the folders and removes leftovers.
func (s *Store) prepare() error {
	for _, dir := range []string{s.cfg.Dir, s.root, s.tmp.dir} {
		if err := makeDurable(s.cfg.FS, dir); err != nil {
			return err
		}
	}
	return s.tmp.open()
}

// Usage returns the bytes free on the disk of the folder, the reserve already
// taken off, and all that it has.
func (s *Store) Usage(context.Context) (free, total int64, err error) {
	free, total, err = s.cfg.FS.Usage(s.root)
	if err != nil {
		return 0, 0, diskError("usage", s.what(), err)
	}
	return max(free-s.cfg.Reserve, 0), total, nil
}

// Probe checks this store as clients use it, signatures and handler included,
// without a network. See blockstore.Probe.
func (s *Store) Probe(ctx context.Context) error {
	return blockstore.Probe(ctx, s, s.cfg.Clock.Wall(), roundTripper{s.Handler()}.RoundTrip)
}

// Close ends the store; PUTs that begin afterwards fail with Closed. Those under
// way continue: shut the HTTP server down first.
func (s *Store) Close() error {
	if s.closed.Swap(true) {
		return nil
	}
	err := s.tmp.close()
	if s.owner != nil {
		err = errors.Join(err, s.owner.Close())
	}
	return diskError("close", s.what(), err)
}

// what is what errors call the store's folder.
func (s *Store) what() string { return "block folder " + s.root }

// usable refuses calls after Close.
func (s *Store) usable(op string) error {
	if s.closed.Load() {
		return fserror.New(fserror.Closed, op, "", "the block store is closed")
	}
	return nil
}

// Stats is what the store did since it was opened. All but Stored numbers only grow.
type Stats struct {
	Puts     uint64 // objects stored and acknowledged
	PutBytes uint64 // their stored bytes
	Gets     uint64 // reads answered, whole or a range
	GetBytes uint64 // bytes sent for them
	Heads    uint64
	Deletes  uint64 // files removed

	PutsInFlight int // HTTP PUTs under way now
	MaxPuts      int // how many may be

	// Requests that were refused or failed, by reason.
	Rejected map[Reason]uint64
}

// Reason is why a request was refused or failed.
type Reason string

// The reasons. They are labels of a metric: few, and fixed.
const (
	ReasonSignature Reason = "signature" // 403: missing, altered, or of another block
	ReasonExpired   Reason = "expired"   // 403: the signed time is over
	ReasonHeaders   Reason = "headers"   // 403, 411: signed headers missing or different
	ReasonChecksum  Reason = "checksum"  // 400: not the bytes that were signed
	ReasonExists    Reason = "exists"    // 412: not the first PUT
	ReasonTooLarge  Reason = "too_large" // 413
	ReasonRange     Reason = "range"     // 416
	ReasonNotFound  Reason = "not_found" // 404
	ReasonBusy      Reason = "busy"      // 503: too many PUTs at a time, or reads that hang
	ReasonNoSpace   Reason = "no_space"  // 507
	ReasonBrokenOff Reason = "broken"    // the client went away in mid-PUT
	ReasonDisk      Reason = "disk"      // 500: an error of the disk
	ReasonOther     Reason = "other"     // 405 and such
)

var reasons = [...]Reason{
	ReasonSignature, ReasonExpired, ReasonHeaders, ReasonChecksum, ReasonExists, ReasonTooLarge,
	ReasonRange, ReasonNotFound, ReasonBusy, ReasonNoSpace, ReasonBrokenOff, ReasonDisk, ReasonOther,
}

// counters are the numbers behind Stats.
type counters struct {
	puts, putBytes, gets, getBytes, heads, deletes atomic.Uint64

	mu       sync.Mutex
	rejected map[Reason]uint64
}

func (c *counters) reject(r Reason) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.rejected == nil {
		c.rejected = make(map[Reason]uint64, len(reasons))
	}
	c.rejected[r]++
}

// Stats returns the counters. Rejected has every reason, also at 0.
func (s *Store) Stats() Stats {
	st := Stats{
		Puts: s.stats.puts.Load(), PutBytes: s.stats.putBytes.Load(),
		Gets: s.stats.gets.Load(), GetBytes: s.stats.getBytes.Load(),
		Heads: s.stats.heads.Load(), Deletes: s.stats.deletes.Load(),
		PutsInFlight: len(s.slots.underWay), MaxPuts: s.slots.most,
		Rejected: make(map[Reason]uint64, len(reasons)),
	}
	s.stats.mu.Lock()
	defer s.stats.mu.Unlock()
	for _, r := range reasons {
		st.Rejected[r] = s.stats.rejected[r]
	}
	return st
}

// Handler serves PUT, GET and HEAD of blocks under blockstore.PathPrefix. It is
// meant for an http.Server with the settings named in package blockstore
// (ServerHeaderTimeout and its neighbours), and must see the request's path as
// it was signed: no StripPrefix.
func (s *Store) Handler() http.Handler { return http.HandlerFunc(s.serve) }
