package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"github.com/leasefs/leasefs/blockstore/s3"
	"github.com/leasefs/leasefs/namenode"
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

// namenodeOf parses the command line of a namenode as the program does, and
// starts none.
func namenodeOf(t *testing.T, environment map[string]string, argv ...string) (cfg namenode.Config) {
	t.Helper()
	for name, value := range environment {
		t.Setenv(name, value)
	}
	p := newProgram(os.Stdin, os.Stdout, os.Stderr)
	app := p.app()
	parsed := false
	for _, c := range app.Commands {
		if c.Name == "namenode" {
			c.Action = p.action(operands{}, func(e *env) error {
				var err error
				cfg, err = e.namenodeConfig()
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
	n := 0
	for name, service := range file.Services {
		if len(service.Command) < 2 || filepath.Base(service.Command[0]) != "leasefs" {
			continue
		}
		n++
		cfg := namenodeOf(t, service.Environment, service.Command[1:]...)
		if cfg.HA == nil || !slices.Equal(cfg.HA.ZooKeeper, zookeepers) || len(zookeepers) != 3 {
			t.Errorf("%s: ZooKeeper at %+v, there are %v", name, cfg.HA, zookeepers)
		}
		if loc, err := s3.ParseURL(cfg.Blocks); err != nil || loc.Endpoint != "http://"+port {
			t.Errorf("%s: blocks at %s, the store is at %s; %v", name, cfg.Blocks, port, err)
		}
		if service.Environment["AWS_SECRET_ACCESS_KEY"] != store.Environment["ROOT_SECRET_KEY"] || service.Environment["AWS_ACCESS_KEY_ID"] != store.Environment["ROOT_ACCESS_KEY"] {
			t.Errorf("%s has other keys than the store", name)
		}
		for _, addr := range []string{cfg.Listen, cfg.HTTP} {
			if by := seen[addr]; by != "" {
				t.Errorf("%s and %s both listen at %s", by, name, addr)
			}
			seen[addr] = name
		}
	}
	if n != 3 {
		t.Errorf("%d namenodes", n)
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
	}
}

var inCode = regexp.MustCompile("`(?:sudo )?(leasefs [^`]+)`")

// TestOperationsPage: each command that an operator is told to give is one, with
// flags that it has.
func TestOperationsPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/OPERATIONS.md")
	if err != nil {
		t.Fatal(err)
	}
	rules, err := os.ReadFile(deploy + "prometheus-alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	found := inCode.FindAllStringSubmatch(string(page)+string(rules), -1)
	if len(found) < 10 {
		t.Errorf("%d commands", len(found))
	}
	for _, m := range found {
		words := strings.Fields(m[1])[1:]
		app := testApp(t)
		list, flags := app.Commands, app.Flags
		for _, word := range words {
			if name, ok := strings.CutPrefix(word, "--"); ok {
				name, _, _ = strings.Cut(name, "=")
				if !slices.ContainsFunc(flags, func(f cli.Flag) bool { return slices.Contains(f.Names(), name) }) {
					t.Errorf("%s: there is no --%s", m[1], name)
				}
				continue
			}
			at := slices.IndexFunc(list, func(c *cli.Command) bool { return c.HasName(word) })
			if at >= 0 {
				flags = append(slices.Clone(flags), list[at].Flags...)
				list = list[at].Subcommands
			} else if len(list) > 0 {
				t.Errorf("%s: there is no command %s", m[1], word)
				break
			}
		}
	}
}
