package kerberos

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/jcmturner/gofork/encoding/asn1"
	krb "github.com/jcmturner/gokrb5/v8/client"
	"github.com/jcmturner/gokrb5/v8/config"
	"github.com/jcmturner/gokrb5/v8/credentials"
	"github.com/jcmturner/gokrb5/v8/gssapi"
	"github.com/jcmturner/gokrb5/v8/iana/chksumtype"
	"github.com/jcmturner/gokrb5/v8/krberror"
	"github.com/jcmturner/gokrb5/v8/messages"
	"github.com/jcmturner/gokrb5/v8/spnego"
	"github.com/jcmturner/gokrb5/v8/types"

	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/proof"
)

// DefaultServer is the principal of a namenode, _HOST being its host.
const DefaultServer = "leasefs/_HOST"

// Config says by what a client shows who it is.
type Config struct {
	// Keytab has the keys of Principal, NAME@REALM; empty: the cache of tickets that kinit
	// fills is used (KRB5CCNAME, else /tmp/krb5cc_UID).
	Keytab, Principal string
	// Server is the principal of a namenode, _HOST being the host by which it is reached;
	// without a realm that which the configuration says is the host's, else the client's.
	// Empty: DefaultServer.
	Server string
}

// Shower shows who this client is. It is safe for concurrent use.
type Shower struct {
	cfg   Config
	clock clock.Clock
	files *proof.File[made]

	checking sync.Mutex // so that each client that is replaced is ended
}

// made is what the files make.
type made struct {
	self Principal
	*krbClient
}

type krbClient struct {
	mu     sync.Mutex // of the library's client, whose caches have holes
	client *krb.Client
}

// Open reads the configuration of Kerberos (KRB5_CONFIG, else /etc/krb5.conf) and the
// keytab, or the cache of tickets. It asks nobody.
func Open(c clock.Clock, cfg Config) (*Shower, error) {
	conf := cmp.Or(os.Getenv("KRB5_CONFIG"), "/etc/krb5.conf")
	secret := cfg.Keytab
	if secret == "" {
		kind, path, has := strings.Cut(os.Getenv("KRB5CCNAME"), ":")
		if secret = path; !has {
			secret = cmp.Or(kind, fmt.Sprintf("/tmp/krb5cc_%d", os.Getuid()))
		} else if kind != "FILE" {
			return nil, fserror.New(fserror.InvalidArgument, "", "", "KRB5CCNAME names a cache of tickets of type %s, and only FILE is understood: set it to FILE:/tmp/krb5cc_%d and run kinit", kind, os.Getuid())
		}
	}
	s := &Shower{cfg: cfg, clock: c}
	s.cfg.Server = cmp.Or(cfg.Server, DefaultServer)
	var err error
	s.files, err = proof.Open(c, func(contents [][]byte) (made, error) {
		settings, err := config.NewFromString(string(contents[0]))
		if err != nil {
			return made{}, fserror.New(fserror.InvalidArgument, "read configuration of Kerberos", conf, "%v", err)
		}
		return s.make(secret, contents[1], settings)
	}, conf, secret)
	if errors.Is(err, fserror.NotFound) && cfg.Keytab == "" {
		return nil, &fserror.Error{Kind: fserror.Permission, Reason: fserror.ReasonProof, Err: err, Message: "there is no Kerberos ticket: run kinit"}
	}
	return s, err
}

func (s *Shower) make(file string, content []byte, settings *config.Config) (m made, err error) {
	if s.cfg.Keytab != "" {
		kt, err := readKeytab(file, content)
		if err == nil {
			m.self, err = ParsePrincipal(s.cfg.Principal)
		}
		if err != nil {
			return m, err
		}
		m.krbClient = &krbClient{client: krb.NewWithKeytab(m.self.Name, m.self.Realm, kt, settings, krb.DisablePAFXFAST(true))}
		return m, nil
	}
	var cache credentials.CCache
	var client *krb.Client
	err = guarded(func() (err error) {
		if err = cache.Unmarshal(content); err == nil {
			client, err = krb.NewFromCCache(&cache, settings, krb.DisablePAFXFAST(true))
		}
		return err
	})
	if err != nil {
		return m, fserror.New(fserror.InvalidArgument, "read cache of Kerberos tickets", file, "%v; run kinit", err)
	}
	m.self = Principal{client.Credentials.CName().PrincipalNameString(), client.Credentials.Domain()}
	if p := s.cfg.Principal; p != "" && p != m.self.String() {
		return m, refuse("the Kerberos tickets in %s are of %s, not of %s", file, m.self, p)
	}
	m.krbClient = &krbClient{client: client}
	return m, nil
}

// User is the first component of the own principal: who the client is, if no rule of the
// namenode says otherwise.
func (s *Shower) User() string {
	user, _, _ := strings.Cut(s.files.Get().self.Name, "/")
	return user
}

// Close ends what works in the background; nothing is shown after.
func (s *Shower) Close() {
	if s != nil && s.files != nil {
		s.files.Get().end()
	}
}

// end ends what works in the background for a client, which is of no use after.
func (c *krbClient) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.client.Destroy()
}

// Check reads the files again if they have changed. An error says that they cannot be used
// as they are, and is returned once; what they said before is used.
func (s *Shower) Check() error {
	s.checking.Lock()
	defer s.checking.Unlock()
	before := s.files.Get()
	changed, err := s.files.Check()
	if changed {
		before.end() // who is using it tries again, with what there is now
	}
	return err
}

// Header returns the value of the header "authorization" for the namenode of a host. It may
// ask the KDC. Errors: Permission (there is no good ticket), Unavailable (no KDC answers).
func (s *Shower) Header(ctx context.Context, host string) (string, error) {
	type result struct {
		header string
		err    error
	}
	done := make(chan result, 1)
	go func() { // the library knows no contexts, but for how long it waits: it ends
		var r result
		r.err = guarded(func() (err error) {
			r.header, err = s.header(host)
			return err
		})
		done <- r
	}()
	select {
	case r := <-done:
		return r.header, r.err
	case <-ctx.Done():
		return "", fserror.Wrap(fserror.Unavailable, "", "", fmt.Errorf("no Kerberos server (KDC) has answered in time: %w", context.Cause(ctx)))
	}
}

func (s *Shower) header(host string) (string, error) {
	m := s.files.Get()
	server, realm, _ := strings.Cut(strings.ReplaceAll(s.cfg.Server, "_HOST", strings.ToLower(host)), "@")
	token, err := s.token(m, server, realm)
	if err != nil && s.files.Get().krbClient != m.krbClient {
		return s.header(host)
	}
	if err != nil {
		return "", s.explain(m.self, server, err)
	}
	return "Negotiate " + base64.StdEncoding.EncodeToString(token), nil
}

// token is what shows m to a server. All of it is made under the lock: end takes the name away.
func (s *Shower) token(m made, server, realm string) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, at, _ := strings.Cut(server, "/"); realm != "" {
		m.client.Config.DomainRealm[at] = realm // the library looks it up there
	}
	if err := m.client.AffirmLogin(); err != nil {
		return nil, err
	}
	ticket, key, err := m.client.GetServiceTicket(server)
	if err != nil {
		return nil, err
	}
	return s.wrap(m, ticket, key)
}

// wrap is spnego's, with the time of our clock and nothing that only a security layer needs.
func (s *Shower) wrap(m made, ticket messages.Ticket, key types.EncryptionKey) ([]byte, error) {
	shown, err := spnego.NewKRB5TokenAPREQ(m.client, ticket, key, nil, nil)
	if err != nil {
		return nil, err
	}
	auth, err := types.NewAuthenticator(m.self.Realm, m.client.Credentials.CName())
	if err != nil {
		return nil, err
	}
	now := s.clock.Wall().UTC()
	auth.CTime, auth.Cusec = now, now.Nanosecond()/int(time.Microsecond)
	auth.Cksum = types.Checksum{CksumType: chksumtype.GSSAPI, Checksum: binary.LittleEndian.AppendUint32(nil, 16)}
	auth.Cksum.Checksum = append(auth.Cksum.Checksum, make([]byte, 20)...)
	if shown.APReq, err = messages.NewAPReq(ticket, key, auth); err != nil {
		return nil, err
	}
	mech, err := shown.Marshal()
	if err != nil {
		return nil, err
	}
	token := spnego.SPNEGOToken{Init: true, NegTokenInit: spnego.NegTokenInit{MechTypes: []asn1.ObjectIdentifier{gssapi.OIDKRB5.OID()}, MechTokenBytes: mech}}
	return token.Marshal()
}

// explain says in our words why there is no ticket.
func (s *Shower) explain(self Principal, server string, err error) error {
	var e krberror.Krberror
	if errors.As(err, &e) && e.RootCause == krberror.NetworkingError {
		return fserror.Wrap(fserror.Unavailable, "", "", fmt.Errorf("no Kerberos server (KDC) of realm %s answers: %w", self.Realm, err))
	}
	what := "its ticket has expired, or the KDC gives none for it: run kinit"
	if s.cfg.Keytab != "" {
		what = "the keytab may be old"
	}
	return &fserror.Error{Kind: fserror.Permission, Reason: fserror.ReasonProof, Err: err,
		Message: fmt.Sprintf("%s gets no Kerberos ticket for the namenode %s; %s; or the KDC does not know that name", self, server, what)}
}
