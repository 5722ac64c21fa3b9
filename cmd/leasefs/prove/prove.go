// Package prove is the part of the command line by which both sides prove who they are:
// the flags for TLS and tokens, and what makes such things for those who have none.
package prove

import (
	"crypto/tls"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/cmd/leasefs/argv"
	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/kerberos"
	"github.com/leasefs/leasefs/internal/proof"
	"github.com/leasefs/leasefs/namenode"
)

// Flags are those of a command.
type Flags interface {
	String(name string) string
	Bool(name string) bool
}

// DialTLS is what a client of a server needs, by the flags that begin with prefix; nil for
// plain text. tell is told of files that cannot be used any more; nil: nobody is.
func DialTLS(op string, flags Flags, prefix string, tell func(error)) (*tls.Config, error) {
	ca, cert, key, server := flags.String(prefix+"-ca"), flags.String(prefix+"-cert"), flags.String(prefix+"-key"), flags.String(prefix+"-server-name")
	if !flags.Bool(prefix) && ca == "" && cert == "" && key == "" && server == "" {
		return nil, nil
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS13, ServerName: server}
	if prefix == "zookeeper-tls" { // whose servers speak TLS 1.2 unless they are told otherwise
		cfg.MinVersion = tls.VersionTLS12
	}
	if ca != "" {
		f, err := proof.OpenAuthorities(clock.System{}, ca, "")
		if err != nil {
			return nil, err
		}
		cfg.RootCAs = f.Get().Pool
	}
	own, err := pair(op, flags, prefix)
	if own != nil {
		proof.ShowPair(cfg, own, tell)
	}
	return cfg, err
}

// pair is nil if neither a certificate nor a key is named.
func pair(op string, flags Flags, prefix string) (*proof.File[*tls.Certificate], error) {
	cert, key := flags.String(prefix+"-cert"), flags.String(prefix+"-key")
	switch {
	case cert == "" && key == "":
		return nil, nil
	case cert == "":
		return nil, argv.Usagef(op, "--%[1]s-key needs --%[1]s-cert", prefix)
	case key == "":
		return nil, argv.Usagef(op, "--%[1]s-cert needs --%[1]s-key", prefix)
	}
	return proof.OpenPair(clock.System{}, cert, key)
}

// Namenode fills in how a namenode and its clients prove who they are.
func Namenode(op string, flags Flags, cfg *namenode.Config) error {
	id := &cfg.Identity
	id.TrustClients, id.Delegates = flags.Bool("insecure-trust-clients"), flags.Bool("delegation-tokens")
	var err error
	if name := flags.String("tokens"); name != "" {
		if id.Tokens, err = proof.OpenTokens(clock.System{}, name); err != nil {
			return err
		}
	}
	if name := flags.String("proxies"); name != "" {
		if id.Proxies, err = proof.OpenProxies(clock.System{}, name); err != nil {
			return err
		}
	}
	if id.Issuers, err = issuers(op, flags); err != nil {
		return err
	}
	if id.Kerberos, err = acceptor(op, flags); err != nil {
		return err
	}
	own, err := pair(op, flags, "tls")
	ca, crl := flags.String("tls-client-ca"), flags.String("tls-client-crl")
	switch {
	case err != nil:
		return err
	case ca == "" && crl != "":
		return argv.Usagef(op, "--tls-client-crl needs --tls-client-ca")
	case own == nil && (ca != "" || flags.Bool("tls")):
		return argv.Usagef(op, "TLS needs --tls-cert and --tls-key")
	case own == nil:
		return nil
	}
	if ca != "" {
		if id.Authorities, err = proof.OpenAuthorities(clock.System{}, ca, crl); err != nil {
			return err
		}
		id.Certificates = true
	}
	id.Pair = own
	cfg.TLS = proof.ServerTLS(own, id.Authorities, id.Tokens == nil && id.Issuers == nil && id.Kerberos == nil && !id.Delegates)
	return nil
}

// acceptor is nil if clients do not prove by Kerberos who they are.
func acceptor(op string, flags Flags) (*kerberos.Acceptor, error) {
	keytab, principal, rules := flags.String("kerberos-keytab"), flags.String("kerberos-principal"), flags.String("kerberos-rules")
	switch {
	case keytab == "" && rules == "":
		return nil, nil
	case keytab == "" || principal == "":
		return nil, argv.Usagef(op, "Kerberos needs --kerberos-keytab and --kerberos-principal")
	}
	return kerberos.OpenAcceptor(clock.System{}, keytab, principal, rules)
}

// Kerberos is how a client proves by Kerberos who it is; nil if it does not.
func Kerberos(op string, flags Flags) (*client.Kerberos, error) {
	k := &client.Kerberos{Keytab: flags.String("kerberos-keytab"), Principal: flags.String("kerberos-principal"), Server: flags.String("kerberos-server")}
	switch {
	case !flags.Bool("kerberos") && *k == client.Kerberos{}:
		return nil, nil
	case k.Keytab != "" && k.Principal == "":
		return nil, argv.Usagef(op, "--kerberos-keytab needs --kerberos-principal")
	}
	return k, nil
}
