package experiments

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/leasefs/leasefs/test/experiments/report"
)

var (
	out     = flag.String("out", "", "folder for the results; empty: they are only shown")
	whole   = flag.Bool("whole", false, "whole sizes; else small ones, which show that all works and measure little")
	leasefs = flag.String("leasefs", "", "the program; empty: it is built")
	page    = flag.String("page", "", "the page to put the results in -out into")
	etcd    = flag.String("etcd", "", "etcd's program; empty: experiments are without etcd")
)

// experiment is one of the page. It fills in the tables and charts of its result.
type experiment struct {
	id, title string
	run       func(t *testing.T, r *report.Result)
}

// TestExperiments runs the experiments, one after the other: others' work would disturb.
func TestExperiments(t *testing.T) {
	for _, e := range []experiment{
		{"A", "The term of a cache lease", cacheTerms},
		{"B", "What a change recalls", recalled},
		{"C", "Recall, or the end of the term", recallOrTerm},
		{"D", "How lease managers grew", managers},
		{"E", "How long a dead lease lives over failovers", deadLeases},
		{"F", "Live holders lost in a failover", lostInFailovers},
		{"G", "The soft limit, pauses and jitter", softLimits},
		{"H", "Clock rates and the margin", clockRates},
		{"I", "A writer's successor", handOvers},
	} {
		t.Run(e.id, func(t *testing.T) {
			r := &report.Result{ID: e.id, Title: e.title, Began: time.Now(), Where: where(), Quick: !*whole}
			e.run(t, r)
			r.Took = time.Since(r.Began).Seconds()
			if t.Failed() {
				return
			}
			t.Logf("%s\n%s", e.title, r.Markdown("."))
			if *out != "" {
				must(t, r.Save(*out))
			}
		})
	}
}

// TestPage puts results into a page, if it is told which; else the page of the repository
// has to be what its results make.
func TestPage(t *testing.T) {
	if *page != "" {
		text, err := report.Draw(*out, *page)
		must(t, err)
		must(t, os.WriteFile(*page, []byte(text), 0o640))
		return
	}
	docs := filepath.Join("..", "..", "docs")
	dir, file := filepath.Join(t.TempDir(), "experiments"), filepath.Join(docs, "EXPERIMENTS.md")
	must(t, os.CopyFS(dir, os.DirFS(filepath.Join(docs, "experiments"))))
	is, err := os.ReadFile(file)
	must(t, err)
	copied := filepath.Join(filepath.Dir(dir), "EXPERIMENTS.md")
	must(t, os.WriteFile(copied, is, 0o640))
	text, err := report.Draw(dir, copied)
	must(t, err)
	if text != string(is) {
		t.Errorf("%s has other tables than its results in %s: scripts/experiments --draw makes them again", file, docs)
	}
}

// where is the machine, for people. It names no machine.
func where() string {
	kernel, _ := exec.Command("uname", "-sm").Output()
	version, _ := exec.Command("git", "describe", "--tags", "--always", "--dirty").Output()
	load, _ := os.ReadFile("/proc/loadavg")
	return fmt.Sprintf("%d processors, load %s · %s · leasefs %s", runtime.NumCPU(), strings.SplitN(string(load), " ", 2)[0],
		strings.TrimSpace(string(kernel)), strings.TrimSpace(string(version)))
}

// sizes is what a quick run, or else a whole one, takes.
func sizes[T any](small, full T) T {
	if *whole {
		return full
	}
	return small
}
