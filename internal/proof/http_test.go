package proof

import (
	"net/http"
	"strings"
	"testing"
)

// TestIssuersSealed: wherever an issuer says that its keys or tokens are, nothing is asked
// over a network without TLS.
func TestIssuersSealed(t *testing.T) {
	for _, ask := range []func(c *http.Client, url string) (*http.Response, error){
		func(c *http.Client, url string) (*http.Response, error) { return c.Get(url) },
		func(c *http.Client, url string) (*http.Response, error) {
			return c.Post(url, "text/plain", strings.NewReader("secret"))
		},
	} {
		resp, err := ask(IssuerClient(nil), "http://issuer.invalid/keys")
		if err == nil {
			_ = resp.Body.Close()
		}
		if err == nil || !strings.Contains(err.Error(), "an address without TLS, issuer.invalid") {
			t.Error(err)
		}
	}
}
