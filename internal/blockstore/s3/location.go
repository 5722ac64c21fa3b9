package s3

import (
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/leasefs/leasefs/internal/fserror"
)

// Scheme is the scheme of the URLs that ParseURL reads.
const Scheme = "s3"

// Parameters of such a URL.
const (
	paramEndpoint  = "endpoint"
	paramRegion    = "region"
	paramPathStyle = "path-style"
)

// maxPrefix bounds Location.Prefix, in bytes: S3 allows 1,024 for a whole name.
const maxPrefix = 512

// Location says where a store is.
type Location struct {
	Bucket string
	// Prefix begins the names of all objects; no slash at either end. Empty is
	// the whole bucket.
	Prefix string
	// Endpoint is "http://host[:port]" or "https://host[:port]". Empty is AWS.
	Endpoint string
	// Region is part of what is signed. Empty takes it from the environment and
	// ~/.aws/config, else us-east-1 if there is an Endpoint.
	Region string
	// PathStyle puts the bucket in the path of URLs, not in the host's name.
	PathStyle bool
}

// Names that need no escaping anywhere.
var (
	bucketName = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$`)
	prefixName = regexp.MustCompile(`^[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)*$`)
	regionName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
)

// ParseURL reads
//
//	s3://BUCKET[/PREFIX][?endpoint=http[s]://HOST[:PORT]][&region=NAME][&path-style=true|false]
//
// and nothing else. path-style is true by default if there is an endpoint, or a
// dot in the bucket's name. InvalidArgument names what is wrong.
func ParseURL(s string) (Location, error) {
	bad := func(format string, args ...any) (Location, error) {
		return Location{}, fserror.New(fserror.InvalidArgument, "", "", "block store "+format, args...)
	}
	u, err := url.Parse(s)
	if err != nil {
		// What url.Parse says repeats the URL, which may have a secret in it.
		return bad("URL cannot be parsed: write s3://BUCKET/PREFIX?endpoint=https://HOST:PORT&region=NAME")
	}
	if u.User != nil {
		return bad("URL must not have credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or ~/.aws/credentials")
	}
	loc := Location{Bucket: u.Host, Prefix: strings.Trim(u.Path, "/")}
	switch {
	case u.Scheme != Scheme || u.Opaque != "":
		return bad("URL %q does not begin with s3://", s)
	case !validBucket(loc.Bucket):
		return bad("URL %q: %q is no name of a bucket (3 to 63 of a-z, 0-9, dot, hyphen)", s, loc.Bucket)
	case !validPrefix(loc.Prefix):
		return bad("URL %q: the prefix %q must be of letters, digits, dot, hyphen, underscore and single slashes, at most %d bytes", s, loc.Prefix, maxPrefix)
	case u.Fragment != "" || strings.Contains(s, "#"):
		return bad("URL %q must not have a #", s)
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return bad("URL %q: its parameters cannot be parsed: %v", s, err)
	}
	for name, values := range query {
		if !slices.Contains([]string{paramEndpoint, paramRegion, paramPathStyle}, name) {
			return bad("URL %q: unknown parameter %q: there are endpoint, region and path-style", s, name)
		}
		if len(values) != 1 || values[0] == "" {
			return bad("URL %q: parameter %q must be given once, with a value", s, name)
		}
	}
	if loc.Endpoint = query.Get(paramEndpoint); loc.Endpoint != "" {
		if loc.Endpoint, err = parseEndpoint(loc.Endpoint); err != nil {
			return Location{}, err
		}
	}
	if loc.Region = query.Get(paramRegion); loc.Region != "" && !regionName.MatchString(loc.Region) {
		return bad("URL %q: %q is no name of a region", s, loc.Region)
	}
	loc.PathStyle = loc.Endpoint != "" || strings.Contains(loc.Bucket, ".")
	switch v := query.Get(paramPathStyle); v {
	case "":
	case "true", "false":
		loc.PathStyle = v == "true"
	default:
		return bad("URL %q: path-style is %q, must be true or false", s, v)
	}
	return loc, nil
}

func validBucket(name string) bool {
	return bucketName.MatchString(name) && !strings.Contains(name, "..")
}

// validPrefix refuses "." and ".." too, which servers that keep files resolve.
func validPrefix(prefix string) bool {
	return prefix == "" || len(prefix) <= maxPrefix && prefixName.MatchString(prefix) && !hasDots(prefix)
}

// hasDots reports whether a part of a path is "." or "..".
func hasDots(path string) bool {
	for part := range strings.SplitSeq(path, "/") {
		if part == "." || part == ".." {
			return true
		}
	}
	return false
}

// parseEndpoint wants scheme and host, and nothing after them.
func parseEndpoint(s string) (string, error) {
	u, err := url.Parse(s)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Hostname() == "" || u.User != nil ||
		(u.Path != "" && u.Path != "/") || u.RawQuery != "" || u.Fragment != "" || strings.ContainsAny(s, "?#") {
		return "", fserror.New(fserror.InvalidArgument, "", "", "block store endpoint %q must be http://HOST[:PORT] or https://HOST[:PORT], and nothing else", s)
	}
	host := strings.ToLower(u.Host)
	// HTTP clients would send the usual port in the header Host, and signers
	// leave it out of what they sign.
	if port := map[string]string{"http": ":80", "https": ":443"}[u.Scheme]; strings.HasSuffix(host, port) {
		host = strings.TrimSuffix(host, port)
	}
	return u.Scheme + "://" + host, nil
}

// String is the URL, every parameter written out that is set.
func (l Location) String() string {
	s := Scheme + "://" + l.Bucket
	if l.Prefix != "" {
		s += "/" + l.Prefix
	}
	sep := "?"
	add := func(name, value string) { s += sep + name + "=" + value; sep = "&" }
	if l.Endpoint != "" {
		add(paramEndpoint, l.Endpoint)
	}
	if l.Region != "" {
		add(paramRegion, l.Region)
	}
	add(paramPathStyle, strconv.FormatBool(l.PathStyle))
	return s
}

// where names the store in errors.
func (l Location) where() string {
	if l.Endpoint == "" {
		return "AWS"
	}
	return l.Endpoint
}
