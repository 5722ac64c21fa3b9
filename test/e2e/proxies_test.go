package e2e_test

import (
	"context"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestProxies: a mount that lets others in and a gateway, each with a proof of its own, act for
// those of their users whom the file of --proxies names, and for others once it does.
func TestProxies(t *testing.T) {
	besideOthers(t)
	ctx := deadline(t, 2*time.Minute)
	dir := t.TempDir()
	replace := func(name string, lines ...string) {
		t.Helper()
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file+".new", []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
	}
	token := func(user string) string { return filepath.Join(dir, user+".token") }
	var lines []string
	for _, user := range []string{"root", "mnt", "gw"} {
		made := start(ctx, t, spec{argv: []string{leasefs, "admin", "token", token(user), user}})
		made.ends(ctx, 0)
		lines = append(lines, strings.TrimSpace(made.out.String()))
	}
	replace("tokens", lines...)
	// Of this system's users, daemon may use the mount; bin and nobody may not yet.
	replace("proxies", "mnt users=daemon from=127.0.0.0/8", "gw users=ann from=127.0.0.0/8")
	n := startNamenode(ctx, t, "--tokens", filepath.Join(dir, "tokens"), "--proxies", filepath.Join(dir, "proxies"))
	n.run(ctx, "--token-file", token("root"), "mkdir", "/pub")
	n.run(ctx, "--token-file", token("root"), "chmod", "1777", "/pub")

	m := n.mount(ctx, "--allow-other", "--token-file", token("mnt"))
	m.letIn()
	const daemon, bin, superuser = 1, 2, 0
	as := func(uid uint32, script string) (string, error) {
		cmd := exec.CommandContext(ctx, "sh", "-c", script)
		cmd.Dir = "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	file := m.path("pub/f")
	if out, err := as(daemon, "echo mine >"+file+" && stat -c %U "+file); err != nil || out != "daemon\n" {
		t.Fatalf("daemon, whom a rule names: %q, %v", out, err)
	}
	for _, uid := range []uint32{bin, superuser} { // root is squashed, and nobody's rule is missing, too
		if out, err := as(uid, "cat "+file); err == nil || !strings.Contains(out, "denied") {
			t.Errorf("user %d, without a rule: %q, %v", uid, out, err)
		}
	}
	replace("proxies", "mnt users=bin,nobody from=127.0.0.0/8", "gw users=ann from=127.0.0.0/8")
	for _, uid := range []uint32{bin, superuser} {
		eventually(ctx, t, "the rule counts", func() bool { out, err := as(uid, "cat "+file); return err == nil && out == "mine\n" })
	}
	if out, err := as(superuser, "rm "+file); err == nil || !strings.Contains(out, "not permitted") && !strings.Contains(out, "denied") {
		t.Errorf("root, who is nobody here, removes another's file in a sticky directory: %q, %v", out, err)
	}
	eventually(ctx, t, "the old rule is gone", func() bool { _, err := as(daemon, "echo more >>"+file); return err != nil })

	g := n.begin(ctx, nil, "gateway", "--webhdfs", "127.0.0.1:0", "--token-file", token("gw"))
	g.prints(ctx, g.out, "ready", func(s string) bool { return strings.HasSuffix(s, "\n") })
	addr := strings.Fields(g.out.String())[1]
	put := func(path, user string) (int, string) {
		t.Helper()
		return webhdfs(ctx, t, http.MethodPut, "http://"+addr+"/webhdfs/v1"+path+"?op=MKDIRS&user.name="+user)
	}
	if code, body := put("/pub/ann", "ann"); code != http.StatusOK {
		t.Errorf("for ann, whom a rule names: %d %s", code, body)
	}
	if out := n.run(ctx, "--token-file", token("root"), "stat", "/pub/ann"); !strings.Contains(out, "ann") {
		t.Errorf("it is not ann's: %s", out)
	}
	for _, user := range []string{"bob", "root"} {
		if code, body := put("/pub/"+user, user); code != http.StatusForbidden || !strings.Contains(body, "gw") {
			t.Errorf("for %s, without a rule: %d %s", user, code, body)
		}
	}
	replace("proxies", "gw users=bob from=127.0.0.0/8")
	eventually(ctx, t, "the rule counts", func() bool { code, _ := put("/pub/bob", "bob"); return code == http.StatusOK })
	eventually(ctx, t, "the old rule is gone", func() bool { code, _ := put("/pub/ann/more", "ann"); return code == http.StatusForbidden })
	n.run(ctx, "--token-file", token("root"), "admin", "fsck")
}

// webhdfs makes a call of WebHDFS, and returns its status and body.
func webhdfs(ctx context.Context, t *testing.T, method, url string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}
