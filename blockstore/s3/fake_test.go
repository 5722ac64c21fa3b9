package s3_test

import (
	"encoding/xml"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/leasefs/leasefs/blockstore"
	"github.com/leasefs/leasefs/blockstore/s3"
	"github.com/leasefs/leasefs/fserror"
)

// fake is an S3 server in memory that enforces what leasefs relies on, unless
// told not to.
type fake struct {
	ignoreChecksum, ignoreIfNoneMatch, ignoreSignature, public, keepDeleted bool
	conflicts                                                               int // how many PUTs that are right are answered with 409

	mu      sync.Mutex
	objects map[string][]byte
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	name := strings.TrimPrefix(r.URL.Path, "/blocks/")
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if r.Header.Get("Authorization") == "" { // it trusts the library, and proves URLs
		if !f.ignoreSignature && !signed(r) && (!f.public || r.Method != http.MethodGet) {
			refuse(w, 403, "SignatureDoesNotMatch")
			return
		}
	}
	object, there := f.objects[name]
	switch {
	case r.Method == http.MethodPut:
		switch {
		case !f.ignoreIfNoneMatch && there && r.Header.Get("If-None-Match") == "*":
			refuse(w, 412, "PreconditionFailed")
		case !f.ignoreChecksum && r.Header.Get(blockstore.HeaderChecksum) != blockstore.EncodeChecksum(blockstore.CRC(body)):
			refuse(w, 400, "BadDigest")
		case f.conflicts > 0:
			f.conflicts--
			refuse(w, 409, "ExistingObjectIsDirectory")
		default:
			f.objects[name] = body
		}
	case r.Method == http.MethodPost && r.URL.RawQuery == "delete=":
		var in struct {
			Object []struct{ Key string }
		}
		if err := xml.Unmarshal(body, &in); err != nil {
			refuse(w, 400, "MalformedXML")
			return
		}
		for _, o := range in.Object {
			if !f.keepDeleted {
				delete(f.objects, o.Key)
			}
		}
		_, _ = io.WriteString(w, "<DeleteResult></DeleteResult>")
	case strings.HasPrefix(r.URL.RawQuery, "list-type=2") || strings.Contains(r.URL.RawQuery, "&list-type=2"):
		_, _ = io.WriteString(w, "<ListBucketResult><Name>blocks</Name></ListBucketResult>")
	case !there:
		refuse(w, 404, "NoSuchKey")
	default:
		http.ServeContent(w, r, "", time.Time{}, strings.NewReader(string(object)))
	}
}

func refuse(w http.ResponseWriter, status int, code string) {
	w.WriteHeader(status)
	_, _ = io.WriteString(w, "<Error><Code>"+code+"</Code><Message>no</Message></Error>")
}

// signed reports whether a presigned request carries what was signed: it signs
// the request again and compares.
func signed(r *http.Request) bool {
	q := r.URL.Query()
	at, err := time.Parse("20060102T150405Z", q.Get("X-Amz-Date"))
	if err != nil {
		return false
	}
	again := &http.Request{
		Method: r.Method, Host: r.Host, Header: http.Header{}, ContentLength: r.ContentLength,
		URL: &url.URL{Scheme: "http", Host: r.Host, Path: r.URL.Path, RawQuery: "X-Amz-Expires=" + q.Get("X-Amz-Expires")},
	}
	for name := range strings.SplitSeq(q.Get("X-Amz-SignedHeaders"), ";") {
		if v, ok := r.Header[http.CanonicalHeaderKey(name)]; ok && name != "content-length" {
			again.Header[http.CanonicalHeaderKey(name)] = v
		}
	}
	creds, err := static().Retrieve(r.Context())
	if err != nil {
		return false
	}
	want, _, err := v4.NewSigner().PresignHTTP(r.Context(), creds, again, "UNSIGNED-PAYLOAD", "s3", "here", at, func(o *v4.SignerOptions) {
		o.DisableURIPathEscaping, o.DisableHeaderHoisting = true, true
	})
	return err == nil && strings.HasSuffix(want, "X-Amz-Signature="+q.Get("X-Amz-Signature"))
}

// TestProbeRefuses: a store that lacks one thing is refused for it, and keeps
// nothing of the probe.
func TestProbeRefuses(t *testing.T) {
	for _, c := range []struct {
		lacks string
		fake  *fake
	}{
		{"", &fake{}},
		{"", &fake{conflicts: 3}}, // another probe is at work
		{"refuses a correct PUT: 409", &fake{conflicts: 100}},
		{"compare the bytes with the signed checksum", &fake{ignoreChecksum: true}},
		{"second PUT to a key is not refused", &fake{ignoreIfNoneMatch: true}},
		{"takes a PUT with another checksum than was signed", &fake{ignoreSignature: true}},
		{"anybody read without a signature", &fake{public: true}},
		{"deleted block is still there", &fake{keepDeleted: true}},
	} {
		t.Run(c.lacks, func(t *testing.T) {
			c.fake.objects = map[string][]byte{"of/others": {1}}
			srv := httptest.NewServer(c.fake)
			defer srv.Close()
			s := offline(t, "s3://blocks?endpoint="+srv.URL+"&region=here", func(c *s3.Config) { c.Transport = nil })
			defer func() { _ = s.Close() }()
			err := s.Probe(t.Context())
			if c.lacks == "" && err != nil || c.lacks != "" && (!errors.Is(err, fserror.Unsupported) || !strings.Contains(err.Error(), c.lacks)) {
				t.Errorf("Probe says %v", err)
			}
			if !c.fake.keepDeleted && len(c.fake.objects) != 1 {
				t.Errorf("the probe left %d objects", len(c.fake.objects)-1)
			}
		})
	}
}
