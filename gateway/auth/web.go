package auth

import (
	"encoding/base64"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/leasefs/leasefs/internal/fserror"
)

const (
	// cookieName is what Hadoop's clients look for.
	cookieName = "hadoop.auth"
	// maxSession is for how long a proof by Kerberos can stay good on the web, if tokens are
	// good for as long.
	maxSession = 10 * time.Hour
)

// ErrNoProof is the error of a request that shows nothing: the client is to be asked.
var ErrNoProof = errors.New("the request does not prove who asks; use Kerberos or a delegation token (docs/HADOOP.md, Kerberos)")

// Web finds out who makes a request of WebHDFS, by the header Authorization (Negotiate) or
// the cookie that the answer to such a request has set.
func (g *Guard) Web(w http.ResponseWriter, r *http.Request) (user string, err error) {
	scheme, shown, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if strings.EqualFold(scheme, "Negotiate") && shown != "" {
		token, err := base64.StdEncoding.DecodeString(strings.TrimSpace(shown))
		if err != nil {
			return "", refused("the Kerberos ticket in the header Authorization is not in base64")
		}
		c, err := g.web.AcceptContext(token)
		if err != nil {
			return "", badProof(err)
		}
		if user, err = g.web.User(c.Principal); err != nil {
			return "", badProof(err)
		}
		w.Header().Set("WWW-Authenticate", "Negotiate "+base64.StdEncoding.EncodeToString(c.Reply))
		now := g.clock.Wall()
		ends := now.Add(min(maxSession, g.life))
		if c.Until.Before(ends) {
			ends = c.Until
		}
		s := g.sign("session", Token{Owner: user, Issued: now, Ends: ends})
		value := base64.RawURLEncoding.EncodeToString(s.Identifier) + "." + base64.RawURLEncoding.EncodeToString(s.Password)
		http.SetCookie(w, &http.Cookie{Name: cookieName, Value: value, Path: "/", Expires: ends, HttpOnly: true, Secure: r.TLS != nil, SameSite: http.SameSiteStrictMode})
		return user, nil
	}
	c, err := r.Cookie(cookieName)
	if err != nil {
		return "", ErrNoProof
	}
	id, pass, _ := strings.Cut(c.Value, ".")
	identifier, ierr := base64.RawURLEncoding.DecodeString(id)
	password, perr := base64.RawURLEncoding.DecodeString(pass)
	if ierr != nil || perr != nil {
		return "", ErrNoProof
	}
	t, err := g.verify("session", identifier, password)
	if err != nil {
		return "", fserror.Wrap(fserror.Permission, "", "", ErrNoProof) // the client is asked again
	}
	return t.Owner, nil
}
