package s3_test

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/blockstore/s3"
	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
)

// static are credentials that no server knows.
func static(mods ...func(*aws.Credentials)) aws.CredentialsProvider {
	return aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
		c := aws.Credentials{AccessKeyID: "key", SecretAccessKey: "hidden"}
		for _, mod := range mods {
			mod(&c)
		}
		return c, nil
	})
}

// carrier answers requests in the place of a server.
type carrier func(*http.Request) (*http.Response, error)

func (c carrier) RoundTrip(r *http.Request) (*http.Response, error) { return c(r) }

// offline opens a store that reaches nobody but the carrier.
func offline(t testing.TB, url string, mods ...func(*s3.Config)) *s3.Store {
	t.Helper()
	loc, err := s3.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	cfg := s3.Config{
		Location: loc, Credentials: static(), MaxBackoff: time.Microsecond, NamespaceID: [16]byte{0xab, 15: 0xcd},
		Transport: carrier(func(*http.Request) (*http.Response, error) { return nil, errors.New("a test without a network") }),
	}
	for _, mod := range mods {
		mod(&cfg)
	}
	s, err := s3.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

const nowhere = "s3://blocks/pre/fix?endpoint=http://s3.test:9000&region=here"

func TestSignPut(t *testing.T) {
	var now clock.Fake
	now.Advance(20*365*24*time.Hour + 700*time.Millisecond)
	s := offline(t, nowhere, func(c *s3.Config) { c.Clock = &now })
	want := now.Wall().Add(time.Minute)
	got, err := s.SignPut(blockstore.Key{Term: 0x1f, Seq: 0x12345}, 1000, 0xdeadbeef, want)
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(got.URL)
	if err != nil {
		t.Fatal(err)
	}
	if u.Host != "s3.test:9000" || u.Path != "/blocks/pre/fix/ab0000000000000000000000000000cd/blocks/000000000000001f/0000000000012345" {
		t.Errorf("URL %s", got.URL)
	}
	q := u.Query()
	for name, value := range map[string]string{
		"X-Amz-Expires":       "60",
		"X-Amz-SignedHeaders": "content-length;host;if-none-match;x-amz-checksum-crc32c",
		"X-Amz-Algorithm":     "AWS4-HMAC-SHA256",
		"X-Amz-Date":          now.Wall().UTC().Format("20060102T150405Z"),
	} {
		if q.Get(name) != value {
			t.Errorf("%s is %q, want %q", name, q.Get(name), value)
		}
	}
	if len(q) != 6 || !strings.HasSuffix(q.Get("X-Amz-Credential"), "/here/s3/aws4_request") {
		t.Errorf("query %v", q)
	}
	if h := got.Header; got.Method != http.MethodPut || len(h) != 3 || h.Get("Content-Length") != "1000" ||
		h.Get(blockstore.HeaderChecksum) != blockstore.EncodeChecksum(0xdeadbeef) || h.Get(blockstore.HeaderIfNoneMatch) != "*" {
		t.Errorf("%s with %v", got.Method, h)
	}
	if d := want.Sub(got.Expires); d < 0 || d >= time.Second {
		t.Errorf("ends at %s, %s was asked for", got.Expires, want)
	}
}

func TestSignEnds(t *testing.T) {
	var now clock.Fake
	now.Advance(20 * 365 * 24 * time.Hour)
	at := func(c *s3.Config) { c.Clock = &now }
	key := blockstore.Key{Term: 1, Seq: 1}
	if got, err := offline(t, nowhere, at).SignGet(key, now.Wall().Add(30*24*time.Hour)); err != nil || !got.Expires.Equal(now.Wall().Add(7*24*time.Hour)) {
		t.Errorf("a month: until %s, %v", got.Expires, err)
	}
	// Credentials are cached by the wall clock of the machine.
	over := time.Now().Add(time.Hour)
	temporary := func(c *s3.Config) {
		c.Credentials = static(func(c *aws.Credentials) { c.SessionToken, c.CanExpire, c.Expires = "token/+", true, over })
	}
	got, err := offline(t, nowhere, temporary).SignGet(key, time.Now().Add(2*time.Hour))
	if err != nil || !got.Expires.Equal(over) || !strings.Contains(got.URL, "X-Amz-Security-Token=token%2F%2B") {
		t.Errorf("temporary credentials until %s: %s until %s, %v", over, got.URL, got.Expires, err)
	}
	for _, ends := range []time.Time{now.Wall(), now.Wall().Add(-time.Hour), now.Wall().Add(999 * time.Millisecond)} {
		if _, err := offline(t, nowhere, at).SignGet(key, ends); !errors.Is(err, fserror.InvalidArgument) {
			t.Errorf("until %s: %v, want InvalidArgument", ends, err)
		}
	}
}

func TestSignRefuses(t *testing.T) {
	s := offline(t, nowhere, func(c *s3.Config) { c.MaxObject = 1000 })
	soon := time.Now().Add(time.Minute)
	for length, kind := range map[int64]fserror.Kind{0: fserror.InvalidArgument, -1: fserror.InvalidArgument, 1001: fserror.TooLarge} {
		if _, err := s.SignPut(blockstore.Key{Term: 1, Seq: 1}, length, 0, soon); !errors.Is(err, kind) {
			t.Errorf("%d bytes: %v, want %s", length, err, kind)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.SignGet(blockstore.Key{}, soon); !errors.Is(err, fserror.Closed) {
		t.Errorf("after Close: %v", err)
	}
	none := offline(t, nowhere, func(c *s3.Config) {
		c.Credentials = aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{}, errors.New("none found")
		})
	})
	for what, call := range map[string]func() error{
		"sign":  func() error { _, err := none.SignGet(blockstore.Key{}, soon); return err },
		"check": func() error { return none.Check(t.Context()) },
	} {
		if err := call(); !errors.Is(err, fserror.Permission) || !strings.Contains(err.Error(), "AWS_ACCESS_KEY_ID") {
			t.Errorf("%s without credentials: %v", what, err)
		}
	}
}

func TestOpen(t *testing.T) {
	t.Setenv("AWS_REGION", "")
	t.Setenv("AWS_DEFAULT_REGION", "")
	t.Setenv("AWS_CONFIG_FILE", "/dev/null")
	at := func(url string) (s3.Location, error) {
		loc, err := s3.ParseURL(url)
		if err != nil {
			t.Fatal(err)
		}
		s, err := s3.Open(t.Context(), s3.Config{Location: loc, Credentials: static()})
		if err != nil {
			return s3.Location{}, err
		}
		defer func() { _ = s.Close() }()
		return s.Location(), nil
	}
	if _, err := at("s3://blocks"); !errors.Is(err, fserror.InvalidArgument) || !strings.Contains(err.Error(), "region=NAME") {
		t.Errorf("AWS without a region: %v", err)
	}
	if loc, err := at("s3://blocks?endpoint=http://h"); err != nil || loc.Region != "us-east-1" {
		t.Errorf("another store without a region: %+v, %v", loc, err)
	}
	t.Setenv("AWS_REGION", "eu-west-1")
	if loc, err := at("s3://blocks"); err != nil || loc.Region != "eu-west-1" {
		t.Errorf("AWS_REGION: %+v, %v", loc, err)
	}
	if _, err := s3.Open(t.Context(), s3.Config{Location: s3.Location{Bucket: "UP"}}); !errors.Is(err, fserror.InvalidArgument) {
		t.Errorf("a bad bucket: %v", err)
	}
}

// TestEndpoints: where the URLs of each style lead.
func TestEndpoints(t *testing.T) {
	for url, want := range map[string]string{
		"s3://blocks?region=eu-west-1":                                        "https://blocks.s3.eu-west-1.amazonaws.com/",
		"s3://my.blocks?region=eu-west-1":                                     "https://s3.eu-west-1.amazonaws.com/my.blocks/",
		"s3://blocks?region=cn-north-1":                                       "https://blocks.s3.cn-north-1.amazonaws.com.cn/",
		"s3://blocks?endpoint=https://s3.test:444":                            "https://s3.test:444/blocks/",
		"s3://blocks?endpoint=https://s3.test:444&path-style=false&region=xx": "https://blocks.s3.test:444/",
	} {
		got, err := offline(t, url).SignGet(blockstore.Key{}, time.Now().Add(time.Minute))
		if err != nil || !strings.HasPrefix(got.URL, want+"ab00") {
			t.Errorf("%s: %s, %v; want %s", url, got.URL, err, want)
		}
	}
}

func BenchmarkSignGet(b *testing.B) {
	s := offline(b, nowhere)
	soon := time.Now().Add(time.Hour)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.SignGet(blockstore.Key{Term: 1, Seq: 2}, soon); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSignPut(b *testing.B) {
	s := offline(b, nowhere)
	soon := time.Now().Add(time.Hour)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.SignPut(blockstore.Key{Term: 1, Seq: 2}, 1000, 7, soon); err != nil {
			b.Fatal(err)
		}
	}
}
