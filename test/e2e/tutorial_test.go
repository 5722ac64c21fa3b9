package e2e_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leasefs/leasefs/test/env"
)

// A typed command of a page of docs/, and what it shows.
type typed struct {
	line                    int
	section, command, shows string
}

// commandsOf reads a page's blocks: "$ " begins a command, "> " continues one, the
// rest is what is seen. Of a page with a section, as PAGE#SECTION, only that is read.
func commandsOf(t *testing.T, page string) (all []typed) {
	t.Helper()
	page, only, _ := strings.Cut(page, "#")
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	inBlock, section := false, ""
	for i, line := range lines(string(text)) {
		if heading, is := strings.CutPrefix(line, "## "); is && !inBlock {
			section = heading
		}
		if only != "" && section != only {
			continue
		}
		if strings.HasPrefix(line, "```") {
			if inBlock = !inBlock; inBlock && line != "```console" {
				t.Fatalf("%s:%d: a block that is not run", page, i+1)
			}
			continue
		}
		command, begins := strings.CutPrefix(line, "$ ")
		more, continues := strings.CutPrefix(line, "> ")
		switch {
		case !inBlock:
		case begins:
			all = append(all, typed{line: i + 1, section: section, command: command})
		case continues:
			all[len(all)-1].command += "\n" + more
		default:
			all[len(all)-1].shows += line + "\n"
		}
	}
	if len(all) == 0 {
		t.Fatalf("%s has no commands", page)
	}
	return all
}

// toType are the lines that a section of a page has to be typed, in blocks without a prompt. Those of left
// cannot be typed here and are left out; the page has to have them. A section has ten lines at most.
func toType(t *testing.T, page, section string, left ...string) (commands string) {
	t.Helper()
	text, err := os.ReadFile("../../" + page)
	if err != nil {
		t.Fatal(err)
	}
	_, of, found := strings.Cut(string(text), "\n## "+section+"\n")
	of, _, _ = strings.Cut(of, "\n## ")
	count := 0
	for _, b := range regexp.MustCompile("(?ms)^```sh\n(.*?)^```$").FindAllStringSubmatch(of, -1) {
		for _, line := range lines(b[1]) {
			count++
			line, _, _ = strings.Cut(line, " # ")
			line = strings.TrimSpace(line)
			if i := slices.Index(left, line); i >= 0 {
				left = slices.Delete(slices.Clone(left), i, i+1)
				continue
			}
			commands += line + "\n"
		}
	}
	if !found || count == 0 || count > 10 || len(left) > 0 {
		t.Fatalf("%s has %d lines to type in %q; it lacks %q, which cannot be typed here", page, count, section, left)
	}
	return commands
}

// onACopy runs commands as root on a copy of this system, in a network of its own; all that they change or
// start there ends with them. files are put there first, by their names there. It returns what they print.
func onACopy(ctx context.Context, t *testing.T, files map[string]string, commands string) string {
	t.Helper()
	const script = `set -eu
ip link set lo up
mount -t tmpfs none "$DIR"
mkdir "$DIR/upper" "$DIR/work" "$DIR/root"
mount -t overlay -o "lowerdir=/,upperdir=$DIR/upper,workdir=$DIR/work" none "$DIR/root"
mount --rbind /dev "$DIR/root/dev"
mount -t proc none "$DIR/root/proc"
while [ $# -gt 0 ]; do
	install -D "$2" "$DIR/root$1"
	shift 2
done
exec chroot "$DIR/root" bash -exuo pipefail -c "$COMMANDS"`
	argv := []string{"--mount", "--net", "--pid", "--fork", "--kill-child", "sh", "-c", script, "sh"}
	for to, from := range files {
		argv = append(argv, to, from)
	}
	cmd := exec.CommandContext(ctx, "unshare", argv...)
	cmd.Env = append(os.Environ(), "DIR="+t.TempDir(), "HOME=/root", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "COMMANDS="+commands)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

// standIns are programs that stand in for those of a newcomer's machine that are not on this one, by name.
func standIns(t *testing.T, scripts map[string]string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for name, script := range scripts {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil { //nolint:gosec // a program
			t.Fatal(err)
		}
	}
	return dir
}

// sudo is one for root.
const sudo = `if [ "$1" = -u ]; then
	user=$2
	shift 2
	exec setpriv --reuid "$user" --regid "$user" --init-groups "$@"
fi
exec "$@"`

// tenLines fails if a section of a page has more than ten lines to type.
func tenLines(t *testing.T, page string) {
	t.Helper()
	count := map[string]int{}
	for _, c := range commandsOf(t, "../../"+page) {
		if count[c.section] += 1 + strings.Count(c.command, "\n"); count[c.section] == 11 {
			t.Errorf("%s:%d: %q has more than ten lines to type", page, c.line, c.section)
		}
	}
}

var (
	jobEnded   = regexp.MustCompile(`(?m)^\S+: line \d+: +\d+ (Killed|Terminated) .*\n`)
	zkStarts   = regexp.MustCompile(`(?m)^.* msg="waiting for ZooKeeper" .*\n`)
	randomName = regexp.MustCompile(`\b([0-9a-f]{32}|[0-9a-f]{16}|[0-9a-f]{8})\b`)
	aDuration  = regexp.MustCompile(`\b([0-9.]+(ms|µs|[smh]))+\b`)
	aNumber    = regexp.MustCompile(`\d+`)
	onlyNumber = regexp.MustCompile(`^\d+$`)
	spaces     = regexp.MustCompile(`[ \t]+`)
)

// shape is what two runs of a command have in common: no ids, times and numbers,
// but those that are a line of their own, and no log of waiting for ZooKeeper.
func shape(text string) string {
	var b strings.Builder
	for line := range strings.Lines(zkStarts.ReplaceAllString(jobEnded.ReplaceAllString(text, ""), "")) {
		line = strings.TrimSpace(line)
		if !onlyNumber.MatchString(line) {
			line = randomName.ReplaceAllString(line, "ID")
			line = aDuration.ReplaceAllString(line, "TIME")
			line = aNumber.ReplaceAllString(line, "N")
			line = spaces.ReplaceAllString(line, " ")
		}
		b.WriteString(line + "\n")
	}
	return b.String()
}

// likeAnns is a text with the names of this machine and user as the page has them.
func likeAnns(t *testing.T) func(string) string {
	t.Helper()
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	group, err := user.LookupGroupId(me.Gid)
	if err != nil {
		t.Fatal(err)
	}
	machine := regexp.MustCompile(`\b` + regexp.QuoteMeta(host) + `\b`)
	name := regexp.MustCompile(`\b(` + regexp.QuoteMeta(me.Username) + "|" + regexp.QuoteMeta(group.Name) + `)\b`)
	return func(text string) string {
		return name.ReplaceAllString(machine.ReplaceAllString(text, "laptop"), "ann")
	}
}

// TestTutorial types the commands of docs/TUTORIAL.md, and sees what the page shows.
func TestTutorial(t *testing.T) {
	t.Parallel()
	typePage(deadline(t, 2*time.Minute), t, "docs/TUTORIAL.md")
}

// TestHowTo is TestTutorial of docs/HOWTO.md, beside real Prometheus and a real collector.
func TestHowTo(t *testing.T) {
	t.Parallel()
	tenLines(t, "docs/HOWTO.md")
	typePage(deadline(t, 2*time.Minute), t, "docs/HOWTO.md")
}

// TestNewcomersTen is TestTutorial of what other pages have in ten lines.
func TestNewcomersTen(t *testing.T) {
	t.Parallel()
	for _, page := range []string{"docs/PAGE.md#In ten lines", "docs/POSIX.md#An S3 gateway over a mount"} {
		t.Run(page, func(t *testing.T) {
			t.Parallel()
			tenLines(t, page)
			typePage(deadline(t, 2*time.Minute), t, page)
		})
	}
}

// TestCSISanityTyped is TestTutorial of the CSI driver without Kubernetes.
func TestCSISanityTyped(t *testing.T) {
	t.Parallel()
	const page = "docs/KUBERNETES.md#Without Kubernetes, in ten lines"
	tenLines(t, page)
	typePage(deadline(t, 5*time.Minute), t, page)
}

// TestPageOfHadoop is TestTutorial of what docs/HADOOP.md has for curl.
func TestPageOfHadoop(t *testing.T) {
	t.Parallel()
	typePage(deadline(t, 2*time.Minute), t, "docs/HADOOP.md#Leases by WebHDFS")
}

// typePage types the commands of a page, or of a section (PAGE#SECTION), in their order, into one shell on a machine where
// nothing else runs, and fails unless it sees what the page shows.
func typePage(ctx context.Context, t *testing.T, page string) {
	t.Helper()
	repository, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	all := commandsOf(t, filepath.Join(repository, page))
	machine := env.StartLab(t, "laptop").Machine("laptop")
	shell := start(ctx, t, spec{
		// What it starts ends with it, mounts included. Its disk is nearly empty, as on the page: status tells of a full one.
		argv: slices.Concat(machine.Via(), []string{
			"unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "bash", "-c",
			`mount -t tmpfs -o size=16G disk "$HOME" && cd && ln -s "$0" leasefs && exec bash --norc`, repository,
		}),
		env: []string{
			"HOME=" + t.TempDir(), "JVMFLAGS=-Xmx256m", "OTEL_EXPORTER_OTLP_TIMEOUT=120000", // as long as a machine may stall
			"PATH=" + strings.Join([]string{filepath.Dir(leasefs), filepath.Join(repository, ".cache/bin"), os.Getenv("PATH")}, ":"),
		},
	})
	// Exit codes come by standard error, all else by standard output.
	shell.feed("exec 9>&2 2>&1; ran() { local code=$?; echo $code >&9; return $code; }\n")
	asOnThePage := likeAnns(t)
	codes := ""
	for i, c := range all {
		shell.feed(fmt.Sprintf("{ %s\n} </dev/null\nran\n", c.command))
		shell.prints(ctx, shell.err, "an exit code", func(s string) bool { return strings.HasSuffix(s, "\n") && s != codes })
		code := strings.TrimPrefix(shell.err.String(), codes)
		codes += code
		told := i+1 < len(all) && all[i+1].command == "echo $?"
		if code != "0\n" && !told {
			t.Fatalf("%s:%d: $ %s\nexit code %s%s", page, c.line, c.command, code, shell.out)
		}
		// What runs in the background may show it later.
		shell.prints(ctx, shell.out, fmt.Sprintf("what %s:%d shows after $ %s\n%s", page, c.line, c.command, c.shows), func(s string) bool {
			return shape(asOnThePage(s)) == shape(c.shows)
		})
		shell.out.cut(0)
	}
	shell.eof()
	shell.wait(ctx)
}
