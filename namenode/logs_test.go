package namenode_test

import (
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/leasefs/leasefs/namenode"
	"github.com/leasefs/leasefs/test/env/textlog"
)

// logText is a log that can be read while it is written.
type logText struct{ textlog.Log }

// has reports whether a line has all the words.
func (l *logText) has(words ...string) bool {
	for line := range strings.Lines(l.String()) {
		all := true
		for _, w := range words {
			all = all && strings.Contains(line, w)
		}
		if all {
			return true
		}
	}
	return false
}

func (l *logText) config(c *namenode.Config) {
	c.Logger, c.Version = slog.New(slog.NewTextHandler(l, nil)), "7.7"
}

// The log tells at the start who this is, and later what it does: it stands by, it
// is isolated.
func TestLogTellsWhoAndWhat(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	var one, other logText
	acfg, way := p.config(one.config, func(c *namenode.Config) {
		c.MinLeaseTTL, c.SoftLimit = c.HA.SessionTimeout, 2*c.HA.SessionTimeout
	})
	bcfg, otherWay := p.config(other.config)
	a := p.active(acfg)
	b := p.start(bcfg)
	if !one.has("msg=starting", "version=7.7", acfg.Listen, acfg.HTTP, acfg.Data, "namespace=pair") || !one.has("msg=active", "term=") {
		t.Errorf("%s", one.String())
	}
	// Limits that are too short to outlive a failover are told of, and no others.
	for _, limit := range []string{"reason=MinLeaseTTL min-lease-ttl=", "reason=SoftLimit soft-limit="} {
		if !one.has("level=WARN", "may be lost to a failover", limit, "outlives="+(3*acfg.HA.SessionTimeout).String()) {
			t.Errorf("no warning of %s: %s", limit, one.String())
		}
	}
	if other.has("may be lost to a failover") {
		t.Errorf("%s", other.String())
	}
	if !other.has(`msg="standing by"`) || b.Reigned() || !a.Reigned() {
		t.Errorf("%s", other.String())
	}
	way.Down()
	otherWay.Down()
	p.eventually("the active one says that it is isolated", func() bool { return one.has("isolated: answering nothing", acfg.Listen) })
	if _, text := page(t, a.HTTPAddr(), "/metrics"); !strings.Contains(text, "\nleasefs_ready 0\n") {
		t.Error("its metrics say that it answers")
	}
	p.eventually("the standby says that it does not follow", func() bool { return other.has("ZooKeeper does not answer") })
	otherWay.Up() // its session may be over by now, and with it the standby
	way.Up()
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
}

// The start tells of a certificate that clients refuse, or will soon.
func TestCertificatesAreLookedAt(t *testing.T) {
	now := time.Now()
	const day = 24 * time.Hour
	for _, c := range []struct {
		from, to time.Duration // from now on
		says     string
	}{
		{-3 * day, -day, "has expired"},
		{day, 3 * day, "not good yet"},
		{-3 * day, 3 * day, "expires soon"},
		{-3 * day, 30 * day, ""},
	} {
		var log logText
		cfg := namenode.Config{
			Data: t.TempDir(), Listen: "127.0.0.1:0", HTTP: "127.0.0.1:0",
			TLS: &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{{Leaf: &x509.Certificate{NotBefore: now.Add(c.from), NotAfter: now.Add(c.to)}}}},
		}
		log.config(&cfg)
		s, err := namenode.Start(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if log.has("the certificate") != (c.says != "") || !log.has(c.says) {
			t.Errorf("want %q: %s", c.says, log.String())
		}
	}
}
