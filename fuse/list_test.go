package fuse_test

import (
	"bufio"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/fuse"
	"github.com/leasefs/leasefs/internal/lowlevel"
	"github.com/leasefs/leasefs/test/env"
)

// calls is how many calls the namenode has answered, by method.
func (r *rig) calls() map[string]int {
	r.t.Helper()
	n := make(map[string]int)
	for s := bufio.NewScanner(strings.NewReader(r.Metrics(r.t))); s.Scan(); {
		method, ok := strings.CutPrefix(s.Text(), `leasefs_call_seconds_count{method="`)
		if !ok {
			continue
		}
		method, count, _ := strings.Cut(method, `"} `)
		v, err := strconv.ParseFloat(count, 64)
		must(r.t, err)
		n[method] = int(v)
	}
	return n
}

// TestListingCostsNoCallPerFile: ls -lR asks for directories, not for each file,
// and what it got is as good as if it had: a change elsewhere is seen.
func TestListingCostsNoCallPerFile(t *testing.T) {
	r := newRig(t)
	other := r.Client(t)
	const dirs, files = 10, 100
	var all []client.FileData
	for d := range dirs {
		must(t, other.MkdirAll(t.Context(), fmt.Sprintf("/top/d%d", d), 0o755))
		for f := range files {
			all = append(all, client.FileData{Path: fmt.Sprintf("/top/d%d/f%03d", d, f), Data: []byte("text")})
		}
	}
	errs, err := other.WriteFiles(t.Context(), all)
	must(t, err)
	for _, err := range errs {
		must(t, err)
	}
	m := r.mount(fuse.Options{})
	env.Eventually(t, "a term of the cache", func() bool { return lowlevel.Of(m.FS()).CacheRemaining() > 0 })
	before := r.calls()
	out, err := exec.CommandContext(t.Context(), "ls", "-lR", m.path("top")).Output() //nolint:gosec // this test's own folder
	must(t, err)
	if n := strings.Count(string(out), " f0"); n != dirs*files {
		t.Fatalf("ls shows %d files", n)
	}
	sum := 0
	after := r.calls()
	for method, n := range after {
		sum += n - before[method]
	}
	t.Logf("%d files in %d directories: %d calls", dirs*files, dirs, sum)
	if limit := 6 * (dirs + 1); sum > limit {
		t.Errorf("%d calls, more than %d: before %v, after %v", sum, limit, before, after)
	}
	m.reads("top/d1/f001", "text")
	must(t, other.Chmod(t.Context(), "/top/d1/f001", 0o600))
	must(t, other.Remove(t.Context(), "/top/d1/f002"))
	out, err = exec.CommandContext(t.Context(), "ls", "-l", m.path("top/d1")).Output() //nolint:gosec // likewise
	must(t, err)
	if strings.Contains(string(out), "f002") || !strings.Contains(string(out), "-rw------- 1") {
		t.Fatalf("%s", out)
	}
}
