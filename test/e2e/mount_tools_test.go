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
)

// tools are scripts that leave the same on a mount as on the disk under the
// test. The folder that they work in is the current one; ../src is a tree.
var tools = []struct{ name, needs, script string }{
	{"git", "git", `
		git clone -q ../repo clone
		cd clone
		echo change >>a.txt
		git -c user.name=x -c user.email=x@x commit -qam change
		git status --short
		git log --format=%s
		git gc -q
		git fsck 2>&1
		rm -rf .git/objects .git/logs .git/index .git/ORIG_HEAD .git/config # not the same each time`},
	{"tar", "tar", `tar c -C .. src | tar x; find src -type f -newermt 2001-01-01 ! -newermt 2001-12-31 | sort`},
	{"cp", "cp", `cp -a ../src copy; cp -r copy again; cp ../src/big/zeroes one; cmp one ../src/big/zeroes; du --apparent-size -b one`},
	{"rsync", "rsync", `
		head -c 100000 ../src/big/zeroes >z
		rsync --append --inplace ../src/big/zeroes z
		rsync -a ../src/ sync/
		rsync -ai ../src/ sync/ # nothing is left to do`},
	{"grep", "grep", `cp -r ../src .; grep -rl needle src | sort`},
	{"mv", "mv", `
		echo 1 >log; exec 3>>log; echo 2 >&3
		mv log log.1; : >log
		echo 3 >&3; exec 3>&-
		exec 3>>log; echo 4 >&3; exec 3>&-
		mkdir d; mv log.1 d; mv d e; echo x >x; mv x e/log.1; echo y >y; mv -n y log; cat e/log.1 log y; ls -R`},
	{"dd", "dd", `
		dd if=../src/big/zeroes of=a bs=64k status=none
		dd if=../src/big/zeroes of=a bs=1M oflag=append conv=notrunc,fsync status=none
		dd if=a of=b bs=4k iflag=direct status=none
		cmp a b; dd if=a bs=1 skip=1048000 count=3 status=none | od -c`},
	{"shell", "sh", `
		for i in 1 2 3; do echo $i; done >f; cat <f; (echo a; /bin/echo b; echo c) >>f; cat f
		printf %s x >g; printf %s y >>g; : >g; printf z >>g; cat g; wc -c g
		ln -s f l; cat l; readlink l; mkdir -p p/q/r; touch p/q/r/s; rm -r p; test ! -e p; ls
		sort -o f f; cat f; sed -i s/a/A/ f; cat f; set -o noclobber; echo n 2>&1 >f || echo refused; truncate -s 3 f; cat f`},
}

func TestMountTools(t *testing.T) {
	ctx := deadline(t, 5*time.Minute)
	n := startNamenode(ctx, t)
	m := n.mount(ctx)
	disk := t.TempDir()
	for _, dir := range []string{disk, m.dir} {
		sh(ctx, t, dir, `
			mkdir src src/sub src/big
			echo hay >src/a; echo needle >src/sub/b; ln -s ../a src/sub/l
			head -c 3000000 /dev/zero | tr '\0' z >src/big/zeroes
			chmod 600 src/a; chmod 750 src/sub
			touch -d 2001-02-03T04:05:06 src/a src/sub/b src/big/zeroes src/sub src/big src`)
	}
	repo := filepath.Join(t.TempDir(), "repo")
	sh(ctx, t, disk, `git init -q `+repo+` && cd `+repo+` && echo a >a.txt && mkdir d && seq 1000 >d/b.txt && git add . &&
		git -c user.name=x -c user.email=x@x commit -qm first`)
	for _, dir := range []string{disk, m.dir} {
		sh(ctx, t, dir, "cp -r "+repo+" repo")
	}
	for _, tool := range tools {
		t.Run(tool.name, func(t *testing.T) {
			if _, err := exec.LookPath(tool.needs); err != nil {
				t.Fatalf("%s is missing: apt-get install %s", tool.needs, tool.needs)
			}
			var out [2]string
			for i, dir := range []string{disk, m.dir} {
				work := filepath.Join(dir, tool.name)
				if err := os.Mkdir(work, 0o755); err != nil {
					t.Fatal(err)
				}
				out[i] = sh(ctx, t, work, tool.script)
			}
			if out[0] != out[1] {
				t.Errorf("on the disk:\n%s\non the mount:\n%s", tailOf(out[0]), tailOf(out[1]))
			}
			sh(ctx, t, disk, "diff -r --no-dereference "+tool.name+" "+m.path(tool.name))
		})
	}
}

// sh runs a script that must succeed, and returns what it printed.
func sh(ctx context.Context, t *testing.T, dir, script string) string {
	t.Helper()
	cmd := exec.CommandContext(ctx, "sh", "-ec", script)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null",
		"GIT_AUTHOR_DATE=2001-01-01T00:00:00Z", "GIT_COMMITTER_DATE=2001-01-01T00:00:00Z", "LC_ALL=C")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("in %s: %v\n%s\n%s", dir, err, script, out)
	}
	return string(out)
}

// TestMountRefusals: what needs random writes fails with an error that says so,
// and the file is as it was.
func TestMountRefusals(t *testing.T) {
	ctx := deadline(t, time.Minute)
	n := startNamenode(ctx, t)
	m := n.mount(ctx)
	if err := m.add("f", "0123456789\n"); err != nil {
		t.Fatal(err)
	}
	for _, script := range []string{
		"printf x | dd of=f bs=1 seek=3 conv=notrunc status=none",
		"printf x | dd of=f bs=1 seek=30 conv=notrunc status=none",
		"truncate -s 100 f",
		"fallocate -l 100 f",
	} {
		cmd := exec.CommandContext(ctx, "sh", "-c", script)
		cmd.Dir, cmd.Env = m.dir, append(os.Environ(), "LC_ALL=C")
		out, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(out), "not supported") {
			t.Errorf("%s: %v: %s", script, err, out)
		}
	}
	m.is("f", "0123456789\n")
}

// TestMountSQLite: a database cannot be made, and is told so; what it tried leaves
// nothing that would be taken for one.
func TestMountSQLite(t *testing.T) {
	ctx := deadline(t, time.Minute)
	m := startNamenode(ctx, t).mount(ctx)
	cmd := exec.CommandContext(ctx, "sqlite3", "db", "create table t(x); insert into t values (1);")
	cmd.Dir = m.dir
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "disk I/O error") {
		t.Fatalf("%v: %s", err, out)
	}
	if i, err := os.Stat(m.path("db")); err != nil || i.Size() != 0 {
		t.Fatal(i, err)
	}
}

// TestMountVim: an editor that keeps its swap file elsewhere, or has none, saves as
// on a disk. Whose swap file is refused finds the reason in the mount's log.
func TestMountVim(t *testing.T) {
	ctx := deadline(t, time.Minute)
	m := startNamenode(ctx, t).mount(ctx)
	swap := "set directory=" + t.TempDir()
	want := "text\n"
	if err := m.add("f", want); err != nil {
		t.Fatal(err)
	}
	edit := func(add string, flags ...string) error {
		argv := append([]string{"-u", "NONE"}, append(flags, "-es", "-c", "normal A"+add, "-c", "wq", "f")...)
		cmd := exec.CommandContext(ctx, "vim", argv...)
		cmd.Dir = m.dir
		return cmd.Run()
	}
	for i, flags := range [][]string{{"-n"}, {"--cmd", swap}, {"--cmd", swap, "--cmd", "set backupcopy=yes"}, {"--cmd", swap, "--cmd", "set nowritebackup"}} {
		add := fmt.Sprint(" and ", i)
		if err := edit(add, flags...); err != nil {
			t.Errorf("vim %q: %v", flags, err)
		}
		want = strings.TrimSuffix(want, "\n") + add + "\n"
		m.is("f", want)
	}
	_ = edit(" more") // what vim says then is its own affair
	m.prints(ctx, m.err, "the log says what was refused", func(s string) bool {
		return strings.Contains(s, "refused") && strings.Contains(s, "path=/.f.swp")
	})
}

// TestMountRotate: one host rotates the log that another has open, as logrotate
// does it: the writer continues in the old one until it opens the new one.
func TestMountRotate(t *testing.T) {
	ctx := deadline(t, time.Minute)
	n := startNamenode(ctx, t)
	a, b := n.mount(ctx), n.mount(ctx)
	f := a.open("log", os.O_CREATE|os.O_WRONLY|os.O_APPEND)
	write := func(text string) {
		t.Helper()
		if _, err := f.WriteString(text); err != nil {
			t.Fatal(err)
		}
	}
	write("one\n")
	for _, m := range []*mountpoint{b, a} { // from elsewhere, and from here
		sh(ctx, t, m.dir, "mv log.1 log.2 2>/dev/null || true; mv log log.1; : >log")
		write("after\n")
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		f = a.open("log", os.O_WRONLY|os.O_APPEND)
		write("new\n")
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	for _, m := range []*mountpoint{a, b} {
		m.is("log.2", "one\nafter\n")
		m.is("log.1", "new\nafter\n")
		m.is("log", "new\n")
	}
}

// TestMountTail: tail -f on one mount follows what another appends.
func TestMountTail(t *testing.T) {
	ctx := deadline(t, time.Minute)
	n := startNamenode(ctx, t)
	a, b := n.mount(ctx), n.mount(ctx)
	if err := a.add("log", "first\n"); err != nil {
		t.Fatal(err)
	}
	p := start(ctx, t, spec{argv: []string{"tail", "-n", "+1", "-s", "0.05", "-f", b.path("log")}})
	want := "first\n"
	p.prints(ctx, p.out, "the first line", func(s string) bool { return s == want })
	f := a.open("log", os.O_WRONLY|os.O_APPEND)
	for _, text := range []string{"flushed\n", "again\n"} {
		if _, err := f.WriteString(text); err != nil {
			t.Fatal(err)
		}
		if err := f.Sync(); err != nil {
			t.Fatal(err)
		}
		want += text
		p.prints(ctx, p.out, "what was flushed", func(s string) bool { return s == want })
	}
}
