package main

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/leasefs/leasefs/cmd/leasefs/argv"
	"github.com/leasefs/leasefs/cmd/leasefs/screen"
	"github.com/leasefs/leasefs/internal/bench"
)

func benchCommand(p *program) *cli.Command {
	return &cli.Command{
		Name:      "bench",
		Usage:     "measure a running namenode",
		UsageText: "leasefs bench [--run LIST] [options]\n\nExample:\n  leasefs bench --run create,stat,flush --data-dir /var/lib/leasefs",
		Description: "Runs workloads in a new directory, prints a table, and removes what it made, also after\n" +
			"Ctrl-C. Workloads, in the order of their runs:\n  " + workloadList() + ".\n" +
			"health is bare gRPC to the same server, the ceiling of what one call an operation can reach;\n" +
			"fdatasync is what the disk alone takes, beside flush. With --folder the workloads are\n  " + strings.Join(bench.FolderNames(), ", ") + ":\n" +
			"1 KiB files by 1 and 16 processes, fsynced appends, a large file; then one appends while another\n" +
			"looks every 5 ms: how long until it sees what was fsynced, and how often it saw what was old.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "run", Usage: "only the workloads in `LIST`, with commas between", DefaultText: "all"},
			&cli.IntFlag{Name: "workers", Usage: "`N` calls under way at once", Value: 32},
			&cli.IntFlag{Name: "n", Usage: "`N` operations of each namespace workload; the others are scaled from it", Value: 10_000},
			&cli.IntFlag{Name: "rate", Usage: "start `N` operations a second, and time each from when it was due (namespace workloads)", DefaultText: "as fast as it goes"},
			&cli.IntFlag{Name: "files", Usage: "first make `N` empty files, which are there besides", DefaultText: "0"},
			&cli.IntFlag{Name: "leases", Usage: "first have `N` leases granted, which are kept alive meanwhile, and end a minute or more afterwards", DefaultText: "0"},
			&cli.IntFlag{Name: "conns", Usage: "`N` connections", Value: 4},
			&cli.IntFlag{Name: "mb", Usage: "`N` MiB of seqwrite and seqread", Value: 1024},
			&cli.StringFlag{Name: "dir", Usage: "the `PATH` of the directory to work in; it must not exist", DefaultText: "/bench- and a random part"},
			&cli.StringFlag{Name: "data-dir", Usage: "time fdatasync in this local `DIR`, on the namenode's disk"},
			&cli.StringFlag{Name: "folder", Usage: "measure this mounted `DIR` instead, of whatever file system, and no namenode"},
			&cli.StringFlag{Name: "other", Usage: "the same folder through another mount, `DIR`, where poll looks", DefaultText: "as --folder"},
			&cli.BoolFlag{Name: "worker", Hidden: true}, // one of the processes of --folder
		},
		Action: p.action(operands{}, runBench),
	}
}

// workloadList names all workloads, some a line.
func workloadList() string {
	var lines []string
	for part := range slices.Chunk(bench.Names(), 10) {
		lines = append(lines, strings.Join(part, ", "))
	}
	return strings.Join(lines, ",\n  ")
}

func runBench(e *invocation) error {
	if e.flags.Bool("worker") {
		return bench.FolderWorker(e.stdin, e.Stdout)
	}
	for _, name := range []string{"workers", "n", "conns", "mb"} {
		if e.flags.Int(name) < 1 {
			return argv.Usagef(e.op, "--%s: at least 1 is needed", name)
		}
	}
	for _, name := range []string{"rate", "files", "leases"} {
		if e.flags.Int(name) < 0 {
			return argv.Usagef(e.op, "--%s: at least 0 is needed", name)
		}
	}
	var run []string
	if list := e.flags.String("run"); list != "" {
		run = strings.Split(list, ",")
	}
	if e.flags.String("folder") != "" {
		return runFolderBench(e, run)
	}
	cfg := bench.Config{
		Workers: e.flags.Int("workers"), N: e.flags.Int("n"), Rate: e.flags.Int("rate"), Conns: e.flags.Int("conns"), MB: e.flags.Int("mb"), DataDir: e.flags.String("data-dir"),
		Run: run, Files: e.flags.Int("files"), Leases: e.flags.Int("leases"),
	}
	var err error
	if dir := e.flags.String("dir"); dir != "" {
		if cfg.Dir, err = e.path(dir); err != nil {
			return err
		}
	}
	names, err := cfg.Chosen()
	if err != nil {
		return argv.Usagef(e.op, "--run: %v", err)
	}
	if cfg.Client, err = e.clientConfig(); err != nil {
		return err
	}
	with := map[string]any{"workers": cfg.Workers, "rate": screen.OrNull(cfg.Rate), "files": cfg.Files, "leases": cfg.Leases}
	return e.benchRows(len(names), with, func(step func(string, int), emit func(bench.Row) error) error {
		cfg.Step = step
		return bench.Run(e.ctx, cfg, emit)
	})
}

// runFolderBench measures a mounted folder.
func runFolderBench(e *invocation, run []string) error {
	cfg := bench.FolderConfig{Folder: e.flags.String("folder"), Other: e.flags.String("other"), Run: run}
	if e.flags.IsSet("n") {
		cfg.N = e.flags.Int("n")
	}
	if e.flags.IsSet("mb") {
		cfg.MB = e.flags.Int("mb")
	}
	names, err := cfg.Chosen()
	if err != nil {
		return argv.Usagef(e.op, "--run: %v", err)
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cfg.Worker = []string{self, "bench", "--worker"}
	return e.benchRows(len(names), nil, func(step func(string, int), emit func(bench.Row) error) error {
		cfg.Step = step
		return bench.RunFolder(e.ctx, cfg, emit)
	})
}

// benchRows runs so many workloads and prints what they hand out: what was
// measured before an error or Ctrl-C, too. In JSON a row also has with.
func (e *invocation) benchRows(n int, with map[string]any, run func(step func(string, int), emit func(bench.Row) error) error) error {
	bar := e.NewSteps(n)
	var rows []bench.Row
	err := run(bar.Step, func(r bench.Row) error {
		if !e.JSON {
			rows = append(rows, r)
			return nil
		}
		row := benchJSON(r)
		maps.Copy(row, with)
		if err := e.PrintJSON(row); err != nil {
			return err
		}
		return e.Flush()
	})
	bar.Finish()
	if len(rows) > 0 {
		if terr := benchTable(&e.Printer, rows); err == nil {
			err = terr
		}
	}
	return err
}

func benchJSON(r bench.Row) map[string]any {
	return map[string]any{
		"name": r.Name, "ops": r.Ops, "seconds": r.Seconds, "ops_per_s": r.Rate(), "bytes": screen.OrNull(r.Bytes),
		"p50_ms": screen.OrNull(float64(r.P50) / 1e6), "p99_ms": screen.OrNull(float64(r.P99) / 1e6), "note": screen.OrNull(r.Note),
	}
}

func benchTable(p *screen.Printer, rows []bench.Row) error {
	w := p.Table()
	fmt.Fprintln(w, "WORKLOAD\tOPS\tSECONDS\tOPS/S\tP50\tP99\t")
	for _, r := range rows {
		fmt.Fprintf(w, "%s\t%d\t%.2f\t%.0f\t%s\t%s\t%s\n", r.Name, r.Ops, r.Seconds, r.Rate(), benchTime(r.P50), benchTime(r.P99), r.Note)
	}
	return w.Flush()
}

func benchTime(d time.Duration) string {
	if d == 0 {
		return "-"
	}
	return fmt.Sprintf("%.3f ms", float64(d)/1e6)
}
