package webhdfs

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/gateway/hadoop"
	"github.com/leasefs/leasefs/gateway/users"
)

// claimTime is how long after the first of the two requests that write a file the
// second has to come. Then the file is closed.
const claimTime = 30 * time.Second

// opening is a file that a first request has opened for write. The second brings the
// bytes.
type opening struct {
	id    string // empty if there is no second request
	w     *client.Writer
	user  *users.User
	op    string
	from  int64 // where the client believes the end of the file to be; -1: it does not say
	since time.Time
	leave func()      // gives back its place among the streams, and the user
	woken atomic.Bool // its second request waits for nothing more
}

// openings are those whose second request has not come yet.
type openings struct {
	server *Server

	mu      sync.Mutex
	byID    map[string]*opening
	writing map[*opening]http.ResponseWriter // whose second request is under way
	closed  bool
	filled  []filled // the oldest first
}

// filled is an APPEND whose second request has come. Its client may send more such
// requests to the same place, as HDFS takes each for one more APPEND.
type filled struct {
	id    string
	by    users.Key
	inode uint64
}

// maxFilled is how many are known, of the latest.
const maxFilled = 4096

// fill remembers an APPEND that was made.
func (os *openings) fill(o *opening) {
	os.mu.Lock()
	defer os.mu.Unlock()
	os.filled = append(os.filled[max(0, len(os.filled)+1-maxFilled):], filled{o.id, o.user.Key, o.w.Inode()})
}

// more returns the APPEND of before that one more request names.
func (os *openings) more(q *request, id string) (f filled, ok bool) {
	os.mu.Lock()
	defer os.mu.Unlock()
	i := slices.IndexFunc(os.filled, func(f filled) bool { return f.id == id && f.by.User == q.user.User })
	if i < 0 {
		return filled{}, false
	}
	return os.filled[i], true
}

// add keeps one until it is claimed.
func (os *openings) add(o *opening) {
	os.mu.Lock()
	closed := os.closed
	if !closed {
		os.byID[o.id] = o
	}
	os.mu.Unlock()
	if closed {
		os.giveUp(o)
	}
}

// claim takes the one that a second request names.
func (os *openings) claim(q *request, id string) (*opening, error) {
	os.mu.Lock()
	defer os.mu.Unlock()
	o := os.byID[id]
	if o == nil || o.user.User != q.user.User || o.op != q.op {
		return nil, hadoop.Refuse(hadoop.LeaseExpired, "%s: what the first request has opened is not open any more (the second came more than %s later, or twice, or the gateway was started again), or it was opened by another gateway; begin with the first request again", q.path, claimTime)
	}
	delete(os.byID, id)
	return o, nil
}

// endOld closes the files for which nobody came.
func (os *openings) endOld() {
	os.abandon(func(o *opening) bool { return time.Since(o.since) > claimTime })
}

// close closes all, and lets none be added.
func (os *openings) close() {
	os.mu.Lock()
	os.closed = true
	os.mu.Unlock()
	os.abandon(func(*opening) bool { return true })
}

func (os *openings) abandon(which func(*opening) bool) {
	var old []*opening
	os.mu.Lock()
	for id, o := range os.byID {
		if which(o) {
			old = append(old, o)
			delete(os.byID, id)
		}
	}
	os.mu.Unlock()
	var wg sync.WaitGroup
	for _, o := range old {
		wg.Go(func() { os.giveUp(o) })
	}
	wg.Wait()
}

// giveUp closes a file as it was opened.
func (os *openings) giveUp(o *opening) {
	defer o.leave()
	ctx, cancel := context.WithTimeout(context.Background(), claimTime)
	defer cancel()
	o.w.KeepModTime()
	err := o.w.AbortContext(ctx)
	os.server.log.Info("nobody wrote what was opened", "op", o.op, "path", o.w.Path(), "user", o.user.User, "cause", err)
}

// create makes the file at once, and with a second request writes it.
func (q transfer) create() error {
	if id := q.params.text("opening"); id != "" {
		return q.second(id)
	}
	mode, less, err := q.params.unmasked(0o644)
	if err != nil {
		return err
	}
	overwrite, parents, err := q.createFlags()
	if err != nil {
		return err
	}
	replication, err := q.params.replication()
	if err != nil {
		return err
	}
	size, err := q.params.blockSize()
	if err != nil {
		return err
	}
	if err := hadoop.TooMany(replication, q.path); err != nil {
		return err
	}
	here, err := q.params.flag("data", false)
	if err != nil {
		return err
	}
	leave, err := q.named()
	if err != nil {
		return err
	}
	defer leave()
	a := hadoop.Attr{Replication: replication, BlockSize: size}.Or(hadoop.DefaultAttr)
	return q.first(-1, here, overwrite, func(ctx context.Context) (*client.Writer, error) {
		opts := []client.OpenOption{client.WithMode(mode), client.WithUmask(less)}
		if overwrite { // as HDFS: whoever is writing the old one loses it
			opts = append(opts, client.WithOverwrite(), client.WithSteal())
		}
		if parents {
			opts = append(opts, client.WithParents())
		}
		w, _, err := q.fs.Make(ctx, q.path, a, opts...)
		if err != nil {
			return nil, q.fs.NotCreated(q.ctx, q.path, err)
		}
		return w, nil
	})
}

// createFlags tells whether CREATE may replace a file, and make parents.
func (q transfer) createFlags() (overwrite, parents bool, err error) {
	if overwrite, err = q.params.flag("overwrite", false); err != nil {
		return false, false, err
	}
	if parents, err = q.params.flag("createparent", true); err != nil {
		return false, false, err
	}
	if !q.params.has("createflag") {
		return overwrite, parents, nil
	}
	for word := range strings.SplitSeq(strings.ToUpper(q.params.text("createflag")), ",") {
		switch strings.TrimSpace(word) {
		case "OVERWRITE":
			overwrite = true
		case "APPEND":
			return false, false, hadoop.Refuse(hadoop.Unsupported, "createflag: CREATE does not append; use APPEND")
		}
	}
	return overwrite, parents, nil
}

// append opens the file at once, and with a second request appends to it.
func (q transfer) append() error {
	if id := q.params.text("opening"); id != "" {
		before, ok := q.openings.more(q.request, id)
		if !ok {
			return q.second(id)
		}
		leave, err := q.as(before.by.Client)
		if err != nil {
			return err
		}
		defer leave()
		return q.first(-1, true, true, func(ctx context.Context) (*client.Writer, error) {
			w, err := q.fs.AppendInode(ctx, before.inode, q.path, false)
			return w, q.fs.Held(q.path, err)
		})
	}
	here, err := q.params.flag("data", false)
	if err != nil {
		return err
	}
	from, err := q.params.number("expectedlength", -1, 0, math.MaxInt64)
	if err != nil {
		return err
	}
	leave, err := q.named()
	if err != nil {
		return err
	}
	defer leave()
	return q.first(from, here, true, func(ctx context.Context) (*client.Writer, error) {
		w, err := q.fs.Append(ctx, q.path)
		switch {
		case client.KindOf(err) == client.ErrIsDirectory && err != nil:
			return nil, hadoop.Refuse(hadoop.FileExists, "Cannot append to directory %s; already exists as a directory.", q.path)
		case err != nil:
			return nil, q.fs.Held(q.path, err)
		}
		if from > w.Length() {
			w.KeepModTime()
			err := hadoop.Refuse(hadoop.IOException, "%s has %d bytes, %d fewer than expected", q.path, w.Length(), from-w.Length())
			return nil, errors.Join(err, w.AbortContext(ctx))
		}
		return w, nil
	})
}

// first opens a file and tells the client where to bring the bytes, unless it brings
// them with this request (here). It may change a file that is there (changing). The call that
// opens it does not end when the client goes: the namenode might have opened the file, and nobody
// here would know.
func (q transfer) first(from int64, here, changing bool, open func(context.Context) (*client.Writer, error)) error {
	leave, err := q.streams.Enter(q.ctx, q.taker())
	if err != nil {
		return err
	}
	var w *client.Writer
	if here && !changing { // who has sent a part of a new file, and says so by closing his half, writes that
		err = ifFresh(q.r)
	} else {
		err = ifThere(q.r)
	}
	if err == nil {
		w, err = open(context.WithoutCancel(q.ctx))
	}
	if err != nil {
		leave()
		return err
	}
	q.users.Hold(q.user)
	o := &opening{w: w, user: q.user, op: q.op, from: from, since: time.Now(), leave: func() {
		leave()
		q.users.Release(q.user)
	}}
	if here {
		return q.fill(o)
	}
	var id [16]byte
	_, _ = rand.Read(id[:]) // it never fails
	o.id = hex.EncodeToString(id[:])
	q.openings.add(o)
	return q.redirect(url.Values{"opening": {o.id}})
}

// second writes what a first request has opened.
func (q transfer) second(id string) error {
	o, err := q.openings.claim(q.request, id)
	if err != nil {
		return err
	}
	return q.fill(o)
}

// fill writes the body of the request to the file and closes it. If the body is cut
// off, the file keeps what has arrived, as in HDFS.
func (q transfer) fill(o *opening) error {
	defer o.leave()
	defer q.openings.write(o, q.w)()
	body := &patientBody{q: q.request, o: o, w: o.w}
	began := o.w.Length()
	err := q.skip(o, body)
	if err == nil {
		_, err = o.w.ReadFrom(body)
	}
	if o.w.Length() == began && o.op == "APPEND" {
		o.w.KeepModTime()
	}
	q.patient(shortTime)
	cerr := o.w.CloseContext(context.WithoutCancel(q.ctx)) // whether or not the client waits
	switch {
	case cerr != nil:
		return cerr
	case body.err != nil:
		q.log.Info("a body was cut off; the file was closed at what had arrived", "from", q.r.RemoteAddr, "op", o.op, "path", o.w.Path(), "user", o.user.User, "bytes", o.w.Length(), "cause", body.err)
		return hadoop.Refuse(hadoop.IOException, "%s: the request's body was cut off; the file has %d bytes now: %s", q.path, o.w.Length(), hadoop.Message(body.err))
	case err != nil:
		return err
	case o.op == "CREATE":
		q.w.Header().Set("Location", fmt.Sprintf("webhdfs://%s%s", q.r.Host, escape(q.path)))
		q.w.Header().Set("Content-Length", "0")
		q.w.WriteHeader(http.StatusCreated)
		return nil
	case o.from < 0 && o.id != "":
		q.openings.fill(o)
	}
	return q.done(nil)
}

// skip passes over what the file already has of the body: an APPEND with an expected
// length that was made before, wholly or in part, is finished and not repeated.
func (q transfer) skip(o *opening, body io.Reader) error {
	if o.from < 0 || o.from == o.w.Length() {
		return nil
	}
	length := o.w.Length()
	r, _, err := q.fs.OpenInode(q.ctx, o.w.Inode(), q.path)
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }() // it only read
	mine, there := make([]byte, 64<<10), make([]byte, 64<<10)
	for at := o.from; at < length; {
		n, err := io.ReadFull(body, mine[:min(int64(len(mine)), length-at)])
		if n > 0 {
			if k, rerr := r.ReadAtContext(q.ctx, there[:n], at, false); k < n {
				return rerr
			}
			if !bytes.Equal(mine[:n], there[:n]) {
				return hadoop.Refuse(hadoop.IOException, "%s has %d bytes, %d more than expected, and they are not what this request appends", q.path, length, length-o.from)
			}
		}
		at += int64(n)
		if err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				return nil // there is nothing more to append, or the body tells why
			}
			return err
		}
	}
	return nil
}

// flushTime is after how long a silence what has arrived is made durable.
const flushTime = time.Second

// patientBody is the body of a request whose client may be silent for Config.Idle.
// What came before a silence is flushed meanwhile: others see it, and a gateway that
// dies does not lose it.
type patientBody struct {
	q   *request
	o   *opening
	w   *client.Writer
	err error // why it is not whole
}

func (b *patientBody) Read(p []byte) (int, error) {
	rc := http.NewResponseController(b.q.w)
	_ = rc.SetReadDeadline(time.Now().Add(b.q.cfg.Idle))
	if b.o.woken.Load() { // perhaps before that
		_ = rc.SetReadDeadline(past)
	}
	t := time.AfterFunc(flushTime, func() {
		if b.w.Durable() < b.w.Length() {
			_ = b.w.Flush(b.q.ctx) // the next write tells, or closing does
		}
	})
	defer t.Stop()
	n, err := b.q.r.Body.Read(p)
	if err != nil && !errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		b.err = err
	}
	return n, err
}
