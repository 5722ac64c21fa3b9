package e2e_test

import (
	"strings"
	"testing"
	"time"
)

// The program makes files and directories by the umask of its process, and a file
// that create replaces keeps its mode.
func TestModesOfTheProgram(t *testing.T) {
	t.Parallel()
	ctx := deadline(t, time.Minute)
	n := startNamenode(ctx, t)
	lfs := leasefs + " --namenode " + n.listen + " "
	sh(ctx, t, t.TempDir(), strings.ReplaceAll(`
umask 027
: | LFS create -p /p/created
: | LFS append --create -p /q/appended
LFS touch /touched
echo text > put
LFS put -p put /put/sub/f
LFS mkdir /made
LFS mkdir -p /chain/made
LFS mkdir -m 755 /asked
: | LFS create /secret
LFS chmod 600 /secret
umask 022
echo new | LFS create --overwrite /secret
`, "LFS ", lfs))
	for path, want := range map[string]string{
		"/p": "0750", "/p/created": "0640", "/q": "0750", "/q/appended": "0640", "/touched": "0640",
		"/put": "0750", "/put/sub": "0750", "/put/sub/f": "0640",
		"/made": "0750", "/chain": "0750", "/chain/made": "0750", "/asked": "0755", "/secret": "0600",
	} {
		if got := n.run(ctx, "stat", "--json", path); !strings.Contains(got, `"mode":"`+want+`"`) {
			t.Errorf("%s: want mode %s: %s", path, want, got)
		}
	}
}
