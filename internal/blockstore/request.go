package blockstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/leasefs/leasefs/internal/fserror"
)

// NewRequest makes the HTTP request of s; body is the object of a PUT, and nil
// for a GET. For a part of an object, set Range with RangeHeader. The body can
// be read again (Request.GetBody), so a transport may repeat it.
func (s Signed) NewRequest(ctx context.Context, body []byte) (*http.Request, error) {
	var req *http.Request
	var err error
	if body == nil {
		req, err = http.NewRequestWithContext(ctx, s.Method, s.URL, nil)
	} else {
		req, err = http.NewRequestWithContext(ctx, s.Method, s.URL, bytes.NewReader(body))
	}
	if err != nil {
		return nil, fserror.Wrap(fserror.InvalidArgument, "", "", WithoutURL(err))
	}
	for name, values := range s.Header {
		req.Header[name] = append([]string(nil), values...)
	}
	return req, nil
}

// WithoutURL takes the URL, whose signature lets anybody read or write the
// block, out of an error of net/http. The host stays.
func WithoutURL(err error) error {
	var u *url.Error
	if !errors.As(err, &u) {
		return err
	}
	host := "the URL of a block"
	if parsed, perr := url.Parse(u.URL); perr == nil && parsed.Host != "" {
		host = parsed.Host
	}
	return fmt.Errorf("%s %s: %w", strings.ToLower(u.Op), host, u.Err)
}

// RangeHeader is the value of the header Range for length bytes (at least 1)
// from off on.
func RangeHeader(off, length int64) string {
	return fmt.Sprintf("bytes=%d-%d", off, off+length-1)
}
