package login

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/proof"
)

const (
	// patience is for one renewal, the wait for another process included.
	patience = 30 * time.Second
	// pause is between two renewals that fail, and lookEvery how often Keep looks.
	pause     = 5 * time.Second
	margin    = 10 * time.Second // a token has ended for us so long before it does, or a tenth of its life
	lookEvery = 30 * time.Second
)

// Source shows the token of a login, and renews it. It is safe for concurrent use.
type Source struct {
	name  string
	clock clock.Clock
	log   *slog.Logger
	file  *proof.File[*Login]

	ctx    context.Context //nolint:containedctx // of renewals
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu     sync.Mutex
	login  *Login        // the one of the file, or newer if that could not be written
	until  time.Duration // of the boot clock: the login is good no longer, whatever the time of day is set to
	going  chan struct{} // closed when the renewal under way has ended; nil: there is none
	failed error         // why the last one failed; nil: it did not
	last   time.Duration // when it ended
}

// Open reads the login of a file. What a person should know of is logged. Close has to follow.
func Open(c clock.Clock, name string, log *slog.Logger) (*Source, error) {
	f, err := open(c, name)
	if err != nil {
		return nil, err
	}
	s := &Source{name: name, clock: c, log: log, file: f}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.takeLocked(f.Get())
	return s, nil
}

// Close returns when no renewal is under way; one that the issuer is carrying out already
// is waited for, since its answer would be lost. The source must not be used any more; it
// may be nil.
func (s *Source) Close() {
	if s == nil {
		return
	}
	s.cancel()
	s.wg.Wait()
}

// User is whom the namenode took the bearer for at the login; empty: that is not known.
func (s *Source) User() string { return s.file.Get().User }

// takeLocked has a login count from now on. The caller holds mu, or is alone.
func (s *Source) takeLocked(l *Login) {
	s.login, s.failed = l, nil
	s.until = s.clock.Boot() + max(0, min(l.Ends.Sub(s.clock.Wall()), l.Ends.Sub(l.Received)))
}

// now returns the login, with how long its token can still be shown and whether it should
// be renewed.
func (s *Source) now() (l *Login, left time.Duration, due bool) {
	changed, err := s.file.Check()
	if err != nil {
		s.log.Warn("leasefs: the file of the login cannot be used as it is; the token that it had is shown", "err", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if changed {
		s.takeLocked(s.file.Get())
	}
	l = s.login
	left = min(l.Ends.Sub(s.clock.Wall()), s.until-s.clock.Boot())
	due = left <= l.Ends.Sub(l.Due())
	// One that ends on its way to the namenode is no use.
	return l, left - min(margin, l.Ends.Sub(l.Received)/10), due
}

// Token returns the token to show. One that is good is returned at once; one that has ended
// is renewed first: then an error is of kind Unavailable if trying again may help, and
// Permission if only another login does.
func (s *Source) Token(ctx context.Context) (string, error) {
	l, left, due := s.now()
	if !due {
		return l.Token, nil
	}
	done := s.startRenewal()
	if left > 0 {
		return l.Token, nil
	}
	select {
	case <-done:
	case <-ctx.Done():
		return "", fserror.New(fserror.Unavailable, "login", "", "the token has ended, and the issuer %s has not renewed it yet", l.Issuer)
	}
	if l, left, _ = s.now(); left > 0 {
		return l.Token, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed != nil {
		return "", s.failed
	}
	return "", fserror.New(fserror.Unavailable, "login", "", "the token that the issuer %s gave has ended already", l.Issuer)
}

// Keep renews the token in time until the context ends, so that it is new when it is
// needed. The source may be nil.
func (s *Source) Keep(ctx context.Context) {
	for s != nil {
		wait := lookEvery
		if l, left, due := s.now(); due {
			s.startRenewal()
			wait = pause
		} else {
			wait = min(wait, max(left-l.Ends.Sub(l.Due()), 100*time.Millisecond))
		}
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-t.C:
		}
	}
}

// startRenewal begins a renewal unless one is under way, or failed just now. done is closed when
// there is none any more.
func (s *Source) startRenewal() (done <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.going != nil {
		return s.going
	}
	ended := make(chan struct{})
	if s.ctx.Err() != nil || s.failed != nil && (errors.Is(s.failed, fserror.Permission) || s.clock.Boot()-s.last < pause) {
		close(ended)
		return ended
	}
	s.going = ended
	s.wg.Go(func() {
		ctx, cancel := context.WithTimeout(s.ctx, patience)
		defer cancel()
		err := s.renew(ctx)
		s.mu.Lock()
		defer s.mu.Unlock()
		if err != nil && s.ctx.Err() == nil && (s.failed == nil || s.failed.Error() != err.Error()) {
			s.log.Warn("leasefs: the login could not be renewed", "err", err)
		}
		s.failed, s.last, s.going = err, s.clock.Boot(), nil
		close(ended)
	})
	return ended
}

// renew gets a new token under the lock, unless another process has.
func (s *Source) renew(ctx context.Context) error {
	unlock, err := Lock(ctx, s.name)
	if err != nil {
		return err
	}
	defer unlock()
	l, _, due := s.now()
	if !due {
		return nil
	}
	d, err := NewDraft(s.name)
	if err != nil {
		return err
	}
	next, err := l.Renew(ctx, s.clock.Wall)
	if err != nil {
		d.Drop()
		return err
	}
	// The token that it was renewed with may be good no more: so the new one counts here
	// even if it cannot be written.
	err = d.Keep(next)
	s.mu.Lock()
	s.takeLocked(next)
	s.mu.Unlock()
	if err != nil {
		s.log.Error("leasefs: the login was renewed and could not be written: other processes need a new login", "err", err)
	}
	return nil
}
