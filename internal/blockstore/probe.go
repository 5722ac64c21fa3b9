package blockstore

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
)

// probeTTL is how long the URLs of a probe are valid.
const probeTTL = 5 * time.Minute

// A PUT that is answered with 409, Conflict, is tried so often, with growing
// pauses.
const (
	conflictTries = 6
	conflictPause = 50 * time.Millisecond
)

// Probe checks by real requests, sent with do, that a store enforces what
// leasefs relies on. Stores call it from their method Probe. It needs keys of
// its own: of term 0, which no namenode ever has, and removes them again.
//
// Unsupported names what the store does not enforce; Unavailable means that it
// could not be asked.
func Probe(ctx context.Context, s Store, now time.Time, do func(*http.Request) (*http.Response, error)) error {
	p := &prober{store: s, do: do, expires: now.Add(probeTTL)}
	object := func(text string) []byte {
		o, _ := Seal(bytes.Repeat([]byte(text), 100))
		return o
	}
	p.object, p.other = object("leasefs probe "), object("LEASEFS PROBE ")
	// #nosec G404 -- a key that is merely unlikely to be in use by another probe
	p.key = Key{Term: 0, Seq: 1 + rand.Uint64N(1<<40)}
	err := p.run(ctx)
	if derr := s.Delete(context.WithoutCancel(ctx), p.key); err == nil {
		err = derr
	}
	if err != nil {
		return err
	}
	if _, err := s.Stat(ctx, p.key); !errors.Is(err, fserror.NotFound) {
		return unsupported("a deleted block is still there: %v", err)
	}
	return nil
}

type prober struct {
	store         Store
	do            func(*http.Request) (*http.Response, error)
	expires       time.Time
	key           Key
	object, other []byte // of the same length
}

func unsupported(format string, args ...any) error {
	return fserror.New(fserror.Unsupported, "probe", "", "the block store cannot be trusted: "+format+": use another", args...)
}

func (p *prober) run(ctx context.Context) error {
	for _, c := range []struct {
		lacks string
		body  []byte
		alter func(*http.Request)
	}{
		{"does not compare the bytes with the signed checksum", p.other, nil},
		{"does not hold a PUT to its signed length", p.object[:len(p.object)-1], nil},
		{"takes a PUT without the signed checksum", p.object, func(r *http.Request) { r.Header.Del(HeaderChecksum) }},
		{"takes a PUT with another checksum than was signed", p.other, func(r *http.Request) {
			r.Header.Set(HeaderChecksum, EncodeChecksum(CRC(p.other)))
		}},
		{"takes a PUT without If-None-Match", p.object, func(r *http.Request) { r.Header.Del(HeaderIfNoneMatch) }},
		{"takes a PUT without a signature", p.object, func(r *http.Request) { r.URL.RawQuery = "" }},
	} {
		status, _, err := p.put(ctx, c.body, p.object, c.alter)
		if err != nil {
			return err
		}
		if err := refused(status, "it "+c.lacks); err != nil {
			return err
		}
		if _, err := p.store.Stat(ctx, p.key); !errors.Is(err, fserror.NotFound) {
			if err != nil {
				return err
			}
			return unsupported("it %s: answers %d, and stores it all the same", c.lacks, status)
		}
	}
	status, text, err := p.put(ctx, p.object, p.object, nil)
	// Two probes at a time: where names are files, the folder of both goes with
	// the one's key while the other's comes.
	for n := 1; err == nil && status == http.StatusConflict && n < conflictTries; n++ {
		if err = clock.Pause(ctx, time.Duration(n)*conflictPause); err == nil {
			status, text, err = p.put(ctx, p.object, p.object, nil)
		}
	}
	if err != nil {
		return err
	} else if status/100 == 5 {
		return fserror.New(fserror.Unavailable, "probe", "", "the block store answers %d to a PUT: %.200s", status, text)
	} else if status == http.StatusForbidden {
		return fserror.New(fserror.Permission, "probe", "", "the block store refuses a PUT: the credentials need to list the bucket and its multipart uploads, to abort these, and to get, put and delete its objects: answer 403 %.200s", text)
	} else if status/100 != 2 {
		return unsupported("it refuses a correct PUT: %d %.200s", status, text)
	}
	for _, again := range [][]byte{p.other, p.object} {
		status, _, err := p.put(ctx, again, again, nil)
		if err != nil {
			return err
		}
		if err := refused(status, "a second PUT to a key is not refused"); err != nil {
			return err
		}
	}
	return p.read(ctx)
}

// read checks that the object is what the first PUT brought, by all ways.
func (p *prober) read(ctx context.Context) error {
	if info, err := p.store.Stat(ctx, p.key); err != nil {
		return err
	} else if info.Length != int64(len(p.object)) {
		return unsupported("a block of %d bytes has %d by its own account", len(p.object), info.Length)
	}
	get, err := p.store.SignGet(p.key, p.expires)
	if err != nil {
		return err
	}
	for _, r := range []struct{ off, length int }{{0, len(p.object)}, {100, 500}} {
		req, err := get.NewRequest(ctx, nil)
		if err != nil {
			return err
		}
		want, status := p.object[r.off:r.off+r.length], http.StatusOK
		if r.length < len(p.object) {
			req.Header.Set("Range", RangeHeader(int64(r.off), int64(r.length)))
			status = http.StatusPartialContent
		}
		got, body, err := p.send(req)
		if err != nil {
			return err
		}
		if got != status || !bytes.Equal(body, want) {
			return unsupported("a GET of bytes %d to %d answers %d and %d bytes, which are not those of the first PUT", r.off, r.off+r.length, got, len(body))
		}
	}
	req, err := get.NewRequest(ctx, nil)
	if err != nil {
		return err
	}
	req.URL.RawQuery = ""
	status, _, err := p.send(req)
	if err != nil {
		return err
	}
	if status/100 == 2 {
		return unsupported("it lets anybody read without a signature")
	}
	return nil
}

// put sends body to a URL that is signed for object.
func (p *prober) put(ctx context.Context, body, object []byte, alter func(*http.Request)) (int, []byte, error) {
	signed, err := p.store.SignPut(p.key, int64(len(object)), CRC(object), p.expires)
	if err != nil {
		return 0, nil, err
	}
	req, err := signed.NewRequest(ctx, body)
	if err != nil {
		return 0, nil, err
	}
	if alter != nil {
		alter(req)
	}
	return p.send(req)
}

func (p *prober) send(req *http.Request) (int, []byte, error) {
	resp, err := p.do(req)
	if err != nil {
		return 0, nil, fserror.Wrap(fserror.Unavailable, "probe", "", err)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if cerr := resp.Body.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return 0, nil, fserror.Wrap(fserror.Unavailable, "probe", "", err)
	}
	return resp.StatusCode, body, nil
}

// refused wants a refusal by the client's fault, and takes a store's own trouble
// for what it is.
func refused(status int, lacks string) error {
	switch status / 100 {
	case 4:
		return nil
	case 2:
		return unsupported("%s", lacks)
	}
	return fserror.New(fserror.Unavailable, "probe", "", "the block store answers %d", status)
}
