// Package auth finds out who the clients of a gateway are: by Kerberos, or by delegation
// tokens that a gateway gave to who had proven it by Kerberos. Nothing is kept: a token is
// signed, and every gateway with the same key takes it until it expires. So none can be
// cancelled before.
package auth

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/leasefs/leasefs/gateway/hadoop"
	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/kerberos"
)

// DefaultLife is for how long a delegation token is good.
const DefaultLife = 24 * time.Hour

// MaxLife is the longest that may be asked for: as long as HDFS's are good when they are renewed.
const MaxLife = 7 * 24 * time.Hour

// tolerance is how far clocks of gateways may differ, as those of Kerberos may: a token that was given
// further in the future is refused, since it would be good for longer than it may.
const tolerance = 5 * time.Minute

// checkEvery is how often files are read again.
const checkEvery = 2 * time.Second

// Config says how clients prove who they are.
type Config struct {
	// Keytab has the keys of Principal, NAME/HOST@REALM, for hdfs://, and for WebHDFS those
	// of HTTP/HOST@REALM. Rules, which may be empty, says whose principals are which user.
	Keytab, Principal, Rules string
	// Calls and Web tell whether hdfs:// and WebHDFS are served.
	Calls, Web bool
	// Protection is the least that is done for calls of hdfs://: authentication, integrity or
	// privacy, as in Hadoop's hadoop.rpc.protection. Empty: authentication.
	Protection string
	// Key signs tokens; empty: one is made.
	Key []byte
	// Life is for how long a delegation token is good. 0: DefaultLife.
	Life time.Duration
}

// Guard finds out who clients are. It is safe for concurrent use.
type Guard struct {
	calls, web *kerberos.Acceptor // nil: not served
	name, host string             // of the principal
	layers     byte
	key        []byte
	life       time.Duration
	clock      clock.Clock
	files      map[string]interface{ Check() (bool, error) }
}

// New reads the files that cfg names. InvalidArgument: it makes no sense.
func New(c clock.Clock, cfg Config) (*Guard, error) {
	const op = "gateway"
	g := &Guard{clock: c, life: cfg.Life, files: map[string]interface{ Check() (bool, error) }{}}
	switch {
	case g.life == 0:
		g.life = DefaultLife
	case g.life < time.Minute || g.life > MaxLife:
		return nil, fserror.New(fserror.InvalidArgument, op, "", "delegation tokens cannot be good for %s; allow 1m at least and %s at most", g.life, MaxLife)
	}
	switch cfg.Protection {
	case "", "authentication":
		g.layers = noLayer | integrity | privacy
	case "integrity":
		g.layers = integrity | privacy
	case "privacy":
		g.layers = privacy
	default:
		return nil, fserror.New(fserror.InvalidArgument, op, "", "calls cannot be protected by %q; choose authentication, integrity or privacy", cfg.Protection)
	}
	p, err := kerberos.ParsePrincipal(cfg.Principal)
	if err != nil {
		return nil, fserror.With(err, op, "")
	}
	var ok bool
	if g.name, g.host, ok = strings.Cut(p.Name, "/"); !ok {
		return nil, fserror.New(fserror.InvalidArgument, op, cfg.Principal, "the gateway's principal has no host; give NAME/HOST@REALM, such as nn/gw1.example@EXAMPLE")
	}
	open := func(name string) (*kerberos.Acceptor, error) {
		a, err := kerberos.OpenAcceptor(c, cfg.Keytab, name+"/"+g.host+"@"+p.Realm, cfg.Rules)
		if err != nil {
			return nil, fserror.With(err, op, "")
		}
		for what, f := range a.Files() {
			g.files[name+" "+what] = f
		}
		return a, nil
	}
	if cfg.Calls {
		if g.calls, err = open(g.name); err != nil {
			return nil, err
		}
	}
	if cfg.Web {
		if g.web, err = open("HTTP"); err != nil {
			return nil, err
		}
	}
	key := cfg.Key
	if len(key) == 0 {
		key = make([]byte, sha256.Size)
		_, _ = rand.Read(key) // it never fails
	}
	g.key = mac(key, "delegation tokens and sessions of a gateway")
	return g, nil
}

func mac(key []byte, parts ...string) []byte {
	h := hmac.New(sha256.New, key)
	for _, p := range parts {
		_, _ = h.Write([]byte(p)) // it never fails
	}
	return h.Sum(nil)
}

// Watch reads the files again when they change, until the context ends. log is told of
// those that cannot be used any more; what they said before counts then.
func (g *Guard) Watch(ctx context.Context, log *slog.Logger) {
	t := time.NewTicker(checkEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			for what, f := range g.files {
				switch changed, err := f.Check(); {
				case err != nil:
					log.Error("cannot reload credentials; keeping the previous ones", "what", what, "cause", err)
				case changed:
					log.Info("credentials were reloaded", "what", what)
				}
			}
		}
	}
}

// refused is an error that a client is told, of Hadoop's AccessControlException.
func refused(format string, args ...any) error {
	return hadoop.Refuse(hadoop.AccessControl, format, args...)
}

// badProof gives an error of Kerberos the name that Hadoop has for it.
func badProof(err error) error {
	if errors.Is(err, fserror.Permission) {
		return hadoop.Named(hadoop.AccessControl, err)
	}
	return err
}
