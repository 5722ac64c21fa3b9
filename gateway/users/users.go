// Package users keeps the sessions of the library that a gateway has for those who ask it:
// one for each user and client name, opened when it is needed, bounded in number, and
// ended when nobody has used it for a while.
package users

import (
	"cmp"
	"context"
	"log/slog"
	"os/user"
	"sync"
	"time"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/gateway/hadoop"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/lowlevel"
	"github.com/leasefs/leasefs/namenode/share"
)

// idle is how long a session that nobody uses is kept.
const idle = 5 * time.Minute

// aheadBlocks is how many blocks the writers of all sessions have under way beside the one that
// each may have, and in memory.
const aheadBlocks = 64

// Key is whose session one is. Client is the client's name, by which leases are held
// and taken over; empty: the library makes one up, and all who give none share the session.
type Key struct{ User, Client string }

// Table has one session of the library for each Key that asks. It is safe for concurrent
// use.
type Table struct {
	cfg  client.Config
	most int
	log  *slog.Logger
	life context.Context // ends when the gateway does

	ahead *share.Limit // blocks, see aheadBlocks

	mu     sync.Mutex
	byKey  map[Key]*User
	ending int            // sessions that have left byKey and are not closed, except those that made room
	ends   sync.WaitGroup // of sessions that are being opened and closed
}

// User is one session and who uses it.
type User struct {
	Key
	// FS is the session, until the User is given back.
	FS lowlevel.FS

	ready chan struct{} // closed when FS or err is there
	close func() error  // ends FS
	err   error

	uses  int       // requests under way and files open; under Table.mu
	last  time.Time // when uses fell to 0
	ended bool      // it has left Table.byKey, and ends with its last use
}

// Proves returns the configuration with who proves what a gateway does for others: its user,
// or where none is named and nothing else says it, that of the process.
func Proves(c client.Config) (client.Config, error) {
	c.RealUser = cmp.Or(c.RealUser, c.User)
	if c.RealUser == "" && c.TokenFile == "" && c.Login == "" && c.Token == nil && c.Kerberos == nil && (c.TLS == nil || len(c.TLS.Certificates) == 0) {
		u, err := user.Current()
		if err != nil {
			return c, fserror.New(fserror.InvalidArgument, "", "", "the login name is unknown (%v); say as whom the gateway acts", err)
		}
		c.RealUser = u.Username
	}
	return c, nil
}

// New returns a Table of at most so many sessions, each with a connection to the
// namenode. cfg says how to reach it, and by what the gateway proves who it is: as that user
// it opens none. User, and Client where there is one, are those of
// each Key; Ahead and Xattr are the Table's own. When life ends, no session is opened any more. A nil log discards.
func New(life context.Context, cfg client.Config, most int, log *slog.Logger) *Table {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	cfg.Xattr = hadoop.AttrXattr
	return &Table{cfg: cfg, most: most, log: log, life: life, ahead: share.New(aheadBlocks), byKey: map[Key]*User{}}
}

// Get returns a session, which must be given back with Release. Retry: as many as there may
// be are in use, or half of them by this user alone.
func (t *Table) Get(ctx context.Context, key Key) (*User, error) {
	t.mu.Lock()
	u := t.byKey[key]
	if u == nil {
		room, err := t.makeRoom(key.User)
		if err != nil {
			t.mu.Unlock()
			return nil, err
		}
		u = &User{Key: key, ready: make(chan struct{})}
		t.byKey[key] = u
		t.ends.Go(func() {
			<-room
			t.connect(u)
		})
	}
	u.uses++
	t.mu.Unlock()
	select {
	case <-u.ready:
	case <-ctx.Done():
		t.Release(u)
		return nil, fserror.Ended(ctx, "connect", "")
	}
	if u.err != nil {
		t.Release(u)
		return nil, u.err
	}
	return u, nil
}

// aheadOf is a session's Config.Ahead: what its writers take is counted for the user.
func (t *Table) aheadOf(user string) func() (give func()) {
	who := share.User(user)
	return func() func() {
		if !t.ahead.Take(1, who) {
			return nil
		}
		return func() { t.ahead.Give(1, who) }
	}
}

// connect opens the session. It is not one request's: others wait for it, too.
func (t *Table) connect(u *User) {
	cfg := t.cfg
	cfg.User = u.User
	if u.Client != "" {
		cfg.Client = u.Client
	}
	cfg.Ahead = t.aheadOf(u.User)
	var fs *client.FS
	err := t.notSelf(u.User)
	if err == nil {
		fs, err = client.New(t.life, cfg)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err != nil {
		u.err = err
		if t.byKey[u.Key] == u {
			delete(t.byKey, u.Key)
		}
	} else {
		u.FS, u.close = lowlevel.Of(fs), fs.Close
	}
	close(u.ready)
}

// notSelf refuses the user whom the gateway proves to be itself: the namenode has rules for
// whom it may act, and asks for none where it acts for itself, at the word of its client.
func (t *Table) notSelf(user string) error {
	p := t.cfg.Proof
	if p.TokenFile == "" && p.Login == "" && p.Token == nil && p.Kerberos == nil &&
		(t.cfg.TLS == nil || len(t.cfg.TLS.Certificates) == 0 && t.cfg.TLS.GetClientCertificate == nil) {
		return nil
	}
	cfg := t.cfg
	cfg.User, cfg.RealUser = "", ""
	id, err := client.WhoAmI(t.life, cfg)
	switch {
	case client.KindOf(err) == client.ErrUnsupported: // by an older namenode, which has no such rules
		return nil
	case err != nil:
		return err
	case id.Proven && id.Superuser && id.User == user:
		return hadoop.Refuse(hadoop.Authorization, "User: %s is the gateway's own, and a superuser, as whom it acts for nobody; use another name, or run the gateway with a proof of a user who is none (docs/HADOOP.md, Trust)", user)
	}
	return nil
}

// Groups are those by which the namenode takes a user, whom it need not know, for what he
// is. Permission: the gateway may not act for him. It opens no session.
func (t *Table) Groups(ctx context.Context, user string) ([]string, error) {
	cfg := t.cfg
	cfg.User = user
	id, err := client.WhoAmI(ctx, cfg)
	return id.Groups, err
}

// Hold keeps a session that is in use for one more use.
func (t *Table) Hold(u *User) {
	t.mu.Lock()
	defer t.mu.Unlock()
	u.uses++
}

// Release gives a session back, once for each Get and Hold.
func (t *Table) Release(u *User) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if u.uses--; u.uses > 0 {
		return
	}
	u.last = time.Now()
	if u.ended {
		t.ending--
		t.endLater(u)
	}
}

// makeRoom ends the session that was idle for longest if there are as many as may
// be, those included that are being opened and closed, or if the user has half of them:
// then one of his own. There is room once the channel is closed. t.mu is held.
func (t *Table) makeRoom(user string) (<-chan struct{}, error) {
	mine := 0
	for k := range t.byKey {
		if k.User == user {
			mine++
		}
	}
	greedy := mine > 0 && mine >= (t.most+1)/2
	if len(t.byKey)+t.ending < t.most && !greedy {
		room := make(chan struct{})
		close(room)
		return room, nil
	}
	var oldest *User
	for _, u := range t.byKey {
		if u.uses == 0 && u.isReady() && (!greedy || u.User == user) && (oldest == nil || u.last.Before(oldest.last)) {
			oldest = u
		}
	}
	switch {
	case oldest != nil:
		return t.closeSession(oldest), nil
	case greedy:
		return nil, fserror.New(fserror.Retry, "connect", "", "user %s has %d clients with sessions in use, half of what the gateway may have; try again later", user, mine)
	}
	return nil, fserror.New(fserror.Retry, "connect", "", "%d sessions are in use, being opened or closed, as many as the gateway may have; try again later", t.most)
}

// isReady tells whether it is known what became of the session.
func (u *User) isReady() bool {
	select {
	case <-u.ready:
		return true
	default:
		return false
	}
}

// EndIdle ends the sessions that nobody has used for five minutes. The gateway calls it
// now and then.
func (t *Table) EndIdle() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, u := range t.byKey {
		if u.uses == 0 && time.Since(u.last) > idle {
			t.endLater(u)
		}
	}
}

// Retire ends a session once nobody uses it. Who asks for one of its Key from now on gets another.
func (t *Table) Retire(u *User) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.byKey[u.Key] != u:
	case u.uses == 0:
		t.endLater(u)
	default:
		delete(t.byKey, u.Key)
		u.ended = true
		t.ending++
	}
}

// endLater is closeSession of a session that makes room for no other. t.mu is held.
func (t *Table) endLater(u *User) {
	ended := t.closeSession(u)
	t.ending++
	t.ends.Go(func() {
		<-ended
		t.mu.Lock()
		defer t.mu.Unlock()
		t.ending--
	})
}

// closeSession closes a session in the background, and then the channel. t.mu is held, and the
// session is not in use.
func (t *Table) closeSession(u *User) <-chan struct{} {
	if t.byKey[u.Key] == u {
		delete(t.byKey, u.Key)
	}
	ended := make(chan struct{})
	t.ends.Go(func() {
		defer close(ended)
		<-u.ready
		if u.err != nil {
			return
		}
		if err := u.close(); err != nil {
			t.log.Warn("could not end a user's session cleanly", "user", u.User, "cause", err)
		}
	})
	return ended
}

// InUse tells how many sessions there are, and how often they are in use.
func (t *Table) InUse() (sessions, uses int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, u := range t.byKey {
		uses += u.uses
	}
	return len(t.byKey), uses
}

// Close ends all sessions, with what they have open, and waits for them.
func (t *Table) Close() {
	t.mu.Lock()
	for _, u := range t.byKey {
		t.closeSession(u)
	}
	t.most = 0
	t.mu.Unlock()
	t.ends.Wait()
}
