package e2e_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/leasefs/leasefs/test/env"
	"github.com/leasefs/leasefs/test/env/kdc"
)

// kerberized is a gateway whose clients have to prove who they are, and what they need for it.
type kerberized struct {
	*gateway
	kdc     *kdc.KDC
	noProof string // a folder without a configuration of Kerberos
}

const hadoopRealm = "HADOOP.TEST"

// property is a line of Hadoop's configuration.
func property(name, value string) string {
	return fmt.Sprintf("<property><name>%s</name><value>%s</value></property>\n", name, value)
}

func startKerberized(ctx context.Context, n *namenode, flags ...string) *kerberized {
	t := n.t
	t.Helper()
	k := &kerberized{gateway: &gateway{n: n, conf: t.TempDir()}, kdc: kdc.Start(t, hadoopRealm), noProof: t.TempDir()}
	dir := t.TempDir()
	// The keys of both names are in one file: the second has the format's two bytes once more.
	keys := filepath.Join(dir, "keytab")
	var all []byte
	for _, name := range []string{"nn", "HTTP"} {
		b, err := os.ReadFile(k.kdc.Keytab(name+"/localhost@"+hadoopRealm, filepath.Join(dir, name)))
		if err != nil {
			t.Fatal(err)
		}
		if all == nil {
			all = b[:2]
		}
		all = append(all[:len(all):len(all)], b[2:]...)
	}
	ca := env.NewAuthority(t, dir, "ca")
	cert, key := ca.Issue("localhost", time.Now().Add(time.Hour))
	trust := filepath.Join(dir, "trust.p12")
	if out, err := exec.CommandContext(ctx, "keytool", "-importcert", "-noprompt", "-alias", "ca", "-file", ca.File, "-keystore", trust, "-storetype", "PKCS12", "-storepass", "changeit").CombinedOutput(); err != nil { //nolint:gosec // the test's own files
		t.Fatalf("%v: %s", err, out)
	}
	for name, text := range map[string]string{
		filepath.Join(k.conf, "core-site.xml"): property("hadoop.security.authentication", "kerberos") + property("dfs.namenode.kerberos.principal", "nn/_HOST@"+hadoopRealm) +
			property("hadoop.security.auth_to_local", "DEFAULT"),
		filepath.Join(k.conf, "ssl-client.xml"):   property("ssl.client.truststore.location", trust) + property("ssl.client.truststore.password", "changeit") + property("ssl.client.truststore.type", "PKCS12"),
		filepath.Join(k.noProof, "core-site.xml"): "",
	} {
		if err := os.WriteFile(name, []byte("<configuration>\n"+text+"</configuration>\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(keys, all, 0o600); err != nil {
		t.Fatal(err)
	}
	k.process = n.begin(ctx, nil, append([]string{
		"gateway", "--webhdfs", "127.0.0.1:0", "--hdfs", "127.0.0.1:0", "--data", "127.0.0.1:0", "--log-level", "debug",
		"--clients-keytab", keys, "--clients-principal", "nn/localhost@" + hadoopRealm, "--web-cert", cert, "--web-key", key,
	}, flags...)...)
	k.prints(ctx, k.out, "ready", func(s string) bool { return strings.HasSuffix(s, "\n") })
	f := strings.Fields(k.out.String())
	_, web, _ := strings.Cut(f[1], ":")
	_, native, _ := strings.Cut(strings.TrimPrefix(f[2], "hdfs://"), ":")
	k.addr, k.hdfs = "localhost:"+web, "hdfs://localhost:"+native
	return k
}

// as runs a class of Hadoop's with a cache of tickets, or with none of its own.
func (k *kerberized) as(ctx context.Context, conf, tickets string, more []string, class string, args ...string) (code int, out string) {
	k.t.Helper()
	argv := append([]string{"java", "-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Djava.security.krb5.conf=" + k.kdc.Config, "-cp", conf + ":" + hadoop + "/lib/*", class}, args...)
	p := start(ctx, k.t, spec{argv: argv, env: append([]string{"KRB5CCNAME=" + tickets, "KRB5_CONFIG=" + k.kdc.Config}, more...), stdin: reader("")})
	code = p.wait(ctx)
	return code, p.out.String() + p.err.String()
}

// TestHadoopKerberos: Hadoop's own client proves by Kerberos who it is, or by a token that it
// got so, by both protocols and with each protection; who proves nothing is refused.
func TestHadoopKerberos(t *testing.T) {
	ctx := deadline(t, 4*time.Minute)
	n := startNamenode(ctx, t)
	n.run(ctx, "chmod", "777", "/")
	k := startKerberized(ctx, n)
	k.kdc.User("ann@"+hadoopRealm, "secret")
	ann := k.kdc.Kinit("ann@"+hadoopRealm, "secret", time.Hour)
	nobody := filepath.Join(t.TempDir(), "none")
	local := filepath.Join(t.TempDir(), "small")
	if err := os.WriteFile(local, []byte("proven"), 0o600); err != nil {
		t.Fatal(err)
	}
	const shell, tokens = "org.apache.hadoop.fs.FsShell", "testdata/hadoop/Tokens.java"
	works := func(what, says string, code int, out string) {
		t.Helper()
		if code != 0 || !strings.Contains(out, says) {
			t.Fatalf("%s: exit code %d: %s\nthe gateway: %s", what, code, out, k.err)
		}
	}
	refused := func(what, says string, code int, out string) {
		t.Helper()
		if code == 0 || !strings.Contains(out, says) {
			t.Errorf("%s: exit code %d, should say %q: %s", what, code, says, out)
		}
	}
	run := func(args ...string) (int, string) { t.Helper(); return k.as(ctx, k.conf, ann, nil, shell, args...) }

	code, out := run("-fs", k.hdfs, "-put", local, "/native")
	works("put by hdfs://", "", code, out)
	if out := n.run(ctx, "stat", "--json", "/native"); !strings.Contains(out, `"ann"`) {
		t.Errorf("it is not hers: %s", out)
	}
	for _, how := range []string{"integrity", "privacy"} {
		code, out = run("-D", "hadoop.rpc.protection="+how, "-fs", k.hdfs, "-cat", "/native")
		works("cat with "+how, "proven", code, out)
	}
	web := "swebhdfs://" + k.addr
	code, out = run("-fs", web, "-put", local, "/web")
	works("put by swebhdfs://", "", code, out)
	code, out = run("-fs", web, "-cat", "/web")
	works("cat by swebhdfs://", "proven", code, out)
	if out := n.run(ctx, "stat", "--json", "/web"); !strings.Contains(out, `"ann"`) {
		t.Errorf("it is not hers: %s", out)
	}

	// A token is all that a task has.
	token := filepath.Join(t.TempDir(), "token")
	code, out = k.as(ctx, k.conf, ann, nil, tokens, k.hdfs, "get", token)
	works("get a token", "", code, out)
	code, out = k.as(ctx, k.conf, nobody, []string{"HADOOP_TOKEN_FILE_LOCATION=" + token}, shell, "-fs", k.hdfs, "-cat", "/native")
	works("cat with a token", "proven", code, out)
	code, out = k.as(ctx, k.conf, ann, nil, tokens, k.hdfs, "cancel", token)
	refused("to cancel a token", "cannot be cancelled", code, out)

	code, out = k.as(ctx, k.conf, nobody, nil, shell, "-fs", k.hdfs, "-cat", "/native")
	refused("without a ticket", "", code, out)
	code, out = k.as(ctx, k.noProof, nobody, []string{"HADOOP_USER_NAME=ann"}, shell, "-fs", k.hdfs, "-cat", "/native")
	refused("without Kerberos", "SIMPLE authentication is not enabled", code, out)
	for _, secret := range []string{"delegation=AA", "Negotiate Y"} {
		if strings.Contains(k.err.String(), secret) {
			t.Errorf("the gateway's log has %q", secret)
		}
	}
	n.fsck(ctx)
}
