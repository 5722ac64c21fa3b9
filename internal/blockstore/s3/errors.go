package s3

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/leasefs/leasefs/internal/fserror"
)

// maxSkew is how far the clocks of store and namenode may differ: the collector
// waits that much longer than a URL lives.
const maxSkew = time.Minute

// answer is what a store said that did not do what it was asked.
type answer struct {
	status  int    // of HTTP; 0: there was no answer
	code    string // of S3; empty: not in the words of S3
	message string
	region  string // of the bucket, if the store named it
	err     error  // as the library has it
}

func answerOf(err error) answer {
	a := answer{err: err}
	var resp *smithyhttp.ResponseError
	if errors.As(err, &resp) && resp.Response != nil && resp.Response.Response != nil {
		a.status = resp.HTTPStatusCode()
		a.region = resp.Response.Header.Get("X-Amz-Bucket-Region")
	}
	var api smithy.APIError
	if errors.As(err, &api) {
		a.code, a.message = api.ErrorCode(), api.ErrorMessage()
	}
	return a
}

// Error is one short line.
func (a *answer) Error() string {
	var send *smithyhttp.RequestSendError
	switch {
	case a.status == 0 && errors.As(a.err, &send):
		return send.Err.Error()
	case a.status == 0:
		return a.err.Error()
	case a.code == "":
		return fmt.Sprintf("answer %d %s", a.status, http.StatusText(a.status))
	case a.message == "":
		return fmt.Sprintf("answer %d %s", a.status, a.code)
	}
	return fmt.Sprintf("answer %d %s: %.200s", a.status, a.code, a.message)
}

// Unwrap is the library's error.
func (a *answer) Unwrap() error { return a.err }

// codeKinds are S3's codes that are the object's own affair, or room. Of all that
// a 404 can mean, only NoSuchKey is that there is no object.
var codeKinds = map[string]fserror.Kind{
	"NoSuchKey":                   fserror.NotFound,
	"PreconditionFailed":          fserror.Exists,
	"ConditionalRequestConflict":  fserror.Unavailable,
	"InvalidRange":                fserror.InvalidArgument,
	"EntityTooLarge":              fserror.TooLarge,
	"BadDigest":                   fserror.Damaged,
	"XAmzContentChecksumMismatch": fserror.Damaged,
	"IncompleteBody":              fserror.Unavailable,
	"QuotaExceeded":               fserror.NoSpace,
	"XMinioStorageFull":           fserror.NoSpace,
	"InsufficientStorage":         fserror.NoSpace,
	"NotImplemented":              fserror.Unsupported,
}

var statusKinds = map[int]fserror.Kind{
	http.StatusPreconditionFailed:           fserror.Exists,
	http.StatusConflict:                     fserror.Unavailable,
	http.StatusRequestedRangeNotSatisfiable: fserror.InvalidArgument,
	http.StatusRequestEntityTooLarge:        fserror.TooLarge,
	http.StatusInsufficientStorage:          fserror.NoSpace,
	http.StatusMethodNotAllowed:             fserror.Unsupported,
}

// diagnosis makes of what a call to the store met an error that says what to do.
type diagnosis struct {
	at    Location
	tries int // of a call
	creds aws.CredentialsProvider
	line  *line
}

// explain turns an error of a call into one that says what to do, and counts it.
// what is the object or the bucket.
func (d *diagnosis) explain(ctx context.Context, op, what string, err error) *fserror.Error {
	e := d.explained(ctx, op, what, err)
	d.line.counts.failed(e.Kind)
	return e
}

func (d *diagnosis) explained(ctx context.Context, op, what string, err error) *fserror.Error {
	a := answerOf(err)
	e := func(kind fserror.Kind, format string, args ...any) *fserror.Error {
		return &fserror.Error{Op: op, Kind: kind, Message: what + ": " + fmt.Sprintf(format, args...), Err: &a}
	}
	if ctx.Err() != nil {
		kind := fserror.Canceled
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			kind = fserror.Deadline
		}
		return &fserror.Error{Op: op, Kind: kind, Message: what, Err: context.Cause(ctx)}
	}
	if a.code == "" { // it may be the answer of whoever gives credentials
		var send *smithyhttp.RequestSendError
		if _, cerr := d.creds.Retrieve(ctx); cerr != nil && !errors.As(err, &send) {
			return d.noCredentials(op, cerr)
		}
	}
	if a.status == 0 {
		return d.noAnswer(op, what, &a)
	}
	if e := d.refusal(op, what, &a); e != nil {
		return e
	}
	if kind, ok := codeKinds[a.code]; ok {
		return e(kind, "%s", kindText(kind))
	}
	// The library makes NotFound of a 404 that is not in the words of S3.
	if a.status/100 == 2 || a.status/100 != 5 && (a.code == "" || a.code == "NotFound") {
		return d.notS3(op, &a)
	}
	if kind, ok := statusKinds[a.status]; ok {
		return e(kind, "%s", kindText(kind))
	}
	switch {
	case a.status/100 == 5 || a.status == http.StatusTooManyRequests:
		return e(fserror.Unavailable, "the block store has trouble, tried %d times", d.tries)
	case a.status == http.StatusForbidden:
		return e(fserror.Permission, "the credentials may not do that to bucket %s: they need to list it and its multipart uploads, to abort these, and to get, put and delete its objects", d.at.Bucket)
	}
	return e(fserror.Unavailable, "the block store refuses it")
}

func kindText(kind fserror.Kind) string {
	switch kind {
	case fserror.NotFound:
		return "there is none"
	case fserror.Exists:
		return "it is there already, from the first PUT"
	case fserror.InvalidArgument:
		return "the range begins beyond its end"
	case fserror.TooLarge:
		return "the block store does not take so many bytes"
	case fserror.Damaged:
		return "the bytes that arrived are not those that were announced"
	case fserror.NoSpace:
		return "the block store is full: delete files, or raise its quota"
	case fserror.Unsupported:
		return "the block store cannot do that: use another"
	}
	return "the block store does not take it now"
}

// refusal explains what concerns the bucket, the credentials or the clock, and
// returns nil if it is none of these.
func (d *diagnosis) refusal(op, what string, a *answer) *fserror.Error {
	e := func(kind fserror.Kind, format string, args ...any) *fserror.Error {
		return &fserror.Error{Op: op, Kind: kind, Message: what + ": " + fmt.Sprintf(format, args...), Err: a}
	}
	skewed := d.skewed()
	switch {
	case a.region != "" && a.region != d.at.Region && a.status != http.StatusNotFound:
		return e(fserror.InvalidArgument, "bucket %s is in region %s, not %s: write region=%s in the store's URL", d.at.Bucket, a.region, d.at.Region, a.region)
	case a.code == "AuthorizationHeaderMalformed", a.code == "AuthorizationQueryParametersError", a.code == "InvalidRegion",
		a.code == "IllegalLocationConstraintException", a.code == "PermanentRedirect",
		a.status == http.StatusMovedPermanently && a.code != "", a.status == http.StatusTemporaryRedirect && a.code != "":
		return e(fserror.InvalidArgument, "the block store expects another region than %s, or another endpoint than %s: correct region and endpoint in its URL", d.at.Region, d.at.where())
	case a.code == "NoSuchBucket":
		return e(fserror.Unavailable, "there is no bucket %s at %s: make it, or correct the store's URL", d.at.Bucket, d.at.where())
	case a.code == "RequestTimeTooSkewed", a.status == http.StatusForbidden && skewed != "":
		if skewed == "" {
			skewed = "this machine's clock and the block store's differ"
		}
		return e(fserror.Unavailable, "%s: set the time of both (NTP)", skewed)
	case a.code == "InvalidAccessKeyId", a.code == "XAdminUserNotFound": // the second is versitygw's
		return e(fserror.Permission, "the block store does not know the access key: correct AWS_ACCESS_KEY_ID, or ~/.aws/credentials")
	case a.code == "SignatureDoesNotMatch":
		return e(fserror.Permission, "the secret key does not belong to the access key: correct AWS_SECRET_ACCESS_KEY, or ~/.aws/credentials (or the region, now %s)", d.at.Region)
	case a.code == "ExpiredToken", a.code == "InvalidToken", a.code == "TokenRefreshRequired":
		return e(fserror.Permission, "the temporary credentials are over or wrong: get new ones")
	}
	return nil
}

// noAnswer explains an error without an answer: no server.
func (d *diagnosis) noAnswer(op, what string, a *answer) *fserror.Error {
	e := &fserror.Error{Op: op, Kind: fserror.Unavailable, Err: a}
	var authority x509.UnknownAuthorityError
	switch {
	case plainHTTP(a.err):
		e.Kind = fserror.InvalidArgument
		e.Message = fmt.Sprintf("%s: the block store at %s speaks no TLS: write http:// for its endpoint, or name the port where it does", what, d.at.where())
	case errors.As(a.err, &authority):
		e.Message = fmt.Sprintf("%s: the certificate of the block store at %s is signed by nobody known here: name its authority's file in AWS_CA_BUNDLE", what, d.at.where())
	default:
		e.Message = fmt.Sprintf("%s: the block store at %s cannot be reached: is it running, and is the endpoint right?", what, d.at.where())
	}
	return e
}

// plainHTTP reports whether a server answered a greeting of TLS with something
// else.
func plainHTTP(err error) bool {
	var record tls.RecordHeaderError
	return errors.Is(err, http.ErrSchemeMismatch) || errors.As(err, &record)
}

func (d *diagnosis) noCredentials(op string, err error) *fserror.Error {
	return &fserror.Error{Op: op, Kind: fserror.Permission, Err: err,
		Message: "no credentials for the block store: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or write ~/.aws/credentials"}
}

func (d *diagnosis) notS3(op string, a *answer) *fserror.Error {
	return &fserror.Error{Op: op, Kind: fserror.Unavailable, Err: a,
		Message: fmt.Sprintf("%s does not answer like an S3 server: correct the endpoint", d.at.where())}
}

// skewed says how far the clocks differ if it is too much.
func (d *diagnosis) skewed() string {
	skew, _ := d.Skew()
	switch ahead := skew.Ahead; {
	case ahead < -maxSkew:
		return fmt.Sprintf("this machine's clock is %s behind the block store's", (-ahead).Round(time.Minute))
	case ahead > maxSkew:
		return fmt.Sprintf("this machine's clock is %s ahead of the block store's", ahead.Round(time.Minute))
	}
	return ""
}

// alsoRetry adds to what the library tries again: a conflict with another PUT of
// this moment (some servers have other codes for it than S3's, or meet it where two
// make a prefix), too many requests, and an answer that broke off. What speaks no TLS now
// will not later.
func alsoRetry(err error) aws.Ternary {
	a := answerOf(err)
	if plainHTTP(err) {
		return aws.FalseTernary
	}
	if a.status == http.StatusConflict || a.status == http.StatusTooManyRequests ||
		a.code == "IncompleteBody" || errors.Is(err, io.ErrUnexpectedEOF) {
		return aws.TrueTernary
	}
	return aws.UnknownTernary
}
