package e2e_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestDebianPackage types what docs/INSTALL.md says of the package: it makes it, and installs it on a
// copy of this system. What apt would recommend it leaves out, for there is no network, and no systemd: the
// namenode is started by what its unit says.
func TestDebianPackage(t *testing.T) {
	t.Parallel()
	ctx := deadline(t, 8*time.Minute)
	first, next, _ := strings.Cut(toType(t, "docs/INSTALL.md", "With a Debian package"), "\n")
	made := regexp.MustCompile(`(?m)^dist/\S+\.deb$`).FindString(shell(ctx, t, "../..", first))
	if made == "" {
		t.Fatalf("%s tells of no package", first)
	}
	file := filepath.Join("../..", made)
	t.Cleanup(func() { _ = os.Remove(file) })
	here := standIns(t, map[string]string{
		"sudo": sudo,
		"systemctl": `[ "$1 $2 $#" = "enable --now 3" ] || exit 0 # then nothing serves
unit=/lib/systemd/system/${3%@*}@.service name=${3#*@}
set -a
. /etc/leasefs/$name.env
eval "$(sed -n "s/%i/$name/g; s/^Environment=//p" $unit)"
install -d -o leasefs -g leasefs -m 700 $LEASEFS_DATA
eval "setpriv --reuid leasefs --regid leasefs --clear-groups $(sed -n s/^ExecStart=//p $unit)" >/tmp/namenode.log 2>&1 &
echo $! >/run/leasefs.pid
until grep -q ^ready /tmp/namenode.log; do # whoever types takes longer
	kill -0 $! || exit 1
	sleep 0.1
done`,
	})
	out := onACopy(ctx, t, map[string]string{
		"/root/" + made: file, "/usr/local/bin/sudo": here + "/sudo", "/usr/local/bin/systemctl": here + "/systemctl",
	}, `echo 'APT::Install-Recommends "false";' >/etc/apt/apt.conf.d/99
cd
`+next+`cd /
dpkg -V leasefs
leasefs --version
man --warnings=w -l /usr/share/man/man1/leasefs.1.gz >/manual 2>/warnings
test ! -s /warnings
grep -c "leasefs lease keep-alive" /manual
bash -n /usr/share/bash-completion/completions/leasefs
systemd-analyze verify --man=no /lib/systemd/system/leasefs-append@.socket /lib/systemd/system/leasefs-namenode@.service
getent passwd leasefs
kill $(cat /run/leasefs.pid)
tail -f --pid=$(cat /run/leasefs.pid) /dev/null
su -s /bin/sh leasefs -c "leasefs admin journal verify /var/lib/leasefs/try"
dpkg -i /root/`+made+`
dpkg -P leasefs
test ! -e /usr/bin/leasefs
ls -d /var/lib/leasefs/try
getent passwd leasefs
`)
	if !strings.Contains(out, "\nhello\n") || !strings.Contains(strings.ToLower(out), "leasefs(1)") {
		t.Errorf("it shows %s", out)
	}
	t.Logf("%s", out)
}
