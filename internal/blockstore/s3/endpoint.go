package s3

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/auth"
	transport "github.com/aws/smithy-go/endpoints"
)

// endpoint is the bucket's, found once: the library's rules compile a dozen regular
// expressions twice a request, to find the same.
type endpoint struct{ found transport.Endpoint }

// ResolveEndpoint implements s3.EndpointResolverV2. The library changes what it gets.
func (e *endpoint) ResolveEndpoint(context.Context, s3.EndpointParameters) (transport.Endpoint, error) {
	copied := transport.Endpoint{URI: e.found.URI, Headers: e.found.Headers.Clone()}
	for key, value := range e.found.Properties.Values() {
		copied.Properties.Set(key, value)
	}
	if options, ok := auth.GetAuthOptions(&copied.Properties); ok {
		own := make([]*auth.Option, len(options))
		for i, o := range options {
			own[i] = &auth.Option{SchemeID: o.SchemeID, IdentityProperties: clone(o.IdentityProperties), SignerProperties: clone(o.SignerProperties)}
		}
		auth.SetAuthOptions(&copied.Properties, own)
	}
	return copied, nil
}

func clone(p smithy.Properties) (c smithy.Properties) {
	c.SetAll(&p)
	return c
}
