package e2e_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// python is where scripts/setup puts Python and what the package in python/ needs.
const python = "../../.cache/python/bin/python"

// pythonPackage types what python/README.md says of installing the package, and runs the first program there, in
// a network of its own: pip installs it, with nothing else and no index to ask, into a fresh environment. It
// returns the folder that has it.
func pythonPackage(ctx context.Context, t *testing.T) string {
	t.Helper()
	needs, err := filepath.Glob("../../.cache/python/lib/python3*/site-packages") // what pip would fetch, and what tests of the package need
	if err == nil && len(needs) == 1 {
		needs[0], err = filepath.Abs(needs[0])
	}
	if err != nil || len(needs) != 1 {
		t.Fatalf("%v, %v", needs, err)
	}
	fresh := filepath.Join(t.TempDir(), "fresh")
	runPython(ctx, t, "-m", "venv", "--without-pip", fresh)
	page, err := os.ReadFile("../../python/README.md")
	if err != nil {
		t.Fatal(err)
	}
	program := regexp.MustCompile("(?s)## In ten lines\n.*?```python\n(.*?)```").FindStringSubmatch(string(page))
	python3, err := exec.LookPath("python3")
	if err != nil {
		t.Fatal(err)
	}
	pip := standIns(t, map[string]string{"pip": `exec ` + python3 + ` -m pip --python ` + fresh + `/bin/python "$@" --disable-pip-version-check --root-user-action ignore --no-index --no-build-isolation`})
	out := shell(ctx, t, "../..", `unshare --net --pid --fork --kill-child --mount-proc bash -eo pipefail -c "ip link set lo up; $TYPED python -c \"\$PROGRAM\""`,
		"TYPED="+toType(t, "python/README.md", "In ten lines"), "PROGRAM="+program[1], "HOME="+t.TempDir(), "PYTHONPATH="+needs[0], "PYTHONDONTWRITEBYTECODE=1",
		"PATH="+strings.Join([]string{pip, fresh + "/bin", filepath.Dir(leasefs), os.Getenv("PATH")}, ":"))
	names(t, out, "fence with ", "a line", "mine for ")
	site, err := filepath.Glob(filepath.Join(fresh, "lib/python3*/site-packages"))
	if err != nil || len(site) != 1 {
		t.Fatalf("%v, %v", site, err)
	}
	if _, err := os.Stat(filepath.Join(site[0], "leasefs", "py.typed")); err != nil {
		t.Error(err)
	}
	names(t, shell(ctx, t, site[0], "cat leasefs-*.dist-info/WHEEL"), "Tag: py3-none-any\n") // which needs no compiler
	if from := shell(ctx, t, "/", fresh+"/bin/python -c 'import leasefs; print(leasefs.__file__)'", "PYTHONPATH="+needs[0]); !strings.HasPrefix(from, site[0]+"/leasefs/") {
		t.Errorf("it is imported from %s", from)
	}
	return site[0]
}

// runPython runs Python in the folder of the package; it must succeed.
func runPython(ctx context.Context, t *testing.T, args ...string) {
	t.Helper()
	pythonWith(ctx, t, nil, args...)
}

func pythonWith(ctx context.Context, t *testing.T, env []string, args ...string) {
	t.Helper()
	bin, err := filepath.Abs(python)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, bin, args...)
	cmd.Dir = "../../python"
	cmd.Env = append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("python %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// TestPythonPackage holds the Python package to its generated code, to ruff and mypy, and to its
// own tests, which run on the wheel and with the program under test.
func TestPythonPackage(t *testing.T) {
	t.Parallel()
	ctx := deadline(t, 5*time.Minute)
	t.Run("generated", func(t *testing.T) {
		dir := t.TempDir()
		runPython(ctx, t, "-m", "grpc_tools.protoc", "-I", "../proto", "--python_out="+dir, "--pyi_out="+dir, "leasefs/v1/leasefs.proto")
		for _, name := range []string{"leasefs_pb2.py", "leasefs_pb2.pyi"} {
			now, err := os.ReadFile(filepath.Join(dir, "leasefs/v1", name))
			if err != nil {
				t.Fatal(err)
			}
			then, err := os.ReadFile(filepath.Join("../../python/src/leasefs/v1", name))
			if err != nil || !bytes.Equal(now, then) {
				t.Errorf("%s is not what the .proto file makes (%v): make generate", name, err)
			}
		}
	})
	t.Run("style", func(t *testing.T) {
		runPython(ctx, t, "-m", "ruff", "check", "--no-cache", ".")
		runPython(ctx, t, "-m", "ruff", "format", "--no-cache", "--check", ".")
		runPython(ctx, t, "-m", "mypy", "--cache-dir", t.TempDir())
	})
	t.Run("tests", func(t *testing.T) {
		env := []string{"PYTHONPATH=" + pythonPackage(ctx, t), "LEASEFS_BINARY=" + leasefs, "PYTHONDONTWRITEBYTECODE=1"}
		pythonWith(ctx, t, env, "-m", "pytest", "-p", "no:cacheprovider", "--basetemp", filepath.Join(t.TempDir(), "pytest"))
	})
}

// TestPythonOverFailovers: of a writer in Python, no line that was flushed is lost when the active
// namenode is killed, or stands still.
func TestPythonOverFailovers(t *testing.T) {
	t.Parallel()
	ctx := deadline(t, 3*time.Minute)
	site := pythonPackage(ctx, t)
	e := startFleet(ctx, t)
	for _, harm := range []string{"kill -9", "SIGSTOP"} {
		t.Run(harm, func(t *testing.T) {
			a := e.settled(ctx)
			p := start(ctx, t, spec{
				argv: []string{python, "testdata/python/lines.py", e.listen, "/" + strings.ReplaceAll(harm, " ", "-")},
				env:  []string{"PYTHONPATH=" + site, "PYTHONDONTWRITEBYTECODE=1"},
			})
			durable := func(n int) {
				t.Helper()
				p.prints(ctx, p.out, strconv.Itoa(n), func(s string) bool { return strings.Contains(s, "\n"+strconv.Itoa(n)+"\n") })
			}
			durable(50)
			e.harms(ctx)[harm](a)
			said := strings.Fields(p.out.String())
			last, err := strconv.Atoi(said[len(said)-1])
			if err != nil {
				t.Fatal(err)
			}
			durable(last + 50)
			p.eof()
			p.ends(ctx, 0)
		})
	}
}

// TestPythonOneReleaseApart: the Python package of the last release works with a namenode of this one, and
// the other way around. What the old namenode does not know is refused in a line.
func TestPythonOneReleaseApart(t *testing.T) {
	t.Parallel()
	ctx := deadline(t, 2*time.Minute)
	old := lastRelease(t)
	_, commit, _ := strings.Cut(filepath.Base(old), "-")
	before := t.TempDir()
	shell(ctx, t, "../..", "git archive "+commit+" python/src | tar -x -C "+before)
	now, err := filepath.Abs("../../python/src")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ site, namenode string }{
		"old package, new namenode": {filepath.Join(before, "python/src"), ""},
		"new package, old namenode": {now, old},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNamenode(t, filepath.Join(t.TempDir(), "data"))
			n.program = c.namenode
			n.start(ctx)
			run := func(script string, args ...string) *process {
				return start(ctx, t, spec{
					argv: append([]string{python, "testdata/python/" + script, n.listen}, args...), stdin: reader(""),
					env: []string{"PYTHONPATH=" + c.site, "PYTHONDONTWRITEBYTECODE=1"},
				})
			}
			run("lines.py", "/f").ends(ctx, 0)
			names(t, n.run(ctx, "ls", "-l", "/"), "f")
			if c.namenode == old {
				p := run("apart.py")
				p.ends(ctx, 0)
				names(t, p.out.String(), "snapshot allow /: the namenode is of an older release, and does not know this call", "docs/UPGRADES.md says how to upgrade it")
			}
		})
	}
}
