package main

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"strconv"

	"github.com/leasefs/leasefs/cmd/leasefs/argv"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/transfer"
)

// clientTLS is nil for plain text.
func (c *commandLine) clientTLS() (*tls.Config, error) {
	ca, cert, key, server := c.flags.String("tls-ca"), c.flags.String("tls-cert"), c.flags.String("tls-key"), c.flags.String("tls-server-name")
	return c.dialTLS(c.flags.Bool("tls"), ca, cert, key, server)
}

// zookeeperTLS is nil for plain text.
func (c *commandLine) zookeeperTLS() (*tls.Config, error) {
	return c.dialTLS(c.flags.Bool("zookeeper-tls"), c.flags.String("zookeeper-tls-ca"), c.flags.String("zookeeper-tls-cert"), c.flags.String("zookeeper-tls-key"), "")
}

// dialTLS is what a client of a server needs; nil for plain text.
func (c *commandLine) dialTLS(on bool, ca, cert, key, server string) (*tls.Config, error) {
	if !on && ca == "" && cert == "" && key == "" && server == "" {
		return nil, nil
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: server}
	if ca != "" {
		pool, err := certPool(ca)
		if err != nil {
			return nil, err
		}
		cfg.RootCAs = pool
	}
	return cfg, c.addCertificate(cfg, cert, key)
}

// serverTLS is nil for plain text. clientCA demands certificates of clients.
func (c *commandLine) serverTLS(clientCA string) (*tls.Config, error) {
	cert, key := c.flags.String("tls-cert"), c.flags.String("tls-key")
	if cert == "" && key == "" {
		if clientCA != "" || c.flags.Bool("tls") {
			return nil, argv.Usagef(c.op, "TLS needs --tls-cert and --tls-key")
		}
		return nil, nil
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if clientCA != "" {
		pool, err := certPool(clientCA)
		if err != nil {
			return nil, err
		}
		cfg.ClientCAs, cfg.ClientAuth = pool, tls.RequireAndVerifyClientCert
	}
	return cfg, c.addCertificate(cfg, cert, key)
}

func (c *commandLine) addCertificate(cfg *tls.Config, cert, key string) error {
	switch {
	case cert == "" && key == "":
		return nil
	case cert == "":
		return argv.Usagef(c.op, "--tls-key needs --tls-cert")
	case key == "":
		return argv.Usagef(c.op, "--tls-cert needs --tls-key")
	}
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return &fserror.Error{Op: "load certificate", Path: cert, Kind: fserror.InvalidArgument, Err: err}
	}
	cfg.Certificates = []tls.Certificate{pair}
	return nil
}

func certPool(name string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(name) //nolint:gosec // the user names the file
	if err != nil {
		return nil, transfer.LocalError("read certificates", name, err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fserror.New(fserror.InvalidArgument, "read certificates", name, "there is no PEM certificate in it")
	}
	return pool, nil
}

// checkAddress returns what is wrong with a HOST:PORT, or nothing.
func checkAddress(a string) string {
	host, port, err := net.SplitHostPort(a)
	if err != nil || host == "" {
		return strconv.Quote(a) + " is not HOST:PORT"
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return strconv.Quote(a) + ": the port is not a number from 0 to 65535"
	}
	return ""
}
