package webhdfs

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/lowlevel"
)

// userIdle is how long a session without a request is kept.
const userIdle = 5 * time.Minute

// users has one session of the library for each user that asks.
type users struct {
	cfg  client.Config
	most int
	log  *slog.Logger
	life context.Context // ends when the gateway does

	mu     sync.Mutex
	byName map[string]*user
	ending int            // sessions that have left byName and are not closed, except those that made room
	ends   sync.WaitGroup // of sessions that are being opened and closed
}

// user is one session and who uses it.
type user struct {
	name  string
	ready chan struct{} // closed when fs or err is there
	fs    lowlevel.FS
	close func() error // ends fs
	err   error

	uses int       // requests under way and files open; under users.mu
	last time.Time // when uses fell to 0
}

// get returns the session of a user, who must be given back with put.
func (us *users) get(ctx context.Context, name string) (*user, error) {
	us.mu.Lock()
	u := us.byName[name]
	if u == nil {
		room, err := us.makeRoom()
		if err != nil {
			us.mu.Unlock()
			return nil, err
		}
		u = &user{name: name, ready: make(chan struct{})}
		us.byName[name] = u
		us.ends.Go(func() {
			<-room
			us.connect(u)
		})
	}
	u.uses++
	us.mu.Unlock()
	select {
	case <-u.ready:
	case <-ctx.Done():
		us.put(u)
		return nil, fserror.Ended(ctx, "connect", "")
	}
	if u.err != nil {
		us.put(u)
		return nil, u.err
	}
	return u, nil
}

// connect opens the session. It is not one request's: others wait for it, too.
func (us *users) connect(u *user) {
	cfg := us.cfg
	cfg.User = u.name
	fs, err := client.New(us.life, cfg)
	us.mu.Lock()
	defer us.mu.Unlock()
	if err != nil {
		u.err = err
		if us.byName[u.name] == u {
			delete(us.byName, u.name)
		}
	} else {
		u.fs, u.close = lowlevel.Of(fs), fs.Close
	}
	close(u.ready)
}

// hold keeps the session for one more use.
func (us *users) hold(u *user) {
	us.mu.Lock()
	defer us.mu.Unlock()
	u.uses++
}

func (us *users) put(u *user) {
	us.mu.Lock()
	defer us.mu.Unlock()
	if u.uses--; u.uses == 0 {
		u.last = time.Now()
	}
}

// makeRoom ends the session that was idle for longest if there are as many as may
// be, those included that are being opened and closed. There is room once the channel is
// closed. us.mu is held.
func (us *users) makeRoom() (<-chan struct{}, error) {
	if len(us.byName)+us.ending < us.most {
		room := make(chan struct{})
		close(room)
		return room, nil
	}
	var oldest *user
	for _, u := range us.byName {
		if u.uses == 0 && u.isReady() && (oldest == nil || u.last.Before(oldest.last)) {
			oldest = u
		}
	}
	if oldest == nil {
		return nil, fserror.New(fserror.Retry, "connect", "", "sessions of %d users are in use, being opened or closed, as many as the gateway may have; try again later", us.most)
	}
	return us.end(oldest), nil
}

// isReady tells whether it is known what became of the session.
func (u *user) isReady() bool {
	select {
	case <-u.ready:
		return true
	default:
		return false
	}
}

// endIdle ends the sessions that nobody has used for a while.
func (us *users) endIdle() {
	us.mu.Lock()
	defer us.mu.Unlock()
	for _, u := range us.byName {
		if u.uses == 0 && time.Since(u.last) > userIdle {
			ended := us.end(u)
			us.ending++
			us.ends.Go(func() {
				<-ended
				us.mu.Lock()
				defer us.mu.Unlock()
				us.ending--
			})
		}
	}
}

// end closes a session in the background, and then the channel. us.mu is held, and the
// session is not in use.
func (us *users) end(u *user) <-chan struct{} {
	delete(us.byName, u.name)
	ended := make(chan struct{})
	us.ends.Go(func() {
		defer close(ended)
		<-u.ready
		if u.err != nil {
			return
		}
		if err := u.close(); err != nil {
			us.log.Warn("could not end a user's session cleanly", "user", u.name, "cause", err)
		}
	})
	return ended
}

// close ends all sessions, with what they have open, and waits for them.
func (us *users) close() {
	us.mu.Lock()
	for _, u := range us.byName {
		us.end(u)
	}
	us.most = 0
	us.mu.Unlock()
	us.ends.Wait()
}
