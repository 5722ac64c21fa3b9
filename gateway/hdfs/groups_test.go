package hdfs_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/leasefs/leasefs/gateway/hadoop"
	"github.com/leasefs/leasefs/gateway/hdfs"
	pb "github.com/leasefs/leasefs/gateway/hdfs/hadoop"
	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/proof"
	"github.com/leasefs/leasefs/namenode"
	"github.com/leasefs/leasefs/test/env"
)

// TestGroups: the gateway answers by which groups the namenode takes a user for what he is,
// where it proves who it is only of those for whom it may act.
func TestGroups(t *testing.T) {
	known := func(c *namenode.Config) {
		c.Groups = func(user string) []string {
			return map[string][]string{"ann": {"staff", "ops"}, "root": {"wheel"}}[user]
		}
	}
	groups := func(r *raw, user string) ([]string, error) {
		var a pb.GetGroupsForUserResponseProto
		err := r.call("org.apache.hadoop.tools.GetUserMappingsProtocol", "getGroupsForUser", &pb.GetGroupsForUserRequestProto{User: &user}, &a)
		return a.GetGroups(), err
	}
	is := func(r *raw, user string, want ...string) {
		t.Helper()
		if got, err := groups(r, user); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s is in %q, %v; should be %q", user, got, err, want)
		}
	}
	r := dial(t, gateway(t, env.Start(t, known)), "bob", "")
	is(r, "ann", "staff", "ops")
	is(r, "root", "wheel")
	is(r, "nobody here")
	for _, user := range []string{"", strings.Repeat("x", 256), "a\x00b", "a\xffb"} {
		if got, err := groups(r, user); err == nil {
			t.Errorf("groups of %.10q: %q", user, got)
		}
	}
	for protocol, method := range map[string]string{
		"org.apache.hadoop.security.RefreshUserMappingsProtocol":                  "refreshUserToGroupsMappings",
		"org.apache.hadoop.security.authorize.RefreshAuthorizationPolicyProtocol": "refreshServiceAcl",
		"org.apache.hadoop.ipc.RefreshCallQueueProtocol":                          "refreshCallQueue",
		"org.apache.hadoop.ipc.GenericRefreshProtocol":                            "refresh",
		"org.apache.hadoop.hdfs.protocol.ReconfigurationProtocol":                 "startReconfiguration",
	} {
		wantClass(t, method, r.call(protocol, method, new(pb.EmptyProto), new(pb.EmptyProto)), hadoop.Unsupported)
	}

	dir, token := t.TempDir(), proof.NewToken()
	line, err := proof.Line(token, "gw")
	check(t, err)
	tokens, proxies, mine := filepath.Join(dir, "tokens"), filepath.Join(dir, "proxies"), filepath.Join(dir, "gw")
	check(t, os.WriteFile(tokens, []byte(line), 0o600), os.WriteFile(proxies, []byte("gw users=* from=127.0.0.0/8"), 0o600), os.WriteFile(mine, []byte("gw "+token), 0o600))
	n := env.Start(t, known, func(c *namenode.Config) {
		var err error
		c.Identity.Tokens, err = proof.OpenTokens(clock.System{}, tokens)
		check(t, err)
		c.Identity.Proxies, err = proof.OpenProxies(clock.System{}, proxies)
		check(t, err)
	})
	r = dial(t, gateway(t, n, func(c *hdfs.Config) { c.Client.TokenFile = mine }), "bob", "")
	is(r, "ann", "staff", "ops")
	_, err = groups(r, "root") // for whom the rule is not
	wantClass(t, "a superuser's groups", err, hadoop.AccessControl)
}
