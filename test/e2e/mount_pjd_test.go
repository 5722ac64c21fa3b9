package e2e_test

import (
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// pjdExcluded are the tests of pjdfstest that this file system cannot pass: a pattern
// as of path.Match, and why. Each matches at least one, and all that match fail or
// cannot run. docs/POSIX.md has the same table.
var pjdExcluded = []struct{ tests, why string }{
	{"*::block", noSpecial},
	{"*::char", noSpecial},
	{"*::fifo", noSpecial},
	{"*::socket", noSpecial},
	{"mkfifo::changed_time_fields_success", noSpecial},
	{"mkfifo::permission_bits_from_mode", noSpecial},
	{"mkfifo::uid_gid_eq_euid_egid", noSpecial},
	{"mknod::changed_time_fields_success", noSpecial},
	{"mknod::permission_bits_from_mode", noSpecial},
	{"mknod::uid_gid_eq_euid_egid", noSpecial},
	{"open::fifo_nonblock_wronly", noSpecial},
	{"open::socket_error", noSpecial},
	{"link::changed_ctime_success::regular", noLinks},
	{"link::remove_link::regular", noLinks},
	{"link::share_metadata::regular", noLinks},
	{"link::link_count_max", noLinks},
	{"rename::preserve_metadata::regular", noLinks},
	{"rename::to_multiply_linked::regular", noLinks},
	{"unlink::unchanged_ctime_failed::regular", noLinks},
	{"unlink::update_ctime_success::regular", noLinks},
	{"chmod::update_ctime::*", noCtime},
	{"rename::changed_ctime_success::*", noCtime},
	{"utimensat::changes_timestamps::*", noAtime},
	{"utimensat::follow_symlink", noAtime},
	{"utimensat::subsecond", noAtime},
	{"utimensat::utime_omit", noAtime},
	{"utimensat::y2038", noAtime},
	{"*truncate::extend_file_shrink_sparse", noHoles},
	{"*truncate::shrink_not_empty", noHoles},
	{"*truncate::update_ctime_success", noHoles},
	{"posix_fallocate::increase_*", noHoles},
	{"posix_fallocate::update_ctime_success", noHoles},
	{"open::interact_2gb", "writes two gigabytes behind the end: a file has no holes"},
	{"chmod::clear_isgid_bit", "set-user-id and set-group-id bits are dropped"},
	{"rename::updates_link_parent", "the link count of a directory is 1: unknown"},
}

const (
	noSpecial = "no devices, pipes and sockets"
	noLinks   = "no hard links"
	noCtime   = "ctime is the modification time"
	noAtime   = "atime is the modification time"
	noHoles   = "a file grows by writing only"
)

// pjdConfig turns on all that is of Linux, and names two users that each Debian has.
const pjdConfig = `
[features]
posix_fallocate = {}
rename_ctime = {}
utime_now = {}
utimensat = {}
[settings]
naptime = 0.01
allow_remount = true
[dummy_auth]
entries = [["nobody", "nogroup"], ["daemon", "daemon"]]
`

var pjdLine = regexp.MustCompile(`(?m)^([a-z0-9_]+(?:::[a-z0-9_]+)+) +(ok|FAILED|skipped)$`)

type pjdResult struct{ name, result, text string }

// pjdRun runs the tests whose names have the pattern in them.
func (m *mountpoint) pjdRun(ctx context.Context, pattern string, least int) (list []pjdResult) {
	m.t.Helper()
	dir := m.t.TempDir()
	config := filepath.Join(dir, "pjdfstest.toml")
	// Its "mount -o remount,ro" would go through mount.fuse3, which knows no remount.
	mount := filepath.Join(dir, "mount")
	for name, text := range map[string]string{config: pjdConfig, mount: "#!/bin/sh\nPATH=${PATH#*:} exec mount -i \"$@\"\n"} {
		if err := os.WriteFile(name, []byte(text), 0o755); err != nil { //nolint:gosec // one is a program
			m.t.Fatal(err)
		}
	}
	suite, err := filepath.Abs("../../.cache/bin/pjdfstest")
	if err != nil {
		m.t.Fatal(err)
	}
	p := start(ctx, m.t, spec{
		argv: []string{suite, "-c", config, "-p", m.dir, "-s", dir, "--", pattern},
		env:  []string{"PATH=" + dir + ":" + os.Getenv("PATH"), "NO_COLOR=1", "RUST_BACKTRACE=0"},
	})
	p.wait(ctx)
	out := p.out.String()
	found := pjdLine.FindAllStringSubmatchIndex(out, -1)
	if len(found) < least {
		m.t.Fatalf("it ran %d tests of %q:\n%s\n%s", len(found), pattern, tailOf(out), tailOf(p.err.String()))
	}
	for i, at := range found {
		end := len(out)
		if i+1 < len(found) {
			end = found[i+1][0]
		}
		list = append(list, pjdResult{out[at[2]:at[3]], out[at[4]:at[5]], strings.TrimSpace(out[at[5]:end])})
	}
	return list
}

// TestMountPjdfstest: pjdfstest, a POSIX test suite in Rust.
func TestMountPjdfstest(t *testing.T) {
	t.Parallel()
	ctx := deadline(t, 10*time.Minute)
	m := startNamenode(ctx, t).mount(ctx, "--allow-other", "--groups", "process")
	m.letIn()
	// Those that remount read-only are run by themselves: one that fails leaves its
	// file open for write, and then the kernel refuses that.
	const readOnly = "::erofs_"
	results := m.pjdRun(ctx, readOnly, 10)
	for _, r := range m.pjdRun(ctx, "", 300) {
		if !strings.Contains(r.name, readOnly) {
			results = append(results, r)
		}
	}
	used := make([]bool, len(pjdExcluded))
	for _, r := range results {
		excluded := false
		for k, e := range pjdExcluded {
			if is, err := path.Match(e.tests, r.name); err != nil {
				t.Fatal(err)
			} else if is {
				excluded, used[k] = true, true
			}
		}
		switch {
		case r.result == "ok" && excluded:
			t.Errorf("%s passes: it is excluded no more", r.name)
		case r.result != "ok" && !excluded:
			t.Errorf("%s %s: %s", r.name, r.result, r.text)
		}
	}
	docs, err := os.ReadFile("../../docs/POSIX.md")
	if err != nil {
		t.Fatal(err)
	}
	for k, e := range pjdExcluded {
		if !used[k] {
			t.Errorf("no test is %s", e.tests)
		}
		if row := fmt.Sprintf("| `%s` | %s |\n", e.tests, e.why); !strings.Contains(string(docs), row) {
			t.Errorf("docs/POSIX.md lacks the row %s", row)
		}
	}
}
