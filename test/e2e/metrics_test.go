package e2e_test

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// metricsDoc is docs/METRICS.md.
func metricsDoc(t *testing.T) string {
	t.Helper()
	doc, err := os.ReadFile("../../docs/METRICS.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(doc)
}

// documented fails unless docs/METRICS.md has all metrics of a page, with type and meaning.
func documented(t *testing.T, page string) {
	t.Helper()
	doc := metricsDoc(t)
	types := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^# TYPE (leasefs_\w+) (\w+)$`).FindAllStringSubmatch(page, -1) {
		types[m[1]] = m[2]
	}
	if len(types) < 4 {
		t.Fatalf("a page with %d metrics:\n%s", len(types), tailOf(page))
	}
	for _, m := range regexp.MustCompile(`(?m)^# HELP (leasefs_\w+) (.*)$`).FindAllStringSubmatch(page, -1) {
		row := regexp.MustCompile(fmt.Sprintf("(?m)^\\| `%s` \\| %s \\| .* \\| %s \\|$", m[1], types[m[1]], regexp.QuoteMeta(m[2])))
		if !row.MatchString(doc) {
			t.Errorf("docs/METRICS.md has no row like\n| `%s` | %s |  | %s |", m[1], types[m[1]], m[2])
		}
	}
}

// TestMetricsAreDocumented: docs/METRICS.md has the metrics of a namenode alone and of a
// gateway (haMetrics looks at those of several), and none that there is not. What it says to
// look at first has figures once something was done.
func TestMetricsAreDocumented(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	n := startNamenode(ctx, t)
	n.write(ctx, strings.Repeat("x", 3<<20), "create", "/f")
	n.run(ctx, "cat", "/f")
	n.fails(ctx, 3, "", "cat", "/nothing")
	page := n.page(ctx, "metrics")
	documented(t, page)
	names(t, page, `leasefs_store_seconds_count{op="put"} `, `leasefs_store_seconds_count{op="get"} `, `leasefs_call_errors_total{kind="NOT_FOUND",method="open"} 1`)
	for _, counted := range []string{"leasefs_journal_write_seconds_count", "leasefs_journal_write_seconds_sum", "leasefs_journal_written_bytes_total", "leasefs_blocks_put_bytes_total"} {
		if regexp.MustCompile(`(?m)^`+counted+` 0$`).MatchString(page) || !strings.Contains(page, counted+" ") {
			t.Errorf("nothing is counted by %s", counted)
		}
	}

	g := n.begin(ctx, nil, "gateway", "--webhdfs", "127.0.0.1:0", "--hdfs", "127.0.0.1:0", "--data", "127.0.0.1:0", "--pages", "127.0.0.1:0")
	g.prints(ctx, g.out, "ready", func(s string) bool { return strings.HasSuffix(s, "\n") })
	fields := strings.Fields(g.out.String())
	documented(t, n.pageAt(ctx, fields[len(fields)-1], "metrics"))

	var source strings.Builder
	for _, dir := range []string{"../../namenode", "../../gateway"} {
		if err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			code, err := os.ReadFile(path) //nolint:gosec // of this repository
			source.Write(code)
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	for _, m := range regexp.MustCompile("(?m)^\\| `leasefs_(\\w+)` \\|").FindAllStringSubmatch(metricsDoc(t), -1) {
		short := strings.TrimPrefix(m[1], "gateway_")
		if !strings.Contains(source.String(), `"leasefs_`+m[1]+`"`) && !strings.Contains(source.String(), `"`+short+`"`) {
			t.Errorf("docs/METRICS.md tells of leasefs_%s, which there is not", m[1])
		}
	}
}
