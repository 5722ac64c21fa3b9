package s3model

import (
	"bytes"
	"cmp"
	"context"
	"encoding/xml"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/leasefs/leasefs/internal/blockstore"
)

// Config says who may use a store.
type Config struct {
	Bucket, Region       string
	AccessKey, SecretKey string
	Seed                 uint64 // of what fails by chance
}

// Server is a store. It is an http.Handler; its methods are safe for concurrent use
// and do not wait.
type Server struct {
	cfg Config

	mu      sync.Mutex
	objects map[string]object
	listed  map[string]object // objects as lists show them
	coming  []listing         // changes that lists do not show yet, the oldest first
	faults  faults
}

// object is what a name has. It is never changed.
type object struct {
	data   []byte
	crc    string
	stored time.Time
}

// listing is a change that lists show from a moment on.
type listing struct {
	due  time.Time
	name string
	is   *object // nil: deleted
}

// New returns an empty store.
func New(cfg Config) *Server {
	return &Server{cfg: cfg, objects: map[string]object{}, listed: map[string]object{}, faults: newFaults(cfg.Seed)}
}

// Names are the names of all objects that begin with prefix, in order.
func (s *Server) Names(prefix string) (names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name := range s.objects {
		if strings.HasPrefix(name, prefix) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	bucket, name, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	refusal := s.mayBegin(r, bucket)
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler) // it did not arrive whole: nothing happens
	}
	if refusal != nil {
		refusal.send(w, r)
		return
	}
	s.mu.Lock()
	fault := s.faults.next(r.Method)
	s.mu.Unlock()
	switch fault.kind {
	case loseRequest:
		panic(http.ErrAbortHandler)
	case landLate:
		time.AfterFunc(fault.late, func() { s.handle(httpNothing{}, r, name, body) })
		if fault.hold {
			<-r.Context().Done() // until its sender gives up
		}
		panic(http.ErrAbortHandler)
	case loseReply:
		s.handle(httpNothing{}, r, name, body)
		panic(http.ErrAbortHandler)
	case troubleAfter:
		s.handle(httpNothing{}, r, name, body)
		fault.refusal.send(w, r)
	case troubleBefore:
		fault.refusal.send(w, r)
	default:
		s.handle(w, r, name, body)
	}
}

// handle carries a request out and answers it.
func (s *Server) handle(w http.ResponseWriter, r *http.Request, name string, body []byte) {
	q := r.URL.Query()
	switch {
	case name == "" && r.Method == http.MethodPost && q.Has("delete"):
		s.delete(w, r, body)
	case name == "" && r.Method == http.MethodGet && q.Has("uploads"):
		sendXML(w, listUploads{Bucket: s.cfg.Bucket})
	case name == "" && r.Method == http.MethodGet && q.Get("list-type") == "2":
		s.list(w, r, q)
	case name != "" && r.Method == http.MethodPut && len(q["uploadId"]) == 0:
		s.put(w, r, name, body)
	case name != "" && (r.Method == http.MethodGet || r.Method == http.MethodHead):
		s.get(w, r, name)
	default:
		(&refusal{http.StatusNotImplemented, "NotImplemented"}).send(w, r)
	}
}

// put stores an object, if its conditions are met now.
func (s *Server) put(w http.ResponseWriter, r *http.Request, name string, body []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	crc := blockstore.EncodeChecksum(blockstore.CRC(body))
	_, there := s.objects[name]
	switch sum := r.Header.Get(blockstore.HeaderChecksum); {
	case there && r.Header.Get(blockstore.HeaderIfNoneMatch) == blockstore.IfNoneMatchAny:
		(&refusal{http.StatusPreconditionFailed, "PreconditionFailed"}).send(w, r)
	case sum != "" && sum != crc:
		(&refusal{http.StatusBadRequest, "BadDigest"}).send(w, r)
	case s.faults.full:
		(&refusal{http.StatusInsufficientStorage, "XMinioStorageFull"}).send(w, r)
	default:
		o := object{body, crc, time.Now().Truncate(time.Second)}
		s.objects[name] = o
		s.change(name, &o)
		w.WriteHeader(http.StatusOK)
	}
}

// change has lists show a change after their lag. The lock is held.
func (s *Server) change(name string, is *object) {
	due := time.Now().Add(s.faults.lag)
	if n := len(s.coming); n > 0 && s.coming[n-1].due.After(due) {
		due = s.coming[n-1].due
	}
	s.coming = append(s.coming, listing{due, name, is})
}

func (s *Server) delete(w http.ResponseWriter, r *http.Request, body []byte) {
	var in struct{ Object []struct{ Key string } }
	if err := xml.Unmarshal(body, &in); err != nil {
		(&refusal{http.StatusBadRequest, "MalformedXML"}).send(w, r)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range in.Object {
		if _, there := s.objects[o.Key]; there {
			delete(s.objects, o.Key)
			s.change(o.Key, nil)
		}
	}
	sendXML(w, struct {
		XMLName xml.Name `xml:"DeleteResult"`
	}{})
}

func (s *Server) get(w http.ResponseWriter, r *http.Request, name string) {
	s.mu.Lock()
	o, there := s.objects[name]
	s.mu.Unlock()
	if !there {
		(&refusal{http.StatusNotFound, "NoSuchKey"}).send(w, r)
		return
	}
	if from, _, ok := strings.Cut(strings.TrimPrefix(r.Header.Get("Range"), "bytes="), "-"); ok {
		if at, err := strconv.Atoi(from); err == nil && at >= len(o.data) {
			(&refusal{http.StatusRequestedRangeNotSatisfiable, "InvalidRange"}).send(w, r)
			return
		}
	}
	if r.Header.Get("X-Amz-Checksum-Mode") == "ENABLED" {
		w.Header().Set(blockstore.HeaderChecksum, o.crc)
	}
	w.Header().Set("Content-Type", "binary/octet-stream")
	http.ServeContent(w, r, "", o.stored, bytes.NewReader(o.data))
}

type listUploads struct {
	XMLName xml.Name `xml:"ListMultipartUploadsResult"`
	Bucket  string
}

// list is a page of ListObjectsV2.
type list struct {
	XMLName        xml.Name `xml:"ListBucketResult"`
	Name           string
	IsTruncated    bool
	EncodingType   string `xml:",omitempty"`
	Contents       []listedObject
	CommonPrefixes []struct{ Prefix string }
}

type listedObject struct {
	Key          string
	Size         int
	LastModified string
}

func (s *Server) list(w http.ResponseWriter, r *http.Request, q url.Values) {
	most, err := strconv.Atoi(cmp.Or(q.Get("max-keys"), "1000"))
	if err != nil || q.Has("continuation-token") {
		(&refusal{http.StatusNotImplemented, "NotImplemented"}).send(w, r)
		return
	}
	encode := func(name string) string { return name }
	if q.Get("encoding-type") == "url" {
		encode = url.QueryEscape
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.coming) > 0 && !s.coming[0].due.After(time.Now()) {
		if c := s.coming[0]; c.is == nil {
			delete(s.listed, c.name)
		} else {
			s.listed[c.name] = *c.is
		}
		s.coming = s.coming[1:]
	}
	page := list{Name: s.cfg.Bucket, EncodingType: q.Get("encoding-type")}
	prefix, delimiter, last := q.Get("prefix"), q.Get("delimiter"), ""
	for _, name := range slices.Sorted(maps.Keys(s.listed)) {
		rest, ok := strings.CutPrefix(name, prefix)
		if !ok || name <= q.Get("start-after") {
			continue
		}
		if folder, _, ok := strings.Cut(rest, delimiter); ok && delimiter != "" {
			if folder = prefix + folder + delimiter; folder != last {
				last = folder
				page.CommonPrefixes = append(page.CommonPrefixes, struct{ Prefix string }{encode(folder)})
			}
			continue
		}
		if len(page.Contents) == most {
			page.IsTruncated = true
			break
		}
		o := s.listed[name]
		page.Contents = append(page.Contents, listedObject{encode(name), len(o.data), o.stored.UTC().Format(time.RFC3339)})
	}
	sendXML(w, page)
}

func sendXML(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/xml")
	_ = xml.NewEncoder(w).Encode(v) // the client is gone if it fails
}

// refusal is an answer other than that it is done.
type refusal struct {
	status int
	code   string
}

func (f *refusal) send(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(f.status)
	if r.Method == http.MethodHead {
		return
	}
	_ = xml.NewEncoder(w).Encode(struct {
		XMLName       xml.Name `xml:"Error"`
		Code, Message string
	}{Code: f.code, Message: "by the model"})
}

// httpNothing takes an answer that nobody gets.
type httpNothing struct{}

func (httpNothing) Header() http.Header         { return http.Header{} }
func (httpNothing) Write(p []byte) (int, error) { return len(p), nil }
func (httpNothing) WriteHeader(int)             {}

// maxAhead is how far in the future the time of a signature may be.
const maxAhead = 15 * time.Minute

// mayBegin refuses what is not signed for this moment.
func (s *Server) mayBegin(r *http.Request, bucket string) *refusal {
	if r.Header.Get("Authorization") == "" {
		if code := s.Signed(r); code != "" {
			return &refusal{http.StatusForbidden, code}
		}
	}
	if bucket != s.cfg.Bucket {
		return &refusal{http.StatusNotFound, "NoSuchBucket"}
	}
	return nil
}

// Signed returns S3's code for what is wrong with a presigned request, or nothing:
// it signs the request again and compares.
func (s *Server) Signed(r *http.Request) (code string) {
	q := r.URL.Query()
	at, err := time.Parse("20060102T150405Z", q.Get("X-Amz-Date"))
	life, lerr := strconv.Atoi(q.Get("X-Amz-Expires"))
	if err != nil || lerr != nil {
		return "AccessDenied"
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
	creds := aws.Credentials{AccessKeyID: s.cfg.AccessKey, SecretAccessKey: s.cfg.SecretKey}
	want, _, err := v4.NewSigner().PresignHTTP(context.Background(), creds, again, "UNSIGNED-PAYLOAD", "s3", s.cfg.Region, at, func(o *v4.SignerOptions) {
		o.DisableURIPathEscaping, o.DisableHeaderHoisting = true, true
	})
	if err != nil {
		return "AccessDenied"
	}
	if u, err := url.Parse(want); err != nil || !maps.EqualFunc(u.Query(), q, slices.Equal) {
		return "SignatureDoesNotMatch"
	}
	if until := at.Add(time.Duration(life) * time.Second); time.Now().After(until) || time.Until(at) > maxAhead {
		return "AccessDenied"
	}
	return ""
}
