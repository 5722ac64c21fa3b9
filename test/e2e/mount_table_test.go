package e2e_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// table is an /etc/fstab of a test, and a folder where the shell finds leasefs.
type table struct {
	n    *namenode
	dir  string // where all of its lines mount
	bin  string
	file string
}

func newTable(n *namenode) *table {
	n.t.Helper()
	tmp := n.t.TempDir()
	f := &table{n: n, dir: filepath.Join(tmp, "mnt"), bin: filepath.Join(tmp, "bin"), file: filepath.Join(tmp, "fstab")}
	for _, d := range []string{f.dir, f.bin} {
		if err := os.Mkdir(d, 0o755); err != nil {
			n.t.Fatal(err)
		}
	}
	if err := os.Symlink(leasefs, filepath.Join(f.bin, "leasefs")); err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { // of a script that failed
		for _, pid := range commandsWith(n.t, f.dir) {
			_ = syscall.Kill(pid, syscall.SIGTERM) // it may have ended
		}
	})
	return f
}

// write makes a table of one line.
func (f *table) write(source, options string) {
	f.n.t.Helper()
	line := source + " " + f.dir + " fuse.leasefs " + options + " 0 0\n"
	if err := os.WriteFile(f.file, []byte(line), 0o600); err != nil {
		f.n.t.Fatal(err)
	}
}

// sh runs a script where leasefs is in the system's path, which mount(8)'s helper
// goes by: in a mount namespace of its own. $M is the mount point, and $T the
// table.
func (f *table) sh(ctx context.Context, script string) (string, error) {
	cmd := exec.CommandContext(ctx, "unshare", "-m", "sh", "-ec", "mount --bind "+f.bin+" /usr/local/bin\n"+script)
	cmd.Env = append(os.Environ(), "M="+f.dir, "T="+f.file)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// ended waits until the mount's process has.
func (f *table) ended(ctx context.Context) {
	f.n.t.Helper()
	eventually(ctx, f.n.t, "the daemon has ended", func() bool { return len(commandsWith(f.n.t, f.dir)) == 0 })
}

// TestMountTable: lines of /etc/fstab, as mount(8) takes them. When mount returns
// the files are there.
func TestMountTable(t *testing.T) {
	ctx := deadline(t, 2*time.Minute)
	n := startNamenode(ctx, t)
	n.run(ctx, "mkdir", "-p", "/logs/web")
	n.write(ctx, "text\n", "create", "/logs/web/f")
	f := newTable(n)
	for _, c := range []struct {
		name, source, options, script string
		want                          []string
	}{
		{
			"options", n.listen + "/logs", "uid=12,gid=34,allow_other,as=root,busy=wait,nosuid,noexec,_netdev,noauto,nofail,x-systemd.automount",
			"mount -T $T $M; cat $M/web/f; echo line >>$M/new; stat -c '%u:%g' $M/new; chown 12:34 $M/new; grep $M /proc/self/mounts; umount $M",
			[]string{"text\n", "12:34\n", n.listen + "/logs " + f.dir + " fuse.leasefs ", "noexec", "nosuid", "allow_other"},
		},
		{
			"read-only", n.listen, "ro,subdir=/logs/web",
			"mount -T $T $M; cat $M/f; echo more >>$M/f || true; fusermount3 -u $M",
			[]string{"text\n", "Read-only file system"},
		},
		{
			"all of them", n.listen + "/logs/web", "defaults",
			"mount -T $T -a; cat $M/f; umount $M",
			[]string{"text\n"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			f.write(c.source, c.options)
			out, err := f.sh(ctx, c.script)
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			for _, want := range c.want {
				if !strings.Contains(out, want) {
					t.Errorf("no %q in: %s", want, out)
				}
			}
			f.ended(ctx)
		})
	}
	if got := n.run(ctx, "stat", "--json", "/logs/new"); !strings.Contains(got, `"user":"root"`) {
		t.Fatalf("chown to what is shown changed the owner: %s", got)
	}
}

// TestMountTableErrors: what cannot be mounted says why, and the exit code tells.
func TestMountTableErrors(t *testing.T) {
	ctx := deadline(t, 2*time.Minute)
	n := startNamenode(ctx, t)
	f := newTable(n)
	for _, c := range []struct{ source, options, want string }{
		{n.listen + "/missing", "defaults", "/missing"},
		{n.listen, "speed=high", "speed=high"},
		{n.listen, "uid=me", "uid=me"},
		{n.listen, "busy=perhaps", "perhaps"},
		{"127.0.0.1:1", "timeout=1s", "127.0.0.1:1"},
	} {
		f.write(c.source, c.options)
		out, err := f.sh(ctx, "mount -T $T $M")
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() <= 0 || !strings.Contains(out, c.want) {
			t.Errorf("%s %s: %v: %s", c.source, c.options, err, out)
		}
	}
	f.ended(ctx)
}
