package webhdfs

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/gateway/users"
	"github.com/leasefs/leasefs/internal/fserror"
)

// recoverFlush is for how long what has arrived of a file is made durable that is about to be
// recovered.
const recoverFlush = 5 * time.Second

// lease is who writes a file.
type lease struct {
	ClientName string `json:"clientName"`
	Host       string `json:"host"`
	TakeableIn int64  `json:"takeableIn"` // ms until another client gets the file that wants it
	User       string `json:"user"`
}

func (q lookup) getLease() error {
	i, err := q.fs.File(q.ctx, "get lease", q.path)
	if err != nil {
		return err
	}
	var l *lease
	if o := i.Open; o != nil {
		l = &lease{o.Holder.Client, o.Holder.Host, max(o.TakeableIn, 0).Milliseconds(), o.Holder.User}
	}
	return q.json(map[string]*lease{"Lease": l})
}

func (q lookup) isFileClosed() error {
	i, err := q.fs.File(q.ctx, "is file closed", q.path)
	if err != nil {
		return err
	}
	return q.yes(i.Open == nil)
}

// recoverLease closes a file, whoever writes it, with what has arrived.
func (q change) recoverLease() error {
	lost := func(i *client.FileInfo) func(o *opening) bool {
		return func(o *opening) bool { return o.w.Inode() == i.Inode && o.w.Token() == i.Open.Epoch }
	}
	err := q.fs.RecoverLease(q.ctx, q.path, func(i *client.FileInfo) error {
		if err := q.fs.MayFlush(q.ctx, i.Inode); err != nil {
			return err
		}
		q.openings.flush(q.ctx, lost(i))
		return nil
	}, func(i *client.FileInfo) {
		q.openings.wake(lost(i)) // the place is free for others
		q.openings.abandon(lost(i))
	})
	if err != nil {
		return err
	}
	return q.yes(true)
}

// renewLease answers whether the client has anything open here: else its lease has ended, or is another
// gateway's.
func (q change) renewLease() error {
	if _, err := q.params.needed("clientname"); err != nil {
		return err
	}
	client, err := name(q.params, "clientname")
	if err != nil {
		return err
	}
	return q.yes(q.openings.renew(q.user.User, client))
}

// named has the request open files under the name of its client, if it says one.
func (q *request) named() (leave func(), err error) {
	client := ""
	if q.params.has("clientname") {
		if client, err = name(q.params, "clientname"); err != nil {
			return nil, err
		}
	}
	return q.as(client)
}

// as has the request open files under the name of a client; empty: that of the session which all have
// who say none. leave is called when that is done.
func (q *request) as(client string) (leave func(), err error) {
	if client == "" {
		return func() {}, nil
	}
	u, err := q.users.Get(q.ctx, users.Key{User: q.user.User, Client: client})
	if err != nil {
		return nil, err
	}
	q.user, q.fs.FS = u, u.FS
	return func() { q.users.Release(u) }, nil
}

// write notes that the second request of an opening is under way, until end is called. If the lease is
// lost, it does not wait for more of the body: that may not come for Config.Idle.
func (os *openings) write(o *opening, w http.ResponseWriter) (end func()) {
	os.mu.Lock()
	defer os.mu.Unlock()
	os.writing[o] = w
	stop := context.AfterFunc(o.w.Context(), func() {
		if errors.Is(context.Cause(o.w.Context()), fserror.LeaseLost) {
			os.wake(func(other *opening) bool { return other == o })
		}
	})
	return func() {
		stop()
		os.mu.Lock()
		defer os.mu.Unlock()
		delete(os.writing, o)
	}
}

// wake ends the waits of second requests for more of their bodies.
func (os *openings) wake(which func(*opening) bool) {
	os.mu.Lock()
	defer os.mu.Unlock()
	for o, w := range os.writing {
		if which(o) {
			o.woken.Store(true)
			_ = http.NewResponseController(w).SetReadDeadline(past)
		}
	}
}

// past is a deadline that wakes whoever waits for a connection.
var past = time.Unix(1, 0)

// flush makes durable what has arrived by second requests. What cannot be kept was not acknowledged.
func (os *openings) flush(ctx context.Context, which func(*opening) bool) {
	ctx, cancel := context.WithTimeout(ctx, recoverFlush)
	defer cancel()
	var some []*opening
	os.mu.Lock()
	for o := range os.writing {
		if which(o) {
			some = append(some, o)
		}
	}
	os.mu.Unlock()
	for _, o := range some {
		_ = o.w.Flush(ctx) // see above
	}
}

// renew gives the second requests of a user's client claimTime again, and tells whether it has
// anything open.
func (os *openings) renew(user, client string) (open bool) {
	os.mu.Lock()
	defer os.mu.Unlock()
	his := func(o *opening) bool { return o.user.User == user && o.user.FS.Info().Client == client }
	for _, o := range os.byID {
		if his(o) {
			o.since, open = time.Now(), true
		}
	}
	for o := range os.writing {
		open = open || his(o)
	}
	return open
}
