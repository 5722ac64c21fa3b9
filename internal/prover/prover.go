// Package prover is a client's side of proving who it is: which of the ways it was told of
// it takes, and what it shows then. The ways themselves are in packages proof, login and
// kerberos.
package prover

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"log/slog"

	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/kerberos"
	"github.com/leasefs/leasefs/internal/login"
	"github.com/leasefs/leasefs/internal/namecall"
	"github.com/leasefs/leasefs/internal/proof"
)

// Config says by what a client proves who it is, besides the certificate of its TLS, and how
// namenodes do. At most one of TokenFile, Login and Token can be set; Kerberos is for where none is. All of them
// are shown over TLS, and without it to loopback addresses only.
type Config struct {
	// Authorities names a PEM file of those who sign namenodes and the block store, with TLS. It
	// is read again when it changes, and counts for connections from then on. Empty: they are
	// those of the configuration of TLS.
	Authorities string
	// TokenFile names a file with a bearer token that proves who the user is: a user and the
	// token, or the token alone. Only its owner may be able to read it. It is read again
	// when it changes.
	TokenFile string
	// Login names a file with a login at an issuer of tokens, as the program makes it: its
	// token is shown, and renewed in the file before it ends.
	Login string
	// Token returns the token to show. It is called with each stream and each call outside
	// of one, by several goroutines, and should return at once; after an error of kind
	// Unavailable the call is tried again.
	Token func(context.Context) (string, error)
	// Kerberos, if it is not nil, has a ticket shown. The cache of tickets, or the keytab, is
	// read again when it changes.
	Kerberos *Kerberos
}

// Kerberos says by what a client proves who it is. The zero value takes the tickets that
// kinit has got: of a cache of type FILE, which KRB5CCNAME names, or /tmp/krb5cc_UID. The
// configuration is KRB5_CONFIG's, or /etc/krb5.conf.
type Kerberos struct {
	// Keytab names a file with the keys of Principal, NAME@REALM; empty: tickets are taken.
	Keytab, Principal string
	// Server is the principal of a namenode, _HOST being the host by which it is reached;
	// without a realm that which the configuration says is the host's, else the client's.
	// Empty: leasefs/_HOST.
	Server string
}

// Prover shows who a client is. It is safe for concurrent use.
type Prover struct {
	// User is whom it proves the client to be, as far as that is known here; it may be empty.
	User string
	// Token and Show are for namecall.Config; one of them, or none, is not nil.
	Token func(context.Context) (string, error)
	Show  namecall.Shower
	// Roots are the authorities in the file, as it is now; nil: no file is named.
	Roots func() *x509.CertPool

	login *login.Source // nil: there is none
}

// Open reads what cfg names. The certificate is the client's if it shows one by tls, which
// may be nil. Errors are of the kinds of what cannot be read, and InvalidArgument.
func Open(cfg Config, tls *tls.Config, c clock.Clock, log *slog.Logger) (*Prover, error) {
	p := new(Prover)
	err := p.open(&cfg, c, log)
	if err == nil && p.User == "" && tls != nil && len(tls.Certificates) > 0 && tls.Certificates[0].Leaf != nil {
		p.User, err = proof.UserOf(tls.Certificates[0].Leaf)
	}
	return p, err
}

func (p *Prover) open(cfg *Config, c clock.Clock, log *slog.Logger) (err error) {
	if cfg.Authorities != "" {
		f, err := proof.OpenAuthorities(c, cfg.Authorities, "")
		if err != nil {
			return err
		}
		p.Roots = func() *x509.CertPool {
			if _, err := f.Check(); err != nil {
				log.Warn("leasefs: the file of authorities cannot be used as it is; those that it had count", "err", err)
			}
			return f.Get().Pool
		}
	}
	ways := 0
	for _, given := range []bool{cfg.TokenFile != "", cfg.Login != "", cfg.Token != nil} {
		if given {
			ways++
		}
	}
	switch {
	case ways > 1:
		return fserror.New(fserror.InvalidArgument, "", "", "there are several tokens to show: a file, a login or a function; choose one")
	case cfg.TokenFile != "":
		f, err := proof.OpenOwn(c, cfg.TokenFile)
		if err != nil {
			return err
		}
		p.User, p.Token = f.Get().User, func(context.Context) (string, error) {
			if _, err := f.Check(); err != nil {
				log.Warn("leasefs: the file of the token cannot be used as it is; the token that it had is shown", "err", err)
			}
			return f.Get().Token, nil
		}
	case cfg.Login != "":
		if p.login, err = login.Open(c, cfg.Login, log); err != nil {
			return err
		}
		p.User, p.Token = p.login.User(), p.login.Token
	case cfg.Token != nil:
		p.Token = cfg.Token
	case cfg.Kerberos != nil:
		s, err := kerberos.Open(c, kerberos.Config(*cfg.Kerberos))
		if err != nil {
			return err
		}
		p.User, p.Show = s.User(), tickets{s, log}
	}
	return nil
}

// Keep renews a login until the context ends.
func (p *Prover) Keep(ctx context.Context) { p.login.Keep(ctx) }

// Close ends a renewal of a login, once its issuer has answered.
func (p *Prover) Close() { p.login.Close() }

// tickets are those of Kerberos as they are now.
type tickets struct {
	*kerberos.Shower
	log *slog.Logger
}

// Header implements namecall.Shower.
func (t tickets) Header(ctx context.Context, host string) (string, error) {
	if err := t.Check(); err != nil {
		t.log.Warn("leasefs: the tickets of Kerberos, or its configuration, cannot be used as they are; those from before are shown", "err", err)
	}
	return t.Shower.Header(ctx, host)
}
