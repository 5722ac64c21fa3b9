// Command oidc-issuer is an issuer of tokens (OpenID Connect) for tests: the example server
// of github.com/zitadel/oidc at a loopback address, with a client "leasefs" that needs no
// secret and may log in by a code, too, and with ID tokens that live for as long as LIFE says.
package main

import (
	"context"
	"log"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/zitadel/oidc/v3/example/server/exampleop"
	"github.com/zitadel/oidc/v3/example/server/storage"
	"github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"
)

// store is the example's, but for its clients.
type store struct {
	*storage.Storage
	users storage.UserStore
	life  time.Duration
}

// CompleteDeviceAuthorization implements what the example's pages need: these name the user
// otherwise than tokens do.
func (s store) CompleteDeviceAuthorization(ctx context.Context, code, name string) error {
	if u := s.users.GetUserByUsername(name); u != nil {
		name = u.ID
	}
	return s.Storage.CompleteDeviceAuthorization(ctx, code, name)
}

// GetClientByClientID implements op.OPStorage.
func (s store) GetClientByClientID(ctx context.Context, id string) (op.Client, error) {
	c, err := s.Storage.GetClientByClientID(ctx, id)
	if err != nil {
		return nil, err
	}
	return client{c, s.life}, nil
}

type client struct {
	op.Client
	life time.Duration
}

// IDTokenLifetime implements op.Client.
func (c client) IDTokenLifetime() time.Duration { return c.life }

// GrantTypes implements op.Client.
func (c client) GrantTypes() []oidc.GrantType {
	return []oidc.GrantType{oidc.GrantTypeCode, oidc.GrantTypeRefreshToken, oidc.GrantTypeDeviceCode}
}

func main() {
	port := os.Getenv("PORT")
	life, err := time.ParseDuration(os.Getenv("LIFE"))
	if err != nil {
		log.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:"+port)
	if err != nil {
		log.Fatal(err)
	}
	issuer := "http://" + l.Addr().String() + "/"
	storage.RegisterClients(storage.NativeClient("leasefs", "http://127.0.0.1/callback", "http://localhost/callback"))
	users := storage.NewUserStore(issuer)
	s := store{storage.NewStorage(users), users, life}
	log.Print("ready ", issuer)
	log.Fatal(http.Serve(l, exampleop.SetupServer(issuer, s, nil, false))) //nolint:gosec // of a test
}
