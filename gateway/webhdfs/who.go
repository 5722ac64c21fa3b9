package webhdfs

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/leasefs/leasefs/gateway/auth"
	"github.com/leasefs/leasefs/gateway/hadoop"
)

// asker is for whom a request is made, and who makes it; mostly the same.
type asker struct {
	user, by string
	token    bool // a delegation token says so
}

// who is for whom a request is made.
func (s *Server) who(w http.ResponseWriter, r *http.Request, at auth.Sent, p params) (a asker, err error) {
	if s.cfg.Guard != nil {
		a, err = s.proven(w, r, at, p)
	} else if a.user, err = name(p, "user.name"); a.user == "" && err == nil {
		err = hadoop.Refuse(hadoop.Security, "the request does not say who asks; give the parameter user.name")
	}
	if err != nil || a.token || !p.has("doas") {
		a.by = cmp.Or(a.by, a.user)
		return a, err
	}
	a.by = a.user
	if a.user, err = name(p, "doas"); err != nil {
		return a, err
	}
	return a, hadoop.MayActFor(s.proxies, hadoop.Acting{By: a.by, For: a.user, From: r.RemoteAddr})
}

// proven is who a request proves that it is made by. A client that proves nothing is asked to.
func (s *Server) proven(w http.ResponseWriter, r *http.Request, at auth.Sent, p params) (a asker, err error) {
	if text := p.text("delegation"); text != "" {
		t, err := s.cfg.Guard.FromURLAt(text, at)
		if err != nil {
			return a, err
		}
		a = asker{t.Owner, cmp.Or(t.Real, t.Owner), true}
		if p.has("doas") && p.text("doas") != a.user {
			return a, hadoop.Refuse(hadoop.AccessControl, "the delegation token is of %s, and the request is for %.255s", a.user, p.text("doas"))
		}
		return a, hadoop.MayActFor(s.proxies, hadoop.Acting{By: a.by, For: a.user, From: r.RemoteAddr, Token: true})
	}
	a.user, err = s.cfg.Guard.Web(w, r)
	if errors.Is(err, auth.ErrNoProof) {
		w.Header().Set("WWW-Authenticate", "Negotiate")
		return a, hadoop.Named(hadoop.Security, err)
	}
	if says, serr := name(p, "user.name"); err == nil && (serr != nil || says != "" && says != a.user) {
		err = hadoop.Refuse(hadoop.AccessControl, "Usernames not matched: name=%.255s, who is proven to be %s", says, a.user)
	}
	return a, err
}

// name is a parameter that is a user's; empty if there is none.
func name(p params, param string) (string, error) {
	name := p.text(param)
	if len(name) > 255 || !utf8.ValidString(name) || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return "", &badParam{param, "a name has at most 255 bytes, and only characters that can be printed"}
	}
	return name, nil
}

// shown is a URL's query as the log may have it: without what proves who asks.
func shown(u *url.URL) string {
	var words []string
	for word := range strings.SplitSeq(u.RawQuery, "&") {
		name, _, _ := strings.Cut(word, "=")
		if plain, err := url.QueryUnescape(name); err != nil || strings.EqualFold(plain, "delegation") || strings.EqualFold(plain, "token") {
			word = "delegation=..."
		}
		words = append(words, word)
	}
	return strings.Join(words, "&")
}

// sent is what the token of a second request is good for: no other operation, and no other file or
// opening. Where in the file it reads is the client's to say.
func sent(op, path string, p params) auth.Sent {
	return auth.Sent{Op: op, Path: path, Inode: p.text("inode"), Opening: p.text("opening")}
}

// location is where the second request of an operation goes, and what it shows there.
func (q *request) location(more url.Values) string {
	who := "user.name=" + url.QueryEscape(q.params.text("user.name"))
	if q.params.has("doas") {
		who += "&doas=" + url.QueryEscape(q.params.text("doas"))
	}
	scheme := "http"
	if q.cfg.TLS != nil {
		scheme = "https"
	}
	if q.cfg.Guard != nil { // the second one brings bytes, and cannot be asked first
		token := q.params.text("delegation")
		if token == "" {
			token = q.cfg.Guard.Send(q.who.user, q.who.by, sent(q.op, q.path, params(more))).EncodeURL(q.kind())
		}
		who = "delegation=" + url.QueryEscape(token)
	}
	host := cmp.Or(q.cfg.Advertise, q.r.Host, q.Addr())
	return fmt.Sprintf("%s://%s%s%s?op=%s&%s&%s", scheme, host, prefix, escape(q.path), q.op, who, more.Encode())
}

// kind is what Hadoop calls tokens of this server.
func (q *request) kind() string {
	if q.cfg.TLS != nil {
		return auth.KindSecure
	}
	return auth.KindWebHDFS
}

// getDelegationToken answers without a Guard as HDFS without security does: there is none.
func (q lookup) getDelegationToken() error {
	if q.cfg.Guard == nil {
		return q.json(map[string]any{"Token": nil})
	}
	if q.who.token {
		return hadoop.Refuse(hadoop.IOException, "Delegation Token can be issued only with kerberos or web authentication")
	}
	t, err := q.cfg.Guard.Issue(q.who.user, q.who.by, q.params.text("renewer"))
	if err != nil {
		return err
	}
	return q.json(map[string]any{"Token": map[string]string{"urlString": t.EncodeURL(q.kind())}})
}

// renewDelegationToken answers when a token ends, which does not change.
func (q change) renewDelegationToken() error {
	if q.cfg.Guard == nil {
		return lacking("delegation tokens")(q.request)
	}
	text, err := q.params.needed("token")
	if err != nil {
		return err
	}
	ends, err := q.cfg.Guard.RenewURL(text)
	if err != nil {
		return err
	}
	return q.json(map[string]int64{"long": ends.UnixMilli()})
}

// cancelDelegationToken refuses: nobody says that a token has ended which has not.
func (q change) cancelDelegationToken() error {
	if q.cfg.Guard == nil {
		return lacking("delegation tokens")(q.request)
	}
	return hadoop.Refuse(hadoop.Unsupported, "%s", auth.NoCancel)
}
