package s3

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/fserror"
)

const (
	service         = "s3"
	unsignedPayload = "UNSIGNED-PAYLOAD"

	// maxLife is the longest that signature 4 allows.
	maxLife = 7 * 24 * time.Hour
	// credentialsTimeout bounds the wait for credentials that have to be renewed.
	credentialsTimeout = 10 * time.Second
)

// SignPut signs one PUT. The URL ends at expires or less than a second before,
// after seven days, or with the credentials, whichever comes first.
//
// InvalidArgument for a length below 1 or less than a second to expires,
// TooLarge for a length beyond Config.MaxObject, Permission without credentials
// or with some that are over.
func (s *Store) SignPut(key blockstore.Key, length int64, crc32c uint32, expires time.Time) (blockstore.Signed, error) {
	if err := blockstore.CheckLength(key, length, s.cfg.MaxObject); err != nil {
		return blockstore.Signed{}, err
	}
	return s.sign(http.MethodPut, s.blockName(key), blockstore.PutHeader(length, crc32c), length, expires)
}

// SignGet signs GETs, whole or of a range. The URL ends as that of SignPut.
func (s *Store) SignGet(key blockstore.Key, expires time.Time) (blockstore.Signed, error) {
	return s.sign(http.MethodGet, s.blockName(key), http.Header{}, 0, expires)
}

func (s *Store) sign(method, name string, header http.Header, length int64, expires time.Time) (blockstore.Signed, error) {
	var none blockstore.Signed
	if err := s.open("sign"); err != nil {
		return none, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), credentialsTimeout)
	defer cancel()
	creds, err := s.creds.Retrieve(ctx)
	if err != nil {
		return none, s.noCredentials("sign", err)
	}
	// A signature knows whole seconds.
	begin := s.cfg.Clock.Wall().UTC().Truncate(time.Second)
	life := min(expires.Sub(begin), maxLife).Truncate(time.Second)
	if life < time.Second {
		return none, fserror.New(fserror.InvalidArgument, "sign", "", "a URL until %s, it is %s: less than a second", expires.UTC().Format(time.RFC3339), begin.Format(time.RFC3339))
	}
	ends := begin.Add(life)
	if creds.CanExpire && end(creds).Before(ends) {
		ends = end(creds)
	}
	if !ends.After(begin) {
		return none, fserror.New(fserror.Permission, "sign", "", "the temporary credentials of the block store ended at %s, and nobody gives new ones: renew them where they come from (%s)", ends.UTC().Format(time.RFC3339), creds.Source)
	}
	u := s.base
	u.Path += "/" + name
	u.RawQuery = "X-Amz-Expires=" + strconv.FormatInt(int64(life/time.Second), 10)
	req := &http.Request{Method: method, URL: &u, Host: u.Host, Header: header.Clone(), ContentLength: length}
	req.Header.Del("Content-Length") // the signer has it from the field
	signed, _, err := s.signer.PresignHTTP(ctx, creds, req, unsignedPayload, service, s.cfg.Region, begin, func(o *v4.SignerOptions) {
		o.DisableURIPathEscaping = true
		// In the query, a header would bind nobody to send it.
		o.DisableHeaderHoisting = true
	})
	if err != nil {
		return none, fserror.Wrap(fserror.Internal, "sign", "", fmt.Errorf("%s: %w", name, err))
	}
	return blockstore.Signed{URL: signed, Method: method, Header: header, Expires: ends}, nil
}
