package main

import (
	"bufio"
	"errors"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/cmd/leasefs/argv"
	"github.com/leasefs/leasefs/cmd/leasefs/rewind"
	"github.com/leasefs/leasefs/cmd/leasefs/screen"
	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
)

func TestParseMode(t *testing.T) {
	for _, tc := range []struct {
		mode     string
		old, new fs.FileMode
	}{
		{"0640", 0o777, 0o640},
		{"755", 0, 0o755},
		{"1777", 0, 0o777 | fs.ModeSticky},
		{"u+x", 0o644, 0o744},
		{"+x", 0o644, 0o755},
		{"-w", 0o666, 0o444},
		{"go-rwx", 0o777, 0o700},
		{"a=r", 0o777, 0o444},
		{"u=rw,go=r", 0o777, 0o644},
		{"g+w-x", 0o755, 0o765},
		{"a+X", 0o644, 0o644},
		{"a+X", 0o744, 0o755},
		{"a+X", fs.ModeDir | 0o644, 0o755},
		{"+t", 0o777, 0o777 | fs.ModeSticky},
		{"-t", 0o777 | fs.ModeSticky, 0o777},
		{"o=", 0o777, 0o770},
	} {
		change, err := parseMode(tc.mode)
		if err != nil {
			t.Errorf("%s: %v", tc.mode, err)
			continue
		}
		if got := change(tc.old); got != tc.new {
			t.Errorf("%s of %o: %o, want %o", tc.mode, tc.old, got, tc.new)
		}
	}
	for _, bad := range []string{"", "8", "2777", "x", "u", "z+r", "u+q", "u+r,", "07777777777777"} {
		if _, err := parseMode(bad); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

func TestConfigFile(t *testing.T) {
	dir := t.TempDir()
	for _, tc := range []struct{ file, want string }{
		{"timeout = \"1s\"\nfrob = 1\n", `line 2: unknown key "frob"`},
		{"[deep]\nnamenode = 1\n", `unknown key "deep`},
		{"timeout = -5\n", "timeout"},
		{"timeout = [5]\n", "timeout: a duration such as"},
		{"timeout = true\n", "timeout: a duration such as"},
		{"user = \"a\"\njson = \"yes\"\n", "line 2"},
		{"timeout = \"soon\"\n", "timeout"},
		{"namenode = 5\n", "namenode"},
		{"namenode = [5]\n", "namenode"},
		{"user = \"a\n", "line 1"},
		{"timeuot = \"1s\"\n", `is "timeout" meant?`},
	} {
		name := filepath.Join(dir, "c.toml")
		if err := os.WriteFile(name, []byte(tc.file), 0o600); err != nil {
			t.Fatal(err)
		}
		code, _, errs := result(t, "--config", name, "ls")
		if code != fserror.ExitUsage || !strings.Contains(errs, tc.want) || !strings.Contains(errs, name) || strings.Count(errs, "\n") != 1 {
			t.Errorf("%q: code %d, %q; want %s", tc.file, code, errs, tc.want)
		}
	}
	if code, _, errs := result(t, "--config", filepath.Join(dir, "none"), "ls"); code != fserror.ExitNotFound {
		t.Errorf("missing file: code %d, %q", code, errs)
	}
}

func TestConfigPrecedence(t *testing.T) {
	name := filepath.Join(t.TempDir(), "c.toml")
	file, env, flag := deadAddress(), deadAddress(), deadAddress()
	if err := os.WriteFile(name, []byte("namenode = [\""+file+"\"]\ntimeout = \"20ms\"\njson = true\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	expect := func(addr string, argv ...string) {
		t.Helper()
		code, _, errs := result(t, append(argv, "stat", "/")...)
		if code != fserror.ExitUnavailable || !strings.Contains(errs, addr) || !strings.HasPrefix(errs, `{"error":{"kind":"UNAVAILABLE"`) {
			t.Errorf("code %d, %q; want %s", code, errs, addr)
		}
	}
	expect(file, "--config", name)
	t.Setenv("LEASEFS_NAMENODE", env)
	expect(env, "--config", name)
	expect(flag, "--config", name, "--namenode", flag)
}

// TestStatusTellsOfClocks: the table tells of a clock that surely differs by more
// than a second, JSON of each that was compared.
func TestStatusTellsOfClocks(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		skew *clock.Skew
		want string
	}{
		{nil, ""},
		{&clock.Skew{Ahead: time.Second, Bound: time.Millisecond}, ""},
		{&clock.Skew{Ahead: 5 * time.Second, Bound: 4 * time.Second}, ""},
		{&clock.Skew{Ahead: 5240 * time.Millisecond, Bound: time.Millisecond}, " (clock 5.2s ahead of ZooKeeper)"},
		{&clock.Skew{Ahead: -11 * time.Minute, Bound: time.Millisecond}, " (clock 11m0s behind ZooKeeper)"},
	} {
		if got := skewText(c.skew, "ZooKeeper"); got != c.want {
			t.Errorf("%+v: %q, want %q", c.skew, got, c.want)
		}
		j := statusToJSON(&client.NamenodeStatus{Role: "standby", ZooKeeperStatus: client.ZooKeeperStatus{ZooKeeperClock: c.skew}})
		if c.skew == nil {
			if j.ClockSkewMS != nil || j.ClockBoundMS != nil {
				t.Errorf("not compared, and JSON tells %+v", j)
			}
			continue
		}
		if *j.ClockSkewMS != c.skew.Ahead.Milliseconds() || *j.ClockBoundMS != c.skew.Bound.Milliseconds() || j.StoreClockSkewMS != nil {
			t.Errorf("%+v: JSON tells %+v", c.skew, j)
		}
	}
}

// TestStatusTellsOfTheArchive: the table tells when it is late or fails, JSON how far it is.
func TestStatusTellsOfTheArchive(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		archive *client.ArchiveStatus
		behind  bool
	}{
		{nil, false},
		{&client.ArchiveStatus{TxID: 7}, false},
		{&client.ArchiveStatus{TxID: 7, Records: 2, Lag: time.Minute}, false},
		{&client.ArchiveStatus{TxID: 7, Records: 2, Lag: time.Minute + 1}, true},
		{&client.ArchiveStatus{Problem: "the store is away", Holes: 1}, true},
	} {
		var table strings.Builder
		p := &program{Printer: screen.Printer{Out: bufio.NewWriter(&table)}}
		s := client.NamenodeStatus{Role: "active", Troubles: client.Troubles{Archive: c.archive}}
		if err := errors.Join(p.statusTable([]client.NamenodeStatus{s}), p.Out.Flush()); err != nil || strings.Contains(table.String(), "active (archive behind)") != c.behind {
			t.Errorf("%+v: %q, %v", c.archive, table.String(), err)
		}
		j := statusToJSON(&s)
		switch {
		case c.archive == nil:
			if j.Status != (rewind.Status{}) {
				t.Errorf("nothing is archived, and JSON tells %+v", j)
			}
		case *j.Status.TxID != c.archive.TxID || *j.Records != c.archive.Records || (j.LagMS == nil) != (c.archive.TxID == 0) || j.LagMS != nil && *j.LagMS != c.archive.Lag.Milliseconds() || *j.Holes != c.archive.Holes || (j.Problem == nil) != (c.archive.Problem == ""):
			t.Errorf("%+v: JSON tells %+v", c.archive, j.Status)
		}
	}
}

// Every duration, a flag's or a variable's, may be a plain number of seconds.
func TestDurationsInSeconds(t *testing.T) {
	app := testApp(t)
	flags := 0
	var check func(words []string, own []cli.Flag, below []*cli.Command)
	check = func(words []string, own []cli.Flag, below []*cli.Command) {
		for _, c := range below {
			check(append(slices.Clone(words), c.Name), c.Flags, c.Subcommands)
		}
		for _, f := range own {
			d, ok := f.(*cli.DurationFlag)
			if !ok || len(below) > 0 {
				continue
			}
			flags++
			got, _, err := argv.Arrange(grammar(app), append(slices.Clone(words), "--"+d.Name, "1.5"))
			if err != nil || !slices.Contains(got, "--"+d.Name+"=1.5s") {
				t.Errorf("%v --%s 1.5: %v, %v", words, d.Name, got, err)
			}
			for _, v := range d.EnvVars {
				t.Setenv(v, "600")
				argv.SecondsInEnvironment(own)
				if got := os.Getenv(v); got != "10m0s" {
					t.Errorf("%s=600 became %s", v, got)
				}
			}
		}
	}
	check([]string{"ls"}, app.Flags, nil)
	check(nil, nil, app.Commands)
	if flags < 15 {
		t.Errorf("only %d flags are durations", flags)
	}
}

// A time to live that is not the one asked for, or is shorter than a failover, is told.
func TestNoteLife(t *testing.T) {
	for _, c := range []struct {
		asked, got time.Duration
		outlives   bool
		want       string
	}{
		{time.Second, time.Second, true, ""},
		{0, time.Minute, true, ""},
		{time.Second, 15 * time.Second, true, "leasefs: the time to live was raised to 15s, the namenode's minimum\n"},
		{time.Second, time.Second, false, "leasefs: warning: a time to live of 1s is shorter than a failover of the namenodes can take; a longer --ttl outlives one\n"},
	} {
		f, err := os.Create(filepath.Join(t.TempDir(), "err"))
		if err != nil {
			t.Fatal(err)
		}
		e := &invocation{program: newProgram(nil, os.Stdout, f), commandLine: commandLine{flags: cli.NewContext(nil, flag.NewFlagSet("", flag.ContinueOnError), nil)}}
		e.noteLife(c.asked, c.got, c.outlives)
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(f.Name()); err != nil || string(got) != c.want {
			t.Errorf("%+v: %q, %v", c, got, err)
		}
	}
}
