package hadoop

import (
	"strings"
	"testing"
)

// TestProxies: who may act for others is bound to users and addresses, with HDFS's errors. A token that
// he was given is good from everywhere.
func TestProxies(t *testing.T) {
	p, err := Proxies("op", []string{"knox", "hue users=ann,bob from=10.0.0.7,10.1.0.0/16", "oozie,livy from=10.0.0.9", "hue users=eve"})
	if err != nil {
		t.Fatal(err)
	}
	const here, elsewhere = "10.0.0.7:4711", "10.0.0.8:4711"
	no := func(by, user string) string { return "User: " + by + " is not allowed to impersonate " + user }
	from := func(by string) string { return "Unauthorized connection for super-user: " + by + " from IP 10.0.0.8" }
	for _, c := range []struct {
		a    Acting
		want string // of the error; empty: none
	}{
		{Acting{By: "ann", For: "ann", From: elsewhere}, ""},
		{Acting{By: "knox", For: "root", From: elsewhere}, ""},
		{Acting{By: "hue", For: "ann", From: here}, ""},
		{Acting{By: "hue", For: "bob", From: "10.1.255.1:1"}, ""},
		{Acting{By: "hue", For: "bob", From: "[::ffff:10.0.0.7]:1"}, ""},
		{Acting{By: "hue", For: "eve", From: elsewhere}, ""},
		{Acting{By: "hue", For: "root", From: here}, no("hue", "root")},
		{Acting{By: "hue", For: "root", From: elsewhere}, no("hue", "root")},
		{Acting{By: "hue", For: "ann", From: elsewhere}, from("hue")},
		{Acting{By: "hue", For: "ann", From: elsewhere, Token: true}, ""},
		{Acting{By: "hue", For: "root", From: here, Token: true}, no("hue", "root")},
		{Acting{By: "livy", For: "root", From: "10.0.0.9:1"}, ""},
		{Acting{By: "oozie", For: "root", From: elsewhere}, from("oozie")},
		{Acting{By: "ann", For: "bob", From: here}, no("ann", "bob")},
	} {
		err := MayActFor(p, c.a)
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%+v: %v", c.a, err)
		case c.want != "" && (err == nil || ClassOf(err) != Authorization || Message(err) != c.want):
			t.Errorf("%+v: %v, want %q", c.a, err, c.want)
		}
	}
	if err := MayActFor(nil, Acting{By: "hue", For: "ann"}); err == nil {
		t.Error("without any, one may act for others")
	}
	for line, text := range map[string]string{
		"": "no user", "hue,": "empty name", "hue users=": "empty name", "hue groups=staff": "groups", "hue from=* trust-groups": "groups", "hue from=host": "no address",
		"hue ann": `the word "ann"`, "users=ann": "begins with", "hue users=ann users=bob": "twice",
	} {
		if _, err := Proxies("op", []string{line}); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%q: %v, which should say %q", line, err, text)
		}
	}
}
