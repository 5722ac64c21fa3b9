package webhdfs_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	hadoophdfs "github.com/colinmarc/hdfs/v2"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/gateway/hdfs"
	"github.com/leasefs/leasefs/gateway/webhdfs"
	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/proof"
	"github.com/leasefs/leasefs/namenode"
	"github.com/leasefs/leasefs/test/env"
)

// TestOneProofForManyUsers: a gateway that proves who it is acts for those of its users for
// whom the namenode's rules let it, by parameter doas, too, and for no others.
func TestOneProofForManyUsers(t *testing.T) {
	dir := t.TempDir()
	tokens, proxies := filepath.Join(dir, "tokens"), filepath.Join(dir, "proxies")
	var lines []string
	for _, user := range []string{"root", "gw"} {
		token := proof.NewToken()
		line, err := proof.Line(token, user)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, user), []byte(user+" "+token), 0o600)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, user+" alone"), []byte(token), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, line)
	}
	rules := func(lines ...string) {
		t.Helper()
		err := os.WriteFile(proxies+".new", []byte(strings.Join(lines, "\n")), 0o600)
		if err == nil {
			err = os.Rename(proxies+".new", proxies)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	rules("gw users=* from=127.0.0.0/8")
	if err := os.WriteFile(tokens, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	n := env.Start(t, func(c *namenode.Config) {
		var err error
		if c.Identity.Tokens, err = proof.OpenTokens(clock.System{}, tokens); err != nil {
			t.Fatal(err)
		}
		if c.Identity.Proxies, err = proof.OpenProxies(clock.System{}, proxies); err != nil {
			t.Fatal(err)
		}
	})
	root := n.Client(t, func(c *client.Config) { c.User, c.TokenFile = "", filepath.Join(dir, "root") })
	if err := root.SetAttr(t.Context(), "/", client.AttrChange{SetMode: true, Mode: 0o777}); err != nil {
		t.Fatal(err)
	}
	s := gateway(t, n, func(c *webhdfs.Config) {
		c.Client.TokenFile, c.Proxies = filepath.Join(dir, "gw"), []string{"hue"}
	})
	told := gateway(t, n, func(c *webhdfs.Config) {
		c.Client.TokenFile, c.Client.User = filepath.Join(dir, "gw alone"), "gw"
	})
	want(t, "ann's file", both(t, s, "PUT", "/f?op=CREATE&permission=600&user.name=ann", "ann's"), 201, "")
	want(t, "read by her", both(t, s, "GET", "/f?op=OPEN&user.name=ann", ""), 200, "ann's")
	want(t, "read for her", both(t, s, "GET", "/f?op=OPEN&user.name=hue&doas=ann", ""), 200, "ann's")
	want(t, "read by her elsewhere", both(t, told, "GET", "/f?op=OPEN&user.name=ann", ""), 200, "ann's")
	want(t, "read by bob", once(t, s, "GET", "/f?op=OPEN&user.name=bob", ""), 403, "AccessControlException")
	want(t, "read for bob", once(t, s, "GET", "/f?op=OPEN&user.name=hue&doas=bob", ""), 403, "AccessControlException")
	want(t, "read by root", once(t, s, "GET", "/f?op=OPEN&user.name=root", ""), 403, "no rule lets user \\\"gw\\\" act for user \\\"root\\\"")
	want(t, "read for root", once(t, s, "GET", "/f?op=OPEN&user.name=hue&doas=root", ""), 403, "no rule")
	want(t, "bob's doas", once(t, s, "GET", "/f?op=OPEN&user.name=bob&doas=ann", ""), 403, "impersonate")
	for _, s := range []*webhdfs.Server{s, told} { // as one person's gateway is used
		want(t, "the gateway itself", once(t, s, "GET", "/?op=LISTSTATUS&user.name=gw", ""), 200, "FileStatuses")
	}
	// No rule is needed for itself: so it acts for nobody as a superuser.
	super := gateway(t, n, func(c *webhdfs.Config) {
		c.Client.TokenFile, c.Proxies = filepath.Join(dir, "root"), []string{"hue"}
	})
	want(t, "a superuser's gateway", once(t, super, "GET", "/?op=LISTSTATUS&user.name=root", ""), 403, "is the gateway's own")
	want(t, "by doas", once(t, super, "GET", "/?op=LISTSTATUS&user.name=hue&doas=root", ""), 403, "AuthorizationException")
	want(t, "for another", once(t, super, "GET", "/?op=LISTSTATUS&user.name=ann", ""), 200, "FileStatuses")
	native, err := hdfs.Start(t.Context(), hdfs.Config{
		Client: client.Config{Namenodes: []string{n.Addr()}, User: "root", Proof: client.Proof{TokenFile: filepath.Join(dir, "root alone")}}, Listen: "127.0.0.1:0", Data: "127.0.0.1:0",
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = native.Close(t.Context()) }()
	for user, refused := range map[string]bool{"ann": false, "root": true} {
		c, err := hadoophdfs.NewClient(hadoophdfs.ClientOptions{Addresses: []string{native.Addr()}, User: user})
		if err != nil {
			t.Fatal(err)
		}
		if _, err = c.Stat("/f"); refused != (err != nil && strings.Contains(err.Error(), "AuthorizationException")) || !refused && err != nil {
			t.Errorf("%s by hdfs://: %v", user, err)
		}
		_ = c.Close()
	}
	i, err := root.Stat(t.Context(), "/f")
	if err != nil || i.User != "ann" {
		t.Errorf("it is %v's: %v", i, err)
	}
	rules("gw users=bob from=127.0.0.0/8")
	env.Eventually(t, "the rule for ann is taken back", func() bool {
		r := once(t, s, "GET", "/f?op=GETFILESTATUS&user.name=ann", "")
		return r.status == 403 && strings.Contains(r.body, "no rule")
	})
	want(t, "bob's call", once(t, s, "GET", "/f?op=GETFILESTATUS&user.name=bob", ""), 200, "")
}
