package blockstore

import (
	"bytes"
	"context"
	"fmt"
	"net/http"

	"github.com/leasefs/leasefs/fserror"
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
		return nil, fserror.Wrap(fserror.InvalidArgument, "", "", err)
	}
	for name, values := range s.Header {
		req.Header[name] = append([]string(nil), values...)
	}
	return req, nil
}

// RangeHeader is the value of the header Range for length bytes (at least 1)
// from off on.
func RangeHeader(off, length int64) string {
	return fmt.Sprintf("bytes=%d-%d", off, off+length-1)
}
