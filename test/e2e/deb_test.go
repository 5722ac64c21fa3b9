package e2e_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestDebianPackage makes the package and installs it on a copy of this system, which
// everything that is changed there leaves with the test. The namenode serves in a network of its own.
func TestDebianPackage(t *testing.T) {
	t.Parallel()
	ctx := deadline(t, 8*time.Minute)
	made, err := exec.CommandContext(ctx, "../../scripts/deb").Output()
	if err != nil {
		t.Fatalf("scripts/deb: %v", err)
	}
	file, err := filepath.Abs("../../" + strings.TrimSpace(string(made)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(file) })
	const script = `set -eu
mount -t tmpfs none "$DIR"
mkdir "$DIR/upper" "$DIR/work" "$DIR/root"
mount -t overlay -o "lowerdir=/,upperdir=$DIR/upper,workdir=$DIR/work" none "$DIR/root"
cp "$FILE" "$DIR/root/leasefs.deb"
exec chroot "$DIR/root" sh -eux -c '
	dpkg -i /leasefs.deb
	dpkg -V leasefs
	leasefs --version
	man --warnings=w -l /usr/share/man/man1/leasefs.1.gz >/manual 2>/warnings
	test ! -s /warnings
	grep -c "leasefs lease keep-alive" /manual
	bash -n /usr/share/bash-completion/completions/leasefs
	systemd-analyze verify --man=no /lib/systemd/system/leasefs-append@.socket /lib/systemd/system/leasefs-namenode@.service
	getent passwd leasefs
	install -d -o leasefs -m 700 /var/lib/leasefs/alone
	su -s /bin/sh leasefs -c "leasefs admin journal verify /var/lib/leasefs/alone"
	ip link set lo up
	setpriv --reuid leasefs --regid leasefs --clear-groups leasefs namenode --data /var/lib/leasefs/alone & namenode=$!
	echo hello | su -s /bin/sh leasefs -c "leasefs create /hello"
	test "$(leasefs cat /hello)" = hello
	kill $namenode
	wait $namenode
	dpkg -i /leasefs.deb
	dpkg -P leasefs
	test ! -e /usr/bin/leasefs
	ls -d /var/lib/leasefs/alone
	getent passwd leasefs
'`
	cmd := exec.CommandContext(ctx, "unshare", "--mount", "--net", "sh", "-c", script)
	cmd.Env = append(os.Environ(), "DIR="+t.TempDir(), "FILE="+file)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
}
