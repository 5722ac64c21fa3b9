package main

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/leasefs/leasefs/cmd/leasefs/argv"
	"github.com/leasefs/leasefs/internal/fserror"
)

func testApp(t *testing.T) *cli.App {
	t.Helper()
	return newProgram(os.Stdin, os.Stdout, os.Stderr).app()
}

// result runs one command line in this process.
func result(t *testing.T, argv ...string) (code int, stdout, stderr string) {
	t.Helper()
	dir := t.TempDir()
	out, err := os.Create(filepath.Join(dir, "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	errs, err := os.Create(filepath.Join(dir, "err"))
	if err != nil {
		t.Fatal(err)
	}
	defer errs.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	code = newProgram(null, out, errs).run(argv)
	o, _ := os.ReadFile(out.Name())
	e, _ := os.ReadFile(errs.Name())
	return code, string(o), string(e)
}

func TestEveryCommandHasHelpWithAnExample(t *testing.T) {
	var walk func(path []string, list []*cli.Command)
	walk = func(path []string, list []*cli.Command) {
		for _, c := range list {
			p := append(slices.Clone(path), c.Name)
			t.Run(strings.Join(p, " "), func(t *testing.T) {
				if c.Usage == "" || c.Description == "" {
					t.Error("no usage or description")
				}
				code, out, errs := result(t, append(p, "--help")...)
				if code != 0 || errs != "" {
					t.Fatalf("code %d, stderr %q", code, errs)
				}
				full := "leasefs " + strings.Join(p, " ")
				_, example, found := strings.Cut(out, "Example:\n")
				if !found || !strings.Contains(strings.SplitN(example, "\n\n", 2)[0], full) && len(c.Subcommands) == 0 {
					// A global flag may stand between program and command.
					if !strings.Contains(example, p[len(p)-1]) {
						t.Errorf("no example of %q in:\n%s", full, out)
					}
				}
				if !strings.Contains(out, c.Description) || !strings.HasPrefix(out, full+": ") {
					t.Errorf("incomplete help:\n%s", out)
				}
				for line := range strings.SplitSeq(c.UsageText+"\n"+c.Description, "\n") {
					if len(line) > 110 {
						t.Errorf("line of %d characters: %s", len(line), line)
					}
				}
			})
			walk(p, c.Subcommands)
		}
	}
	walk(nil, testApp(t).Commands)
}

func TestNoFlagNameTwice(t *testing.T) {
	var walk func(list []*cli.Command)
	walk = func(list []*cli.Command) {
		for _, c := range list {
			seen := map[string]bool{"help": true}
			for _, f := range c.Flags {
				for _, n := range f.Names() {
					if seen[n] {
						t.Errorf("%s: flag %s twice", c.Name, n)
					}
					seen[n] = true
				}
			}
			for _, f := range globalFlags() {
				for _, n := range f.Names() {
					if seen[n] {
						t.Errorf("%s: flag %s is a global one too", c.Name, n)
					}
				}
			}
			walk(c.Subcommands)
		}
	}
	walk(testApp(t).Commands)
}

func TestUsageErrorsAreOneLine(t *testing.T) {
	for _, line := range []string{
		"", "frob", "ls --frob", "ls -lX", "lease", "lease frob", "admin journal", "rm", "mv /a", "status /a", "cat rel", "cat /a/../b", "rm -r rel",
		"append --wait soon /a", "append --wait -1s /a", "append --at x /a", "append --at 0x10 /a", "append --at 1_0 /a", "watch --from x /a", "watch --from -1 /a", "append --at -1 /a", "append --at", "create --flush never /a",
		"create --flush 0s /a", "create --steal /a", "head -n 1 -c 1 /a", "tail -c 1X /a", "head -n x /a", "truncate /a", "truncate -s -1 /a",
		"chmod 999 /a", "chmod u+q /a", "chmod /a", "chown : /a", "chown a: /a", "ln /a /b", "mkdir -m 9 /a", "find / --type x", "find / --name [",
		"--timeout 1h ls", "--timeout x ls", "--namenode nohost ls", "ls --namenode a:b", "--namenode a:1,,b:2 ls", "ls --json=maybe", "--tls-cert x ls",
		"--tls-key x ls", "namenode", "namenode --data /x --soft-limit 2m --hard-limit 1m", "namenode --data /x --blocks s3://b",
		"namenode --data /x --log-level loud", "namenode --data /x --tls-client-ca y", "completion tcsh", "admin safemode maybe", "bench --run frob",
		"bench --workers 0", "bench --n x", "put a /b --workers 0", "put a b", "get a b", "mv -T /a /b /c",
	} {
		t.Run(line, func(t *testing.T) {
			code, out, errs := result(t, strings.Fields(line)...)
			if code != fserror.ExitUsage {
				t.Errorf("exit code %d, stderr %q", code, errs)
			}
			if out != "" {
				t.Errorf("stdout: %q", out)
			}
			if !strings.HasPrefix(errs, "leasefs: ") || strings.Count(errs, "\n") != 1 || !strings.Contains(errs, "(see leasefs ") || !strings.Contains(errs, "--help)") {
				t.Errorf("stderr: %q", errs)
			}
			_, _, errs = result(t, append([]string{"--json"}, strings.Fields(line)...)...)
			if !strings.HasPrefix(errs, `{"error":{"kind":"INVALID_ARGUMENT"`) || strings.Count(errs, "\n") != 1 {
				t.Errorf("with --json: %q", errs)
			}
		})
	}
}

func TestUnreachable(t *testing.T) {
	addr := deadAddress()
	code, _, errs := result(t, "--namenode", addr, "--timeout", "50ms", "stat", "/a")
	if code != fserror.ExitUnavailable || !strings.Contains(errs, addr) || strings.Count(errs, "\n") != 1 {
		t.Errorf("code %d, %q", code, errs)
	}
}

// status and df ask once: they tell soon that no namenode answers, whether its
// port is closed or nobody speaks there.
func TestStatusDoesNotWaitForANamenode(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	for name, addr := range map[string]string{"closed": deadAddress(), "silent": silent.Addr().String()} {
		for _, command := range []string{"status", "df"} {
			t.Run(command+" "+name, func(t *testing.T) {
				t.Parallel()
				began := time.Now()
				code, out, errs := result(t, "--namenode", addr, command)
				if took := time.Since(began); took > 30*time.Second { // --timeout is a minute
					t.Errorf("it took %s", took)
				}
				if code != fserror.ExitUnavailable || !strings.Contains(errs, "no active namenode") {
					t.Errorf("code %d, %q", code, errs)
				}
				if command == "status" && !strings.Contains(out, "unreachable") {
					t.Errorf("stdout: %q", out)
				}
			})
		}
	}
}

func TestArrange(t *testing.T) {
	for _, tc := range []struct{ in, want string }{
		{"ls /a -l", "ls -l -- /a"},
		{"ls -lR /a /b", "ls -l -R -- /a /b"},
		{"ls -l /a --user bob", "--user=bob ls -l -- /a"},
		{"--json ls", "--json ls --"},
		{"ls --json", "--json ls --"},
		{"-q ls", "-q ls --"},
		{"head -n5 /a", "head -n=5 -- /a"},
		{"head -n 5 /a", "head -n=5 -- /a"},
		{"head --lines=5 /a", "head --lines=5 -- /a"},
		{"rm -rf /a", "rm -r -f -- /a"},
		{"rm -- -r", "rm -- -r"},
		{"cat -", "cat -- -"},
		{"chmod -w /a", "chmod -- -w /a"},
		{"chmod -R -w /a", "chmod -R -- -w /a"},
		{"lease ls --holder=x --expired", "lease ls --holder=x --expired --"},
		{"help lease ls", "lease ls --help"},
		{"lease ls -h", "lease ls --help"},
		{"du -h /a", "du -h -- /a"},
		{"--version", "--version"},
		{"find / --name -x", "find --name=-x -- /"},
		{"append --at 0100 /a", "append --at=100 -- /a"}, // not octal
		{"tree -L010 /a", "tree -L=10 -- /a"},
		{"watch --from 007 /a", "watch --from=7 -- /a"},
	} {
		got, _, err := argv.Arrange(grammar(testApp(t)), strings.Fields(tc.in))
		if err != nil || strings.Join(got, " ") != tc.want {
			t.Errorf("%s: %s, %v; want %s", tc.in, strings.Join(got, " "), err, tc.want)
		}
	}
}

func TestCompletionScripts(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish"} {
		script := scriptOf(t, shell)
		out, err := os.ReadFile(script)
		if err != nil {
			t.Fatal(err)
		}
		for _, word := range []string{"leasefs", "lease ls", "soft-limit", "expired", "admin journal verify"} {
			if !strings.Contains(string(out), word) {
				t.Errorf("%s: no %q", shell, word)
			}
		}
		if msg, err := exec.Command(shell, "-n", script).CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", shell, err, msg)
		}
	}
}

// scriptOf is a file with what the program prints for a shell.
func scriptOf(t *testing.T, shell string) string {
	t.Helper()
	code, out, errs := result(t, "completion", shell)
	if code != 0 || errs != "" {
		t.Fatalf("%s: code %d, %s", shell, code, errs)
	}
	name := filepath.Join(t.TempDir(), shell)
	if err := os.WriteFile(name, []byte(out), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// completed are lines of which each begins one word of a command line, and what completes it.
var completed = []struct{ typed, word string }{
	{"leasefs cre", "create"},
	{"leasefs lease rec", "recover"},
	{"leasefs --json lease ls --exp", "--expired"},
	{"leasefs admin journal v", "verify"},
}

// TestShellsComplete: in each shell the word that was begun is completed, as it is there: in zsh by the key.
func TestShellsComplete(t *testing.T) {
	for shell, complete := range map[string]func(t *testing.T, script string, typed []string) []string{
		"bash": bashCompletes, "zsh": zshCompletes, "fish": fishCompletes,
	} {
		t.Run(shell, func(t *testing.T) {
			var typed, want []string
			for _, c := range completed {
				typed, want = append(typed, c.typed), append(want, c.word)
			}
			if got := complete(t, scriptOf(t, shell), typed); !slices.Equal(got, want) {
				t.Errorf("%q, want %q", got, want)
			}
		})
	}
}

// inShell runs a script of a shell in an empty folder, which is its user's, too.
func inShell(t *testing.T, env []string, argv ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
	cmd.Dir = t.TempDir()
	cmd.Env = append(append(os.Environ(), "HOME="+cmd.Dir, "TERM=vt100"), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", argv[0], err, out)
	}
	return string(out)
}

func bashCompletes(t *testing.T, script string, typed []string) []string {
	t.Helper()
	return strings.Fields(inShell(t, nil, append([]string{"bash", "-c", `source "$0"
for typed; do
  read -ra COMP_WORDS <<<"$typed"
  COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
  _leasefs
  echo "${COMPREPLY[@]}"
done`, script}, typed...)...))
}

// fishCompletes asks fish what it would offer; it tells what each is for, too.
func fishCompletes(t *testing.T, script string, typed []string) (words []string) {
	t.Helper()
	out := inShell(t, nil, append([]string{"fish", "--no-config", "-c", "source $argv[1]; for typed in $argv[2..]; complete -C $typed; end", script}, typed...)...)
	for line := range strings.Lines(out) {
		word, _, _ := strings.Cut(strings.TrimSpace(line), "\t")
		words = append(words, word)
	}
	return words
}

// zshCompletes types each line and the key that completes it at a terminal, and looks what the line is then.
func zshCompletes(t *testing.T, script string, typed []string) (words []string) {
	t.Helper()
	dir := t.TempDir()
	lines := filepath.Join(dir, "lines")
	if err := os.WriteFile(filepath.Join(dir, ".zshrc"), []byte(`PS1='ready>'
autoload -U compinit && compinit -D -u
source "$SCRIPT"
line() { print -r -- "$BUFFER" >>"$LINES_SEEN"; BUFFER= }
zle -N line
bindkey '^G' line
`), 0o600); err != nil {
		t.Fatal(err)
	}
	said := inShell(t, []string{"ZDOTDIR=" + dir, "SCRIPT=" + script, "LINES_SEEN=" + lines}, append([]string{"zsh", "-f", "-c", `zmodload zsh/zpty
zpty shell zsh -d -i
zpty -r shell said '*ready>*'
for typed; do zpty -w -n shell "$typed"$'\t\a'; done
zpty -w -n shell $'exit\r'
while zpty -r shell said; do print -r -- "$said"; done`, "zsh"}, typed...)...)
	out, err := os.ReadFile(lines)
	if err != nil {
		t.Fatalf("%v; the terminal shows %q", err, said)
	}
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		words = append(words, f[len(f)-1])
	}
	return words
}
