// Package kdc runs a Kerberos server (KDC) of MIT for a test: a realm of its own, in a
// temporary folder and on a loopback address that nothing else has.
package kdc

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/leasefs/leasefs/test/env/spawn"
)

// KDC is a server of one or several realms.
type KDC struct {
	t      testing.TB
	dir    string
	addr   string
	Config string // the krb5.conf of its clients
	server *exec.Cmd
	exited <-chan struct{}
}

// programs are where Debian has them.
const programs = "/usr/sbin/"

// Start runs a server of realms, the first of which is the default. It ends with the test.
func Start(t testing.TB, realms ...string) *KDC {
	t.Helper()
	if _, err := os.Stat(programs + "krb5kdc"); err != nil {
		t.Fatalf("%v; scripts/setup test installs it", err)
	}
	k := &KDC{t: t, dir: t.TempDir(), addr: net.JoinHostPort(spawn.Loopback(), "8800")}
	k.Config = k.file("krb5.conf")
	var conf, kdcConf strings.Builder
	fmt.Fprintf(&conf, "[libdefaults]\n default_realm = %s\n dns_lookup_kdc = false\n dns_lookup_realm = false\n dns_canonicalize_hostname = false\n rdns = false\n udp_preference_limit = 1\n ticket_lifetime = 10h\n[realms]\n", realms[0])
	fmt.Fprintf(&kdcConf, "[kdcdefaults]\n kdc_listen = %[1]s\n kdc_tcp_listen = %[1]s\n[realms]\n", k.addr)
	for _, r := range realms {
		fmt.Fprintf(&conf, " %s = {\n  kdc = %s\n }\n", r, k.addr)
		fmt.Fprintf(&kdcConf, " %[1]s = {\n  database_name = %[2]s/%[1]s\n  key_stash_file = %[2]s/%[1]s.stash\n  max_life = 10h\n supported_enctypes = aes256-cts-hmac-sha1-96:normal aes128-cts-hmac-sha1-96:normal arcfour-hmac:normal\n }\n", r, k.dir)
	}
	fmt.Fprintf(&kdcConf, "[logging]\n kdc = FILE:%[1]s/kdc.log\n admin_server = FILE:%[1]s/kadmin.log\n default = FILE:%[1]s/krb5.log\n", k.dir)
	k.write(k.Config, conf.String())
	k.write(k.file("kdc.conf"), kdcConf.String())
	for _, r := range realms {
		k.run("", programs+"kdb5_util", "-r", r, "create", "-s", "-P", "master")
	}
	args := []string{"-n", "-P", k.file("kdc.pid")}
	for _, r := range realms {
		args = append(args, "-r", r)
	}
	k.up(args)
	t.Cleanup(func() { k.Stop() })
	return k
}

func (k *KDC) up(args []string) {
	k.t.Helper()
	k.server = k.command(programs+"krb5kdc", args...)
	var err error
	if k.exited, err = spawn.Start(k.server); err != nil {
		k.t.Fatal(err)
	}
	fail := func(what string) {
		k.t.Helper()
		log, _ := os.ReadFile(k.file("kdc.log"))
		k.t.Fatalf("the KDC %s\n%s", what, log)
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(time.Minute); ; {
		c, err := net.DialTimeout("tcp", k.addr, time.Second)
		if err == nil {
			_ = c.Close()
			return
		}
		if time.Now().After(deadline) {
			fail("does not answer: " + err.Error())
		}
		select {
		case <-k.exited:
			fail("has ended: " + k.server.ProcessState.String())
		case <-tick.C:
		}
	}
}

// Stop ends the server.
func (k *KDC) Stop() {
	if k.server != nil {
		_ = k.server.Process.Kill()
		<-k.exited
		k.server = nil
	}
}

func (k *KDC) file(name string) string { return filepath.Join(k.dir, name) }

func (k *KDC) write(name, content string) {
	k.t.Helper()
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		k.t.Fatal(err)
	}
}

func (k *KDC) command(name string, args ...string) *exec.Cmd {
	c := exec.Command(name, args...) //nolint:gosec // of a test
	c.Env = append(os.Environ(), "KRB5_CONFIG="+k.Config, "KRB5_KDC_PROFILE="+k.file("kdc.conf"), "KRB5RCACHETYPE=none")
	return c
}

func (k *KDC) run(stdin, name string, args ...string) {
	k.t.Helper()
	c := k.command(name, args...)
	c.Stdin = strings.NewReader(stdin)
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	if err := c.Run(); err != nil {
		k.t.Fatalf("%s %v: %v\n%s", name, args, err, out.String())
	}
}

// admin runs commands of kadmin in the realm of a principal.
func (k *KDC) admin(principal string, args ...string) {
	k.t.Helper()
	_, realm, _ := strings.Cut(principal, "@")
	k.run("", programs+"kadmin.local", append([]string{"-r", realm, "-q"}, strings.Join(args, " "))...)
}

// User makes a principal NAME@REALM with a password.
func (k *KDC) User(principal, password string) {
	k.t.Helper()
	k.admin(principal, "addprinc", "-pw", password, principal)
}

// Trust lets users of realm from get tickets of realm to.
func (k *KDC) Trust(from, to string) {
	k.t.Helper()
	for _, at := range []string{from, to} {
		k.run("", programs+"kadmin.local", "-r", at, "-q", fmt.Sprintf("addprinc -pw between krbtgt/%s@%s", to, from))
	}
}

// Keytab makes a principal with random keys if it is missing, else new keys; puts them into
// a file, and returns its name.
func (k *KDC) Keytab(principal, file string, kinds ...string) string {
	k.t.Helper()
	if len(kinds) == 0 {
		kinds = []string{"aes256-cts-hmac-sha1-96:normal"}
	}
	_, realm, _ := strings.Cut(principal, "@")
	c := k.command(programs+"kadmin.local", "-r", realm, "-q", "addprinc -randkey "+principal)
	_ = c.Run() // it may be there
	next := file + ".new"
	k.admin(principal, "ktadd", "-e", strings.Join(kinds, ","), "-k", next, principal)
	if err := os.Rename(next, file); err != nil {
		k.t.Fatal(err)
	}
	return file
}

// Kinit fills a cache of tickets with one of a principal, good for so long, and returns its
// name.
func (k *KDC) Kinit(principal, password string, life time.Duration) string {
	k.t.Helper()
	f, err := os.CreateTemp(k.dir, "cc")
	if err != nil {
		k.t.Fatal(err)
	}
	_ = f.Close() // nothing was written
	k.run(password+"\n", "kinit", "-c", f.Name(), "-l", fmt.Sprintf("%ds", int(life.Seconds())), principal)
	return f.Name()
}

// Use has this process use the realm, and a cache of tickets if it is not empty.
func (k *KDC) Use(t testing.TB, cache string) {
	t.Setenv("KRB5_CONFIG", k.Config)
	t.Setenv("KRB5CCNAME", "FILE:"+cache)
}
