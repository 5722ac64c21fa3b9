package session

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/namecall"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// Config is what a Session is made of. All is needed but Cache.
type Config struct {
	Namenodes *namecall.Namenodes
	Addresses []string // of the configuration
	Caller    *pb.Caller
	Timeout   time.Duration // for how long Open tries
	Clock     clock.Clock
	Logger    *slog.Logger
	Cache     Cache // nil: nothing is kept
}

// Cache is told what of the stream concerns what a client keeps of what it has
// read. Its methods are called one after the other.
type Cache interface {
	// Opening is called before a stream is asked for: the namenode takes that to
	// mean that nothing is kept.
	Opening()
	// Opened is called when the namenode's first message has come.
	Opened(st *Stream, w *pb.Welcome)
	// Take takes in a message; false if it is about something else.
	Take(m *pb.SessionResponse) bool
	// Broken is called when the stream has ended.
	Broken()
}

// Session is one session of a client. It is safe for concurrent use.
type Session struct {
	cfg     Config
	nn      *namecall.Namenodes
	welcome atomic.Pointer[pb.Welcome]
	soft    atomic.Int64 // limits of a lease; time.Duration
	hard    atomic.Int64
	stream  atomic.Pointer[Stream] // while it is up

	ready   chan struct{}                 // closed at the first Welcome
	refused chan error                    // what makes Open fail at once
	told    atomic.Pointer[fserror.Error] // why there is no stream, by a namenode
	without atomic.Pointer[noStream]      // why there was none, last

	ctx        context.Context //nolint:containedctx // until Close
	cancel     context.CancelFunc
	renewCtx   context.Context //nolint:containedctx // until Leave
	stopRenew  context.CancelFunc
	streams    sync.WaitGroup // the goroutine that holds a stream open
	background sync.WaitGroup // the renewer and the watchdog
	wake       chan struct{}  // the renewer: now
	left       atomic.Bool    // no stream is opened any more

	mu        sync.Mutex
	ended     bool // no file is added any more
	files     map[Key]File
	version   uint64 // of files
	confirmed uint64 // the version that the namenode has
	resend    bool   // the namenode wants the set
	jeopardy  bool   // the lease is past its soft limit, and said so

	vouched vouching
	counters
}

// counters count for Stats.
type counters struct{ opened, renewals, failures, jeopardies, lost atomic.Uint64 }

// New returns a session that Open begins. The context governs all of it until
// Close, which has to follow.
func New(ctx context.Context, cfg Config) *Session {
	s := &Session{
		cfg: cfg, nn: cfg.Namenodes, files: make(map[Key]File),
		ready: make(chan struct{}), refused: make(chan error, 1), wake: make(chan struct{}, 1),
	}
	s.ctx, s.cancel = context.WithCancel(ctx)
	s.renewCtx, s.stopRenew = context.WithCancel(s.ctx)
	return s
}

// Open opens the session, and returns once a namenode has welcomed it. Unavailable
// if none does until the context ends, or Config.Timeout is over.
func (s *Session) Open(ctx context.Context) error {
	s.streams.Go(s.holdStream)
	if err := s.awaitWelcome(ctx); err != nil {
		return err
	}
	s.background.Go(s.renewLoop)
	s.background.Go(s.watchLoop)
	return nil
}

func (s *Session) awaitWelcome(ctx context.Context) error {
	t := time.NewTimer(s.cfg.Timeout)
	defer t.Stop()
	note := time.NewTicker(namecall.WaitNote)
	defer note.Stop()
	w := s.nn.Waits("connect", "")
	var why error
	for why == nil {
		select {
		case <-s.ready:
			return nil
		case err := <-s.refused:
			return fserror.With(err, "connect", "")
		case <-ctx.Done():
			if context.Cause(ctx) == context.Canceled { //nolint:errorlint // exactly the plain cancellation
				return fserror.Ended(ctx, "connect", "")
			}
			why = context.Cause(ctx)
		case <-t.C:
			why = fserror.New(fserror.Deadline, "", "", "no answer within %s", s.cfg.Timeout)
		case <-note.C:
			if n := s.without.Load(); n != nil {
				w.Tell(n.err, n.answered)
			} else {
				w.Tell(nil, false)
			}
		}
	}
	if e := s.told.Load(); e != nil { // by one of them
		why = fmt.Errorf("%w; last: %s", why, namecall.Plain(e))
	} else if n := s.without.Load(); n != nil {
		why = fmt.Errorf("%w; last: %s", why, namecall.Plainly(n.err))
	}
	return fserror.New(fserror.Unavailable, "connect", "", "no active namenode at %s (%v); start one, or name the one that is active", s.nn, why).Because(fserror.ReasonNoNamenode)
}

// Leave stops renewals and ends the session's stream in order, which says that
// nothing is kept any more: so nobody waits for this client. Only a client that ends
// otherwise is waited for.
func (s *Session) Leave() {
	s.stopRenew()
	s.background.Wait()
	s.left.Store(true)
	if st := s.stream.Load(); st != nil {
		st.sayGoodbye()
	}
}

// Close ends the session, and returns when nothing of it is left.
func (s *Session) Close() {
	s.cancel()
	s.streams.Wait()
	s.background.Wait()
}

// Welcome is what the namenode said last when it welcomed the session; not nil once
// Open has succeeded.
func (s *Session) Welcome() *pb.Welcome { return s.welcome.Load() }

// Stream is the session's stream; nil while none is up.
func (s *Session) Stream() *Stream { return s.stream.Load() }

// Drop breaks the stream to a namenode that said that it is not active.
func (s *Session) Drop(node *namecall.Node) {
	if st := s.stream.Load(); st != nil && st.node == node {
		st.Break()
	}
}

// Stats counts since New.
type Stats struct {
	Opened             uint64 // streams
	Renewals, Failures uint64 // renewals that succeeded, and that did not
	Jeopardies         uint64 // times that the leases went unrenewed past the soft limit
	Lost               uint64 // files whose lease was lost
}

// Stats returns the counters.
func (s *Session) Stats() Stats {
	return Stats{
		Opened: s.opened.Load(), Renewals: s.renewals.Load(), Failures: s.failures.Load(),
		Jeopardies: s.jeopardies.Load(), Lost: s.lost.Load(),
	}
}

func ms(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
