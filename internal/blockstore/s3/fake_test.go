package s3_test

import (
	"encoding/xml"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/blockstore/s3"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/test/sim/s3model"
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

// signed reports whether a presigned request carries what was signed.
func signed(r *http.Request) bool {
	creds, err := static().Retrieve(r.Context())
	return err == nil && s3model.New(s3model.Config{Region: "here", AccessKey: creds.AccessKeyID, SecretKey: creds.SecretAccessKey}).Signed(r) == ""
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
