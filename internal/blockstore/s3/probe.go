package s3

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/fserror"
)

// Check asks the store for one name of the namespace, and so finds out whether
// it can be reached, whether bucket, region and credentials are right, and
// whether the clocks agree to within a minute. It changes nothing. Its error
// says what is wrong and what to do: Unavailable, InvalidArgument, Permission.
func (s *Store) Check(ctx context.Context) error {
	const op = "check"
	if err := s.open(op); err != nil {
		return err
	}
	page, err := s.api.ListObjectsV2(ctx, &s3.ListObjectsV2Input{
		Bucket: aws.String(s.cfg.Bucket), Prefix: aws.String(s.root), MaxKeys: aws.Int32(1),
	})
	if err != nil {
		e := s.explain(ctx, op, "bucket "+s.cfg.Bucket, err)
		if e.Kind == fserror.Unavailable && s.speaksTLS(ctx) {
			return &fserror.Error{Op: op, Kind: fserror.InvalidArgument, Err: e.Err, Message: "the block store at " + s.cfg.where() + " wants TLS: write https:// for its endpoint"}
		}
		return e
	}
	if aws.ToString(page.Name) == "" { // an empty answer passes for an empty list
		return s.notS3(op, &answer{status: http.StatusOK})
	}
	if skewed := s.skewed(); skewed != "" {
		return fserror.New(fserror.Unavailable, op, "", "%s: set the time of both (NTP)", skewed)
	}
	return nil
}

// tlsTimeout bounds the question whether a server speaks TLS.
const tlsTimeout = 5 * time.Second

// speaksTLS reports whether the server behind an endpoint of http:// does.
func (s *Store) speaksTLS(ctx context.Context) bool {
	host, plain := strings.CutPrefix(s.cfg.Endpoint, "http://")
	if !plain || s.own == nil || ctx.Err() != nil {
		return false
	}
	if _, _, err := net.SplitHostPort(host); err != nil {
		host = net.JoinHostPort(strings.Trim(host, "[]"), "80")
	}
	ctx, cancel := context.WithTimeout(ctx, tlsTimeout)
	defer cancel()
	// Nothing is sent but the greeting.
	conn, err := (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}).DialContext(ctx, "tcp", host) //nolint:gosec // see above
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}

// Probe is Check, and then tries by signed requests whether the store enforces
// length, checksum, first PUT wins, and signatures: see blockstore.Probe. It
// leaves nothing behind.
func (s *Store) Probe(ctx context.Context) error {
	if err := s.Check(ctx); err != nil {
		return err
	}
	return blockstore.Probe(ctx, s, s.cfg.Clock.Wall(), s.line.Do)
}
