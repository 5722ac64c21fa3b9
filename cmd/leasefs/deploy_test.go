package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/leasefs/leasefs/internal/blockstore/s3"
	"github.com/leasefs/leasefs/namenode"
	"github.com/leasefs/leasefs/test/env"
)

const deploy = "../../deploy/"

// output runs a program that make setup installs.
func output(t *testing.T, stdin string, argv ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...) //nolint:gosec // the test's own
	cmd.Stdin = strings.NewReader(stdin)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", strings.Join(argv, " "), err, out, errs.String())
	}
	return string(out)
}

// namenodeOf parses the command line of a namenode, or of a format, as the program
// does, and starts none.
func namenodeOf(t *testing.T, environment map[string]string, argv ...string) (cfg namenode.Config) {
	t.Helper()
	for name, value := range environment {
		t.Setenv(name, value)
	}
	p := newProgram(os.Stdin, os.Stdout, os.Stderr)
	app := p.app()
	parsed := false
	for _, c := range append(app.Commands, app.Command("admin").Subcommands...) {
		if c.Name == "namenode" || c.Name == "format" {
			c.Action = p.action(operands{}, func(e *invocation) (err error) {
				if cfg, err = e.namenodeConfig(); c.Name == "format" {
					cfg, err = e.offlineEnsemble("")
				}
				parsed = err == nil
				return err
			})
		}
	}
	if err := app.RunContext(t.Context(), append([]string{"leasefs"}, argv...)); err != nil || !parsed {
		t.Fatalf("leasefs %s: %v (a namenode: %t)", strings.Join(argv, " "), err, parsed)
	}
	if strings.HasPrefix(cfg.Blocks, s3.Scheme+":") {
		if _, err := s3.ParseURL(cfg.Blocks); err != nil {
			t.Error(err)
		}
	}
	return cfg
}

// TestComposeFile: the file is one that compose takes, and what it starts takes
// its command lines.
func TestComposeFile(t *testing.T) {
	resolved := output(t, "", "docker-compose", "-f", deploy+"compose.yaml", "config")
	var file struct {
		Services map[string]struct {
			Command     []string
			Environment map[string]string
			Volumes     []any
		}
		Volumes map[string]any
	}
	asJSON := output(t, resolved, "python3", "-c", "import json, sys, yaml; json.dump(yaml.safe_load(sys.stdin), sys.stdout)")
	if err := json.Unmarshal([]byte(asJSON), &file); err != nil {
		t.Fatal(err)
	}
	var zookeepers []string
	for _, line := range strings.Fields(file.Services["zookeeper1"].Environment["ZOO_SERVERS"]) {
		zookeepers = append(zookeepers, line[strings.LastIndex(line, ";")+1:])
	}
	store := file.Services["s3"]
	help := output(t, "", "../../.cache/bin/versitygw", "--help")
	port := ""
	for i, word := range store.Command {
		if strings.HasPrefix(word, "--") && !strings.Contains(help, word+" ") {
			t.Errorf("versitygw has no %s", word)
		}
		if word == "--port" {
			port = store.Command[i+1]
		}
	}
	seen := map[string]string{}
	n, formats, namespace := 0, 0, ""
	for name, service := range file.Services {
		if len(service.Command) < 2 || filepath.Base(service.Command[0]) != "leasefs" {
			continue
		}
		cfg := namenodeOf(t, service.Environment, service.Command[1:]...)
		if cfg.HA == nil || !slices.Equal(cfg.HA.ZooKeeper, zookeepers) || len(zookeepers) != 3 {
			t.Fatalf("%s: ZooKeeper at %+v, there are %v", name, cfg.HA, zookeepers)
		}
		if what := cfg.HA.Name + " in " + cfg.Blocks; namespace == "" {
			namespace = what
		} else if what != namespace {
			t.Errorf("%s is of %s, others of %s", name, what, namespace)
		}
		if loc, err := s3.ParseURL(cfg.Blocks); err != nil || loc.Endpoint != "http://"+port {
			t.Errorf("%s: blocks at %s, the store is at %s; %v", name, cfg.Blocks, port, err)
		}
		if service.Environment["AWS_SECRET_ACCESS_KEY"] != store.Environment["ROOT_SECRET_KEY"] || service.Environment["AWS_ACCESS_KEY_ID"] != store.Environment["ROOT_ACCESS_KEY"] {
			t.Errorf("%s has other keys than the store", name)
		}
		if service.Command[1] == "admin" {
			formats++
			continue
		}
		n++
		for _, addr := range []string{cfg.Listen, cfg.HTTP} {
			if by := seen[addr]; by != "" {
				t.Errorf("%s and %s both listen at %s", by, name, addr)
			}
			seen[addr] = name
		}
	}
	if n != 3 || formats != 1 {
		t.Errorf("%d namenodes, %d formats", n, formats)
	}
}

// TestUnit: systemd finds nothing wrong with the unit, and the program takes the
// command lines that the example's settings make.
func TestUnit(t *testing.T) {
	raw, err := os.ReadFile(deploy + "leasefs-namenode@.service")
	if err != nil {
		t.Fatal(err)
	}
	const program = "/usr/bin/leasefs"
	unit := string(raw)
	if strings.Contains(unit, "RestartPreventExitStatus") {
		t.Error("a panic ends with the exit code of wrong settings: it has to be started again after either")
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "leasefs-namenode@.service")
	if err := os.WriteFile(file, []byte(strings.Replace(unit, "ExecStart="+program, "ExecStart="+exe, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "systemd-analyze", "verify", "--man=no", strings.Replace(file, "@", "@prod", 1)) //nolint:gosec // the test's own
	if said, err := cmd.CombinedOutput(); err != nil || len(said) > 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, said)
	}

	example, err := os.ReadFile(deploy + "namenode.env.example")
	if err != nil {
		t.Fatal(err)
	}
	env := map[string]string{}
	var options []string
	for line := range strings.Lines(string(example)) {
		name, value, ok := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "#"), "=")
		switch {
		case !ok:
		case name == "OPTIONS":
			options = append(options, value)
		case line[0] != '#':
			env[name] = value
		}
	}
	if len(options) != 2 {
		t.Fatalf("OPTIONS %q", options)
	}
	_, start, _ := strings.Cut(unit, "ExecStart="+program+" ")
	start, _, _ = strings.Cut(start, "\n")
	for _, o := range options {
		var argv []string
		for word := range strings.FieldsSeq(start) {
			switch {
			case word == "$OPTIONS":
				argv = append(argv, strings.Fields(o)...)
			case strings.HasPrefix(word, "${"):
				value := env[strings.Trim(word, "${}")]
				if value == "" {
					t.Errorf("%s is not in the example", word)
				}
				argv = append(argv, value)
			default:
				argv = append(argv, word)
			}
		}
		cfg := namenodeOf(t, map[string]string{"LEASEFS_DATA": "/var/lib/leasefs/prod"}, argv...)
		if cfg.Data != "/var/lib/leasefs/prod" || cfg.Listen != env["LISTEN"] || cfg.HTTP != env["HTTP"] || cfg.Blocks == "" {
			t.Errorf("%+v", cfg)
		}
		if dir, local := strings.CutPrefix(cfg.Blocks, "file://"); local && !strings.Contains(unit, "\nReadWritePaths=-"+filepath.Dir(dir)+"\n") {
			t.Errorf("the unit may not write to %s", dir)
		}
	}
}

// TestAppendUnit: systemd finds nothing wrong with the units, and takes what the
// program, started as they say, answers to SIGTERM for success.
func TestAppendUnit(t *testing.T) {
	var files [2]string
	for i, name := range []string{"leasefs-append@.service", "leasefs-append@.socket"} {
		raw, err := os.ReadFile(deploy + name)
		if err != nil {
			t.Fatal(err)
		}
		files[i] = string(raw)
	}
	unit := files[0]
	if strings.Contains(unit, "RestartPreventExitStatus") {
		t.Error("a panic ends with the exit code of wrong settings: it has to be started again after either")
	}
	program, err := exec.LookPath("leasefs")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	verify := []string{"verify", "--man=no"}
	for i, name := range []string{"leasefs-append@.service", "leasefs-append@.socket"} {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(strings.Replace(files[i], "ExecStart=/usr/bin/leasefs", "ExecStart="+program, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		verify = append(verify, strings.Replace(file, "@", "@host-1", 1))
	}
	if said, err := exec.CommandContext(t.Context(), "systemd-analyze", verify...).CombinedOutput(); err != nil || len(said) > 0 { //nolint:gosec // the test's own
		t.Errorf("systemd-analyze verify: %v\n%s", err, said)
	}

	// The unit's command line at a namenode, with a FIFO that somebody keeps open.
	_, argv, _ := strings.Cut(unit, "ExecStart=/usr/bin/leasefs ")
	argv, _, _ = strings.Cut(argv, "\n")
	argv = strings.NewReplacer("%i", "host-1", "${FILE}", "/lines").Replace(argv)
	n := env.Start(t)
	fifo := filepath.Join(dir, "host-1")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	in, err := os.OpenFile(fifo, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	cmd := exec.CommandContext(t.Context(), program, strings.Fields(argv)...) //nolint:gosec // the test binary
	cmd.Stdin, cmd.Stderr = in, os.Stderr
	cmd.Env = append(os.Environ(), "LEASEFS_NAMENODE="+n.Addr())
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	const line = "a line\n"
	if _, err := in.WriteString(line); err != nil {
		t.Fatal(err)
	}
	fsys := n.Client(t)
	env.Eventually(t, "the line is in the file", func() bool {
		info, err := fsys.Stat(t.Context(), "/lines")
		return err == nil && info.Length == int64(len(line))
	})
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // its code says how it ended
	if want := "SuccessExitStatus=" + strconv.Itoa(cmd.ProcessState.ExitCode()); !slices.Contains(strings.Split(unit, "\n"), want) {
		t.Errorf("the unit does not say %s", want)
	}
	if info, err := fsys.Stat(t.Context(), "/lines"); err != nil || info.Open != nil {
		t.Errorf("after SIGTERM: %+v, %v", info, err)
	}
}
