package kerberos

import (
	"fmt"
	"strings"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/rulefile"
)

// Principal is who Kerberos says somebody is.
type Principal struct {
	Name  string // its components with slashes between, such as nn/host.example
	Realm string
}

// String is the principal as Kerberos writes it.
func (p Principal) String() string { return p.Name + "@" + p.Realm }

// ParsePrincipal reads NAME@REALM.
func ParsePrincipal(s string) (Principal, error) {
	name, realm, ok := strings.Cut(s, "@")
	if !ok || name == "" || realm == "" || strings.ContainsAny(realm, "@/") || strings.Trim(name, "/") != name {
		return Principal{}, fserror.New(fserror.InvalidArgument, "", "", "%q is no Kerberos principal: NAME@REALM or NAME/HOST@REALM", s)
	}
	return Principal{name, realm}, nil
}

// rule says whose principals are which user.
type rule struct {
	name, realm string // "*": a name without a slash; NAME/*: that name with whatever follows
	user        string // "*": the name; "-": nobody
}

func (r rule) matches(p Principal) bool {
	if r.realm != p.Realm {
		return false
	}
	first, _, more := strings.Cut(p.Name, "/")
	return r.name == p.Name || r.name == "*" && !more || more && r.name == first+"/*"
}

// parseRules reads a file of rules: a line for each, PRINCIPAL USER.
func parseRules(file string, content []byte) (list []rule, err error) {
	err = rulefile.Each(content, func(n int, words []string) error {
		p, err := ParsePrincipal(words[0])
		if err != nil || len(words) != 2 || words[1] == "*" && p.Name != "*" || strings.Contains(strings.TrimSuffix(strings.TrimPrefix(p.Name, "*"), "/*"), "*") {
			return fmt.Errorf("line %d is no rule; one is a principal and its user, such as \"ann@REALM ann\", \"yarn/*@REALM yarn\", \"*@OTHER *\" or \"eve@REALM -\" (nobody)", n)
		}
		list = append(list, rule{p.Name, p.Realm, words[1]})
		return nil
	})
	if err != nil {
		return nil, fserror.New(fserror.InvalidArgument, "read rules of Kerberos", file, "%v", err)
	}
	return list, nil
}

// userOf is the user of a principal by the first rule that fits, and without one its name
// if it has one component and is of the realm home.
func userOf(list []rule, home string, p Principal) (string, error) {
	for _, r := range append(list[:len(list):len(list)], rule{"*", home, "*"}) {
		switch {
		case !r.matches(p):
			continue
		case r.user == "-":
			return "", refuse("the Kerberos principal %s is no user, by a rule of this namenode", p)
		case r.user == "*":
			return p.Name, nil
		}
		return r.user, nil
	}
	return "", refuse("the Kerberos principal %s is no user here: those of realm %s with one component are, and others need a rule", p, home)
}

func refuse(format string, args ...any) *fserror.Error {
	return fserror.New(fserror.Permission, "", "", format, args...).Because(fserror.ReasonProof)
}
