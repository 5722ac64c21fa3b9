package proof

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/rulefile"
)

// Proxies are the rules of a server's file: who may act for whom, from where.
type Proxies struct {
	rules map[string][]proxyRule // by the one who acts
}

// proxyRule is one line of the file.
type proxyRule struct {
	users, groups []string // names, or *
	from          []netip.Prefix
	anywhere      bool
	groupsToo     bool // the proxy's word is taken for the groups of others
}

// Standing is somebody who wants to act for another.
type Standing struct {
	Proxy string     // who has proven who he is
	From  netip.Addr // where from; invalid: nowhere that has an address
	// Anywhere leaves from= of the rules out.
	Anywhere bool
	User     string // for whom
	// Groups are those of User, as the server knows them.
	Groups []string
	// Superuser and Supergroup are the server's. A * in a rule names neither of them.
	Superuser, Supergroup string
}

const proxiesLine = "a line is: a user who may act for others; users= and groups=, for whom; and from=, their addresses or networks " +
	"(all three with commas between, or *); and after these trust-groups, if the user's word is to be taken for groups, too"

// OpenProxies reads a server's file. Empty lines and those that begin with # mean nothing.
func OpenProxies(c clock.Clock, name string) (*File[*Proxies], error) {
	return Open(c, func(contents [][]byte) (*Proxies, error) {
		p := &Proxies{rules: map[string][]proxyRule{}}
		if err := rulefile.Each(contents[0], func(n int, words []string) error {
			r, err := parseProxy(words)
			if err != nil {
				return fmt.Errorf("line %d %w; %s", n, err, proxiesLine)
			}
			p.rules[words[0]] = append(p.rules[words[0]], r)
			return nil
		}); err != nil {
			return nil, fserror.New(fserror.InvalidArgument, "read proxies", name, "%v", err)
		}
		return p, nil
	}, name)
}

const ruleForm = "a rule is NAME [users=NAME,...] [from=ADDRESS,...]"

// ParseProxies makes rules of lines in which users= and from= may be missing, which is *. There is
// no other word in them: who asks by these rules knows of no groups.
func ParseProxies(lines []string) (*Proxies, error) {
	p := &Proxies{rules: map[string][]proxyRule{}}
	for _, line := range lines {
		words := strings.Fields(line)
		if len(words) == 0 || slices.Contains(strings.Split(words[0], ","), "") {
			return nil, fserror.New(fserror.InvalidArgument, "", "", "%q has no user, or an empty name, for who may act for others; %s", line, ruleForm)
		}
		for _, add := range []string{"users=", "from="} {
			if !slices.ContainsFunc(words, func(w string) bool { return strings.HasPrefix(w, add) }) {
				words = append(words, add+"*")
			}
		}
		r, err := parseProxy(words)
		if err == nil && (r.groups != nil || r.groupsToo) {
			err = errors.New("names groups, which only a namenode knows: leave that to its own rules")
		}
		if err != nil {
			return nil, fserror.New(fserror.InvalidArgument, "", "", "%q %v; %s", line, err, ruleForm)
		}
		for name := range strings.SplitSeq(words[0], ",") {
			p.rules[name] = append(p.rules[name], r)
		}
	}
	return p, nil
}

func parseProxy(words []string) (r proxyRule, err error) {
	if words[0] == "*" || strings.HasPrefix(words[0], "users=") || strings.HasPrefix(words[0], "groups=") || strings.HasPrefix(words[0], "from=") {
		return r, fmt.Errorf("begins with %q, and not with the user who may act for others", words[0])
	}
	seen := map[string]bool{}
	for _, w := range words[1:] {
		key, value, ok := strings.Cut(w, "=")
		if seen[key] {
			return r, fmt.Errorf("has %q twice", key)
		}
		seen[key] = true
		list := strings.Split(value, ",")
		switch {
		case w == "trust-groups":
			r.groupsToo = true
			continue
		case !ok || key != "users" && key != "groups" && key != "from":
			return r, fmt.Errorf("has the word %q", w)
		case slices.Contains(list, ""):
			return r, fmt.Errorf("has an empty name in %q", w)
		}
		switch key {
		case "users":
			r.users = list
		case "groups":
			r.groups = list
		case "from":
			if err := r.parseFrom(list); err != nil {
				return r, err
			}
		}
	}
	switch {
	case r.users == nil && r.groups == nil:
		return r, fmt.Errorf("says for no user and no group that %q may act", words[0])
	case !seen["from"]:
		return r, fmt.Errorf("does not say from where %q may act", words[0])
	}
	return r, nil
}

func (r *proxyRule) parseFrom(list []string) error {
	for _, s := range list {
		if s == "*" {
			r.anywhere = true
			continue
		}
		prefix, err := netip.ParsePrefix(s)
		if err != nil {
			addr, aerr := netip.ParseAddr(s)
			if aerr != nil || addr.Zone() != "" {
				return fmt.Errorf("has %q, which is no address and no network such as 10.0.0.0/8 (a host's name would prove nothing)", s)
			}
			addr = addr.Unmap()
			prefix = netip.PrefixFrom(addr, addr.BitLen())
		}
		r.from = append(r.from, prefix.Masked())
	}
	return nil
}

func (r *proxyRule) isFrom(a netip.Addr) bool {
	return r.anywhere || slices.ContainsFunc(r.from, func(p netip.Prefix) bool { return p.Contains(a) })
}

// covers reports whether the rule is for a user. A superuser has to be named, by his name or that of the supergroup.
func (r *proxyRule) covers(s *Standing, super bool) bool {
	switch {
	case slices.Contains(r.users, s.User):
		return true
	case super:
		return slices.Contains(r.groups, s.Supergroup) && slices.Contains(s.Groups, s.Supergroup)
	}
	return slices.Contains(r.users, "*") || slices.Contains(r.groups, "*") && len(s.Groups) > 0 ||
		slices.ContainsFunc(r.groups, func(g string) bool { return slices.Contains(s.Groups, g) })
}

// Has reports whether there are rules for one who wants to act for others. A nil Proxies has none.
func (p *Proxies) Has(proxy string) bool { return p != nil && len(p.rules[proxy]) > 0 }

// May returns nil if a rule lets one act for another, and whether it takes his word for the
// groups of that one. The error, of kind Permission, names the rule that is missing.
func (p *Proxies) May(s *Standing) (trustGroups bool, err error) {
	super := s.Superuser != "" && s.User == s.Superuser || s.Supergroup != "" && slices.Contains(s.Groups, s.Supergroup)
	at := *s
	at.From = s.From.Unmap().WithZone("")
	may := false
	if s.User != "" && p.Has(s.Proxy) {
		for _, r := range p.rules[s.Proxy] {
			if r.covers(&at, super) && (s.Anywhere || r.isFrom(at.From)) {
				may, trustGroups = true, trustGroups || r.groupsToo
			}
		}
	}
	if may {
		return trustGroups, nil
	}
	from, express := "*", ""
	if at.From.IsValid() {
		from = at.From.String()
	}
	if super {
		express = ", who is a superuser, so that * does not name him"
	}
	return false, fserror.New(fserror.Permission, "", "", "no rule lets user %q act for user %q from %s%s; the rule would be: %s users=%s from=%s",
		s.Proxy, s.User, from, express, s.Proxy, s.User, from).Because(fserror.ReasonProxy)
}
