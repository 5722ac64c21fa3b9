package e2e_test

import (
	"archive/zip"
	"context"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// shell runs a command line in a folder, and returns what it prints.
func shell(ctx context.Context, t *testing.T, dir, line string, environment ...string) string {
	t.Helper()
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", line)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), environment...)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", line, err, out, errs.String())
	}
	return string(out)
}

// TestRelease: what a release hands out is whole, is of its version, tells what is in it, and
// has the same bytes when it is made again.
func TestRelease(t *testing.T) {
	t.Parallel()
	ctx := deadline(t, 8*time.Minute)
	project, err := os.ReadFile("../../python/pyproject.toml")
	if err != nil {
		t.Fatal(err)
	}
	version := regexp.MustCompile(`(?m)^version = "(.+)"$`).FindStringSubmatch(string(project))[1]
	dir := t.TempDir()
	release := func(name string) string {
		return strings.TrimSpace(shell(ctx, t, "../..", "scripts/release v"+version+" "+filepath.Join(dir, name), "ARCHS="+runtime.GOARCH))
	}
	made := release("first")
	name := "leasefs_" + version + "_linux_" + runtime.GOARCH
	files, err := os.ReadDir(made)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range files {
		names = append(names, f.Name())
	}
	want := []string{"CHANGES", "SHA256SUMS", name + ".cdx.json", name + ".tar.gz", "leasefs-" + version + "-py3-none-any.whl", "leasefs_" + version + "_" + runtime.GOARCH + ".deb"}
	slices.Sort(want)
	if slices.Sort(names); !slices.Equal(names, want) {
		t.Errorf("made %q, want %q", names, want)
	}
	sums := shell(ctx, t, made, "sha256sum --check --strict SHA256SUMS")
	if n := strings.Count(sums, ": OK\n"); n != len(want)-1 {
		t.Errorf("%d sums of %d files: %s", n, len(want)-1, sums)
	}
	if got := shell(ctx, t, made, "dpkg-deb -f *.deb Version"); got != version+"\n" {
		t.Errorf("the package has version %q", got)
	}
	root := filepath.Join(dir, name)
	shell(ctx, t, dir, "tar -xzf "+filepath.Join(made, name+".tar.gz"))
	program := filepath.Join(root, "leasefs")
	if got := shell(ctx, t, root, "./leasefs --version; bash -n completions/leasefs.bash; test -s completions/_leasefs -a -s leasefs.1 -a -s LICENSE -a -s deploy/compose.yaml"); got != "leasefs v"+version+"\n" {
		t.Errorf("the program says %q", got)
	}
	onCopy := map[string]string{"/usr/local/bin/sudo": standIns(t, map[string]string{"sudo": sudo}) + "/sudo"}
	for _, f := range want {
		onCopy["/root/"+f] = filepath.Join(made, f)
	}
	typed := strings.ReplaceAll(toType(t, "docs/INSTALL.md", "From a release"), "leasefs_0.1.0_linux_amd64", name)
	if out := onACopy(ctx, t, onCopy, "cd\n"+typed+"realpath $(man -w leasefs)\n"); !strings.Contains(out, "\nleasefs v"+version+"\n") || !strings.HasSuffix(out, "\n/usr/local/share/man/man1/leasefs.1\n") {
		t.Errorf("docs/INSTALL.md shows %s", out)
	}
	list, err := os.ReadFile(filepath.Join(made, name+".cdx.json"))
	if err != nil {
		t.Fatal(err)
	}
	var bom struct {
		Metadata   struct{ Component struct{ Version string } }
		Components []struct{ Name, Version string }
	}
	if err := json.Unmarshal(list, &bom); err != nil {
		t.Fatal(err)
	}
	listed := map[string]string{}
	for _, c := range bom.Components {
		listed[c.Name] = c.Version
	}
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	has := map[string]string{"std": info.GoVersion}
	for _, m := range info.Deps {
		has[m.Path] = m.Version
	}
	if !maps.Equal(listed, has) || len(has) < 20 || bom.Metadata.Component.Version != "v"+version {
		t.Errorf("the list of version %s has\n%v\nand the program\n%v", bom.Metadata.Component.Version, listed, has)
	}
	if again := shell(ctx, t, release("again"), "cat SHA256SUMS"); again != shell(ctx, t, made, "cat SHA256SUMS") {
		t.Errorf("made again, it is another:\n%s%s", again, sums)
	}
}

// TestGoInstall types what docs/INSTALL.md says of Go, in a network of its own: go installs the program
// from the module as a proxy hands it out, and it knows its version.
func TestGoInstall(t *testing.T) {
	t.Parallel()
	ctx := deadline(t, 8*time.Minute)
	const module, version = "github.com/leasefs/leasefs", "v0.9.7"
	proxy := t.TempDir()
	at := filepath.Join(proxy, module, "@v")
	shell(ctx, t, "../..", "mkdir -p $AT; echo $V >$AT/list; echo '{\"Version\":\"'$V'\"}' >$AT/$V.info; cp go.mod $AT/$V.mod", "AT="+at, "V="+version)
	packModule(ctx, t, filepath.Join(at, version+".zip"), module+"@"+version+"/")
	known := strings.Fields(shell(ctx, t, "../..", "go env GOMODCACHE GOCACHE"))
	home := t.TempDir()
	out := shell(ctx, t, home, `unshare --net --pid --fork --kill-child --mount-proc bash -eo pipefail -c "ip link set lo up; $TYPED"`,
		"TYPED="+toType(t, "docs/INSTALL.md", "With Go")+"leasefs --version\n", "HOME="+home, "GOPROXY=file://"+proxy+",file://"+filepath.Join(known[0], "cache/download"), "GOSUMDB=off",
		"GOPATH="+filepath.Join(home, "go"), "GOMODCACHE="+filepath.Join(home, "mod"), "GOCACHE="+known[1], "GOFLAGS=-modcacherw -trimpath", "CGO_ENABLED=0", "GOWORK=off")
	if !strings.Contains(out, "\nhello\n") || !strings.Contains(strings.ToLower(out), "leasefs(1)") || !strings.HasSuffix(out, "\nleasefs "+version+"\n") {
		t.Errorf("it shows %q", out)
	}
}

// packModule packs this module's files, without those of modules in it, as a proxy does.
func packModule(ctx context.Context, t *testing.T, to, prefix string) {
	t.Helper()
	names := strings.Split(strings.TrimSuffix(shell(ctx, t, "../..", "git ls-files -z --cached --others --exclude-standard --deduplicate"), "\x00"), "\x00")
	var others []string
	for _, n := range names {
		if dir, ok := strings.CutSuffix(n, "/go.mod"); ok {
			others = append(others, dir+"/")
		}
	}
	f, err := os.Create(to)
	if err != nil {
		t.Fatal(err)
	}
	w := zip.NewWriter(f)
	for _, n := range names {
		if slices.ContainsFunc(others, func(dir string) bool { return strings.HasPrefix(n, dir) }) {
			continue
		}
		data, err := os.ReadFile(filepath.Join("../..", n))
		if errors.Is(err, fs.ErrNotExist) { // removed, and git does not know it yet
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		into, err := w.Create(prefix + n)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := into.Write(data); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
}
