package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/test/env/s3env"
	"github.com/leasefs/leasefs/test/env/spawn"
)

// prometheus is a Prometheus that reads the metrics of namenodes.
type prometheus struct {
	t    *testing.T
	addr string
}

// startPrometheus starts one with the rules of deploy/ that scrapes these jobs, each a list of addresses.
func startPrometheus(t *testing.T, jobs map[string][]string) prometheus {
	t.Helper()
	folder := func(name string) string {
		path, err := filepath.Abs("../../" + name)
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	program := folder(".cache/bin/prometheus")
	if _, err := os.Stat(program); err != nil {
		t.Fatalf("%v: run make setup, which installs what the tests need", err)
	}
	type targets struct {
		Targets []string `json:"targets"`
	}
	type job struct {
		Name   string    `json:"job_name"`
		Static []targets `json:"static_configs"`
	}
	var scraped []job
	for name, addrs := range jobs {
		scraped = append(scraped, job{name, []targets{{addrs}}})
	}
	list, err := json.Marshal(scraped)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	config := fmt.Sprintf(`{
		"global": {"scrape_interval": "500ms", "scrape_timeout": "500ms", "evaluation_interval": "500ms"},
		"rule_files": [%q],
		"scrape_configs": %s}`, folder("deploy/prometheus-alerts.yml"), list)
	file := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(folder(".cache/bin/promtool"), "check", "config", file).CombinedOutput(); err != nil {
		t.Fatalf("promtool: %v\n%s", err, out)
	}
	p := prometheus{t, freePort(t)}
	var log bytes.Buffer
	cmd := exec.Command(program, "--config.file="+file, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+p.addr)
	cmd.Stdout, cmd.Stderr = &log, &log
	exited, err := spawn.Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-exited
		if t.Failed() {
			t.Logf("prometheus:\n%s", tailOf(log.String()))
		}
	})
	return p
}

// ask gets a page of the API into an answer.
func (p prometheus) ask(ctx context.Context, page string, answer any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.addr+"/api/v1/"+page, http.NoBody)
	if err != nil {
		return err
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	var body struct {
		Status, Error string
		Data          json.RawMessage
	}
	if err := json.NewDecoder(resp.Body).Decode(&body); err != nil {
		return err
	}
	if body.Status != "success" {
		return fmt.Errorf("%s: %s", page, body.Error)
	}
	return json.Unmarshal(body.Data, answer)
}

// series is how many series with a value an expression has now.
func (p prometheus) series(ctx context.Context, expr string) (int, error) {
	var answer struct{ Result []json.RawMessage }
	err := p.ask(ctx, "query?query="+url.QueryEscape(expr), &answer)
	none := func(one json.RawMessage) bool { return bytes.Contains(one, []byte(`"NaN"`)) } // a quantile of nothing
	return len(slices.DeleteFunc(answer.Result, none)), err
}

// panel is what the test reads of a panel of the dashboard.
type panel struct {
	Title, Type string
	Targets     []struct{ Expr string }
}

// pagesOf is where namenodes serve their metrics.
func pagesOf(namenodes ...*namenode) (addrs []string) {
	for _, n := range namenodes {
		addrs = append(addrs, n.http)
	}
	return addrs
}

// dashboard returns the panels of deploy/grafana-dashboard.json.
func dashboard(t *testing.T) (panels []panel) {
	t.Helper()
	raw, err := os.ReadFile("../../deploy/grafana-dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var all struct{ Panels []panel }
	if err := json.Unmarshal(raw, &all); err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(all.Panels, func(p panel) bool { return p.Type == "row" })
}

// haMetrics: a real Prometheus takes the rules, has data for each query of the dashboard,
// and sees an alarm coming when the standby is gone.
func haMetrics(ctx context.Context, t *testing.T, e *ensemble, _ *s3env.Server) {
	e.start(ctx)
	var addrs []string
	for _, n := range e.all {
		addrs = append(addrs, n.listen)
	}
	reader, err := client.New(ctx, client.Config{Namenodes: addrs, Cache: true}) // for whom changes have to wait
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = reader.Close() })
	alone := startNamenode(ctx, t) // which has its blocks in a folder, and so what can be refused there
	webhdfs, pages := freePort(t), freePort(t)
	gateway := alone.begin(ctx, nil, "gateway", "--webhdfs", webhdfs, "--hdfs", freePort(t), "--data", freePort(t), "--pages", pages)
	gateway.prints(ctx, gateway.out, "ready", func(s string) bool { return strings.HasSuffix(s, "\n") })
	p := startPrometheus(t, map[string][]string{"leasefs": pagesOf(e.all...), "alone": pagesOf(alone), "leasefs-gateway": {pages}})
	// ask is a query without variables. Only a folder of blocks has what is refused there.
	ask := func(expr string) string {
		job := "leasefs"
		if strings.Contains(expr, "leasefs_blocks_rejected_total") {
			job = "alone"
		}
		return strings.NewReplacer("$job", job, "$__rate_interval", "20s").Replace(expr)
	}
	missing := map[string]bool{} // queries that have had no data yet
	for _, panel := range dashboard(t) {
		if len(panel.Targets) == 0 {
			t.Errorf("the panel %s has no query", panel.Title)
		}
		for _, target := range panel.Targets {
			missing[target.Expr] = true
		}
	}
	if len(missing) < 75 {
		t.Fatalf("the dashboard has %d queries", len(missing))
	}
	hadoop := func(path string) {
		resp, err := http.Get("http://" + webhdfs + "/webhdfs/v1" + path + "?op=GETFILESTATUS&user.name=root")
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
	}
	defer func() {
		if len(missing) > 0 {
			t.Logf("no data for\n%s", strings.Join(slices.Sorted(maps.Keys(missing)), "\n"))
		}
	}()
	work := 0
	eventually(ctx, t, "each query has data", func() bool {
		work++
		path := fmt.Sprintf("/d/%d", work)
		e.write(ctx, strings.Repeat("x", 1<<20), "create", "-p", path) // so that rates have something to show
		w := e.begin(ctx, nil, "append", "--flush", "line", "--ack", path)
		w.feed("a line\n")
		w.acksUpTo(ctx, 1<<20+7) // by a flush: the close that comes with the end of the input would make it durable, too
		w.eof()
		w.ends(ctx, 0)
		e.run(ctx, "cat", path)
		if _, err := reader.Stat(ctx, path); err != nil {
			t.Fatal(err)
		}
		e.run(ctx, "chmod", "600", path)
		e.fails(ctx, 3, "", "cat", "/nothing")
		hadoop("/")
		hadoop("/nothing")
		if work == 1 {
			e.run(ctx, "admin", "checkpoint")
		}
		for expr := range missing {
			if n, err := p.series(ctx, ask(expr)); err != nil {
				t.Logf("%s: %v", expr, err)
			} else if n > 0 {
				delete(missing, expr)
			}
		}
		return len(missing) == 0
	})

	for _, n := range e.all {
		documented(t, n.page(ctx, "metrics"))
	}
	standby := e.all[0]
	if standby == e.active(ctx) {
		standby = e.all[1]
	}
	standby.kill()
	type rule struct{ Name, Health, LastError, State string }
	var rules struct{ Groups []struct{ Rules []rule } }
	eventually(ctx, t, "its absence is an alarm to be", func() bool {
		err := p.ask(ctx, "rules", &rules)
		return err == nil && slices.ContainsFunc(rules.Groups[0].Rules, func(r rule) bool { return r.Name == "LeasefsNamenodeDown" && r.State == "pending" })
	})
	for _, r := range rules.Groups[0].Rules {
		if r.Health != "ok" {
			t.Errorf("the rule %s is %s: %s", r.Name, r.Health, r.LastError)
		}
		if r.State == "firing" {
			t.Errorf("%s fires", r.Name)
		}
	}
}
