package s3_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/blockstore/s3"
	"github.com/leasefs/leasefs/internal/fserror"
)

// reply makes an answer; a body that is a code becomes S3's XML.
func reply(r *http.Request, status int, body string, header ...string) *http.Response {
	resp := &http.Response{
		StatusCode: status, ProtoMajor: 1, ProtoMinor: 1, Request: r, ContentLength: -1,
		Header: http.Header{"Date": {time.Now().UTC().Format(http.TimeFormat)}},
	}
	if body != "" && !strings.ContainsAny(body, "< ") {
		body = "<?xml version=\"1.0\"?><Error><Code>" + body + "</Code><Message>the store's words</Message></Error>"
	}
	for i := 0; i < len(header); i += 2 {
		resp.Header.Set(header[i], header[i+1])
	}
	if r.Method == http.MethodHead {
		body = ""
	}
	resp.Body = io.NopCloser(strings.NewReader(body))
	return resp
}

// answering is a store whose server gives that answer, and how many there were.
func answering(t *testing.T, status int, body string, header ...string) (*s3.Store, *int) {
	n := new(int)
	return offline(t, nowhere, func(c *s3.Config) {
		c.MaxTries = 3
		c.Transport = carrier(func(r *http.Request) (*http.Response, error) {
			*n++
			return reply(r, status, body, header...), nil
		})
	}), n
}

const region = "X-Amz-Bucket-Region"

// TestCheckSaysWhatToDo: each answer that a wrong setting leads to.
func TestCheckSaysWhatToDo(t *testing.T) {
	late := time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat)
	early := time.Now().Add(time.Hour).UTC().Format(http.TimeFormat)
	for _, c := range []struct {
		name   string
		status int
		body   string
		header []string
		kind   fserror.Kind
		says   string
		tries  int
	}{
		{"no bucket", 404, "NoSuchBucket", nil, fserror.Unavailable, "no bucket blocks at http://s3.test:9000: make it", 1},
		{"access key", 403, "InvalidAccessKeyId", nil, fserror.Permission, "correct AWS_ACCESS_KEY_ID", 1},
		{"secret", 403, "SignatureDoesNotMatch", nil, fserror.Permission, "correct AWS_SECRET_ACCESS_KEY", 1},
		{"token", 400, "ExpiredToken", nil, fserror.Permission, "get new ones", 1},
		{"permission", 403, "AccessDenied", nil, fserror.Permission, "need to list it", 1},
		{"region named", 400, "AuthorizationHeaderMalformed", []string{region, "there"}, fserror.InvalidArgument, "write region=there", 1},
		{"region by redirect", 301, "PermanentRedirect", []string{region, "there"}, fserror.InvalidArgument, "write region=there", 1},
		{"region unnamed", 400, "AuthorizationHeaderMalformed", nil, fserror.InvalidArgument, "another region than here", 1},
		{"clock, by code", 403, "RequestTimeTooSkewed", nil, fserror.Unavailable, "NTP", 0},
		{"clock behind", 403, "AccessDenied", []string{"Date", early}, fserror.Unavailable, "1h0m0s behind", 1},
		{"clock ahead", 403, "SignatureDoesNotMatch", []string{"Date", late}, fserror.Unavailable, "1h0m0s ahead", 0},
		{"clock ahead, all well", 200, "<ListBucketResult><Name>blocks</Name></ListBucketResult>", []string{"Date", late}, fserror.Unavailable, "1h0m0s ahead", 1},
		{"a web page", 200, "<html><body>It works!</body></html>", nil, fserror.Unavailable, "not answer like an S3 server", 0},
		{"empty", 200, "", nil, fserror.Unavailable, "not answer like an S3 server", 1},
		{"text", 404, "404 page not found", nil, fserror.Unavailable, "not answer like an S3 server", 0},
		{"a redirect of the web", 302, "<a href=x>moved</a>", []string{"Location", "http://other.test/"}, fserror.Unavailable, "not answer like an S3 server", 0},
		{"slow down", 503, "SlowDown", nil, fserror.Unavailable, "tried 3 times", 3},
		{"too many", 429, "TooManyRequests", nil, fserror.Unavailable, "tried 3 times", 3},
		{"two make a prefix", 409, "ExistingObjectIsDirectory", nil, fserror.Unavailable, "does not take it now", 3},
		{"bad gateway", 502, "<html>no XML of S3</html>", nil, fserror.Unavailable, "tried 3 times", 3},
		{"internal", 500, "InternalError", nil, fserror.Unavailable, "tried 3 times", 3},
		{"not implemented", 501, "NotImplemented", nil, fserror.Unsupported, "use another", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, n := answering(t, c.status, c.body, c.header...)
			for what, call := range map[string]func(context.Context) error{"Check": s.Check, "Probe": s.Probe} {
				*n = 0
				err := call(t.Context())
				if !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "\n") {
					t.Errorf("%s: %v\nwant %s and %q, on one line", what, err, c.kind, c.says)
				}
				if c.tries != 0 && *n != c.tries {
					t.Errorf("%s: %d requests, want %d", what, *n, c.tries)
				}
			}
		})
	}
}

// TestKinds: answers that concern one object.
func TestKinds(t *testing.T) {
	obj, crc := blockstore.Seal([]byte("some bytes"))
	key := blockstore.Key{Term: 1, Seq: 2}
	put := func(s *s3.Store) error { return s.Put(t.Context(), key, obj, crc) }
	get := func(s *s3.Store) error { _, err := s.Get(t.Context(), key, 0, 5); return err }
	stat := func(s *s3.Store) error { _, err := s.Stat(t.Context(), key); return err }
	for _, c := range []struct {
		name   string
		call   func(*s3.Store) error
		status int
		body   string
		kind   fserror.Kind
		says   string
	}{
		{"put", put, 412, "PreconditionFailed", fserror.Exists, "first PUT"},
		{"put", put, 400, "BadDigest", fserror.Damaged, "not those that were announced"},
		{"put", put, 409, "ConditionalRequestConflict", fserror.Unavailable, ""},
		{"put", put, 507, "InsufficientStorage", fserror.NoSpace, "full"},
		{"put", put, 403, "QuotaExceeded", fserror.NoSpace, "full"},
		{"put", put, 400, "EntityTooLarge", fserror.TooLarge, ""},
		{"put", put, 404, "NoSuchBucket", fserror.Unavailable, "no bucket blocks"},
		{"get", get, 404, "NoSuchKey", fserror.NotFound, "block 1/2"},
		{"get", get, 416, "InvalidRange", fserror.InvalidArgument, "beyond its end"},
		{"get", get, 404, "NoSuchBucket", fserror.Unavailable, "no bucket blocks"},
		{"get", get, 200, "all of it", fserror.Unsupported, "ignores ranges"},
		{"stat", stat, 404, "NoSuchKey", fserror.NotFound, "block 1/2"},
		// A HEAD has no body; that it is the bucket that is missing must not
		// pass for a missing block.
		{"stat", stat, 404, "NoSuchBucket", fserror.Unavailable, "no bucket blocks"},
		{"stat", stat, 403, "InvalidAccessKeyId", fserror.Permission, "AWS_ACCESS_KEY_ID"},
	} {
		t.Run(fmt.Sprint(c.name, c.status, c.body), func(t *testing.T) {
			s, _ := answering(t, c.status, c.body)
			if err := c.call(s); !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v\nwant %s and %q", err, c.kind, c.says)
			}
		})
	}
	s, n := answering(t, 200, "")
	if err := s.Put(t.Context(), key, obj, crc+1); !errors.Is(err, fserror.Damaged) || *n != 0 {
		t.Errorf("a wrong checksum: %v after %d requests", err, *n)
	}
}

func TestDeleteReportsEachRefusal(t *testing.T) {
	s, n := answering(t, 200, `<DeleteResult><Error><Key>pre/fix/ab0000000000000000000000000000cd/blocks/x</Key><Code>AccessDenied</Code><Message>locked</Message></Error>
		<Error><Key>y</Key><Code>NoSuchKey</Code></Error><Error><Key>z</Key><Code>InternalError</Code></Error></DeleteResult>`)
	keys := make([]blockstore.Key, 1001)
	err := s.Delete(t.Context(), keys...)
	if !errors.Is(err, fserror.Permission) || !strings.Contains(err.Error(), "blocks/x: AccessDenied locked (and 3 more)") || *n != 2 {
		t.Errorf("%v, %d requests", err, *n)
	}
	if errors.As(err, new(*blockstore.KeptError)) {
		t.Error("it names all that is kept, and the store has refused what nobody named")
	}
	if err := s.Delete(t.Context()); err != nil || *n != 2 {
		t.Errorf("deleting nothing: %v, %d requests", err, *n)
	}
}

// TestDeleteNamesWhatIsKept: of a page of which one is refused the others are gone, and which is told.
func TestDeleteNamesWhatIsKept(t *testing.T) {
	s, _ := answering(t, 200, `<DeleteResult><Error><Key>pre/fix/ab0000000000000000000000000000cd/blocks/0000000000000001/0000000000000002</Key><Code>AccessDenied</Code></Error></DeleteResult>`)
	var kept *blockstore.KeptError
	err := s.Delete(t.Context(), blockstore.Key{Term: 1, Seq: 1}, blockstore.Key{Term: 1, Seq: 2}, blockstore.Key{Term: 1, Seq: 3})
	if !errors.As(err, &kept) || len(kept.Keys) != 1 || kept.Keys[0] != (blockstore.Key{Term: 1, Seq: 2}) || !errors.Is(err, fserror.Permission) {
		t.Errorf("%v: %+v", err, kept)
	}
}

func TestListRefusesAnotherOrder(t *testing.T) {
	const ns = "pre/fix/ab0000000000000000000000000000cd/blocks/0000000000000001/000000000000000"
	for name, body := range map[string]string{
		"order": "<Contents><Key>" + ns + "5</Key></Contents><Contents><Key>" + ns + "4</Key></Contents>",
		"more":  "<IsTruncated>true</IsTruncated>",
		"after": "<Contents><Key>" + ns + "1</Key></Contents>",
	} {
		s, _ := answering(t, 200, "<ListBucketResult><Name>blocks</Name>"+body+"</ListBucketResult>")
		if got, err := s.List(t.Context(), blockstore.Key{Term: 1, Seq: 2}, 10); !errors.Is(err, fserror.Unsupported) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

func TestUnreachable(t *testing.T) {
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	s := offline(t, "s3://blocks?endpoint=http://"+l.Addr().String(), func(c *s3.Config) { c.Transport = nil })
	defer func() { _ = s.Close() }()
	if err := s.Probe(t.Context()); !errors.Is(err, fserror.Unavailable) || !strings.Contains(err.Error(), "cannot be reached") || !strings.Contains(err.Error(), "refused") {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Check(ctx); !errors.Is(err, fserror.Canceled) {
		t.Error(err)
	}
}

// TestStall: a try that moves nothing ends, is repeated, and the call ends.
func TestStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		s := offline(t, nowhere, func(c *s3.Config) {
			c.MaxTries, c.TryTimeout, c.MaxBackoff = 3, 10*time.Second, time.Second
			c.Transport = carrier(func(r *http.Request) (*http.Response, error) {
				n++
				<-r.Context().Done()
				return nil, r.Context().Err()
			})
		})
		begin := time.Now()
		err := s.Check(t.Context())
		if !errors.Is(err, fserror.Unavailable) || !strings.Contains(err.Error(), "nothing moved for 10s") || n != 3 {
			t.Errorf("%v after %d tries", err, n)
		}
		if d := time.Since(begin); d < 30*time.Second || d > 32*time.Second {
			t.Errorf("took %s", d)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
		defer cancel()
		if err := s.Check(ctx); !errors.Is(err, fserror.Deadline) {
			t.Error(err)
		}
	})
}

// stalling is a body that gives some bytes and then none until its request ends.
type stalling struct {
	io.Reader
	ctx context.Context
}

func (b stalling) Read(p []byte) (int, error) {
	if n, err := b.Reader.Read(p); err == nil {
		return n, nil
	}
	<-b.ctx.Done()
	return 0, b.ctx.Err()
}

func (stalling) Close() error { return nil }

// TestBodyGoesOn: a body that stalls or breaks off is asked for again from
// where it did.
func TestBodyGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const all = "0123456789"
		var asked []string
		s := offline(t, nowhere, func(c *s3.Config) {
			c.Transport = carrier(func(r *http.Request) (*http.Response, error) {
				var from, to int
				asked = append(asked, r.Header.Get("Range"))
				if _, err := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-%d", &from, &to); err != nil {
					return nil, err
				}
				resp := reply(r, 206, "", "Content-Range", fmt.Sprintf("bytes %d-%d/10", from, to))
				resp.ContentLength = int64(to + 1 - from)
				resp.Header.Set("Content-Length", fmt.Sprint(to+1-from))
				part := all[from:min(from+3, to+1)] // never more than three bytes
				resp.Body = stalling{strings.NewReader(part), r.Context()}
				return resp, nil
			})
		})
		r, err := s.Get(t.Context(), blockstore.Key{}, 1, 8)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(r)
		if err := errors.Join(err, r.Close()); err != nil || string(got) != all[1:9] {
			t.Errorf("%q, %v", got, err)
		}
		if fmt.Sprint(asked) != "[bytes=1-8 bytes=4-8 bytes=7-8]" {
			t.Errorf("asked for %v", asked)
		}
	})
}
