package bench

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/leasefs/leasefs/internal/fserror"
)

// asWorker makes the test's own program a worker.
const asWorker = "LEASEFS_BENCH_WORKER"

func TestMain(m *testing.M) {
	if os.Getenv(asWorker) != "" {
		if err := FolderWorker(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// TestRunFolder measures a folder of the disk.
func TestRunFolder(t *testing.T) {
	t.Setenv(asWorker, "1")
	dir := t.TempDir()
	got := map[string]Row{}
	var steps []string
	cfg := FolderConfig{
		Folder: dir, N: 32, MB: 2, Worker: []string{os.Args[0]},
		Step: func(name string, _ int) { steps = append(steps, name) },
	}
	if err := RunFolder(t.Context(), cfg, func(r Row) error { got[r.Name] = r; return nil }); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(steps, FolderNames()) {
		t.Fatal(steps)
	}
	for name, want := range map[string]Row{
		"files1": {Ops: 32, Bytes: 32 << 10}, "files16": {Ops: 32, Bytes: 32 << 10}, "append": {Ops: 32, Bytes: 3200},
		"write": {Ops: 2, Bytes: 2 << 20}, "read": {Ops: 2, Bytes: 2 << 20}, "visible": {Ops: 10}, "stale": {},
	} {
		if r := got[name]; r.Ops != want.Ops || r.Bytes != want.Bytes || r.Seconds <= 0 || r.Note == "" {
			t.Errorf("%s: %+v", name, r)
		}
	}
	if got["poll"].Ops == 0 {
		t.Errorf("%+v", got["poll"])
	}
	if left, err := filepath.Glob(dir + "/*"); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestRunFolderErrors(t *testing.T) {
	none := func(Row) error { return nil }
	if err := RunFolder(t.Context(), FolderConfig{Folder: t.TempDir(), Run: []string{"no"}}, none); !errors.Is(err, fserror.InvalidArgument) {
		t.Errorf("an unknown workload: %v", err)
	}
	if err := RunFolder(t.Context(), FolderConfig{Folder: "/nowhere"}, none); !errors.Is(err, fserror.InvalidArgument) {
		t.Errorf("no folder: %v", err)
	}
	// A worker that ends at once, and one that is not there.
	for _, argv := range [][]string{{"true"}, {"/nowhere/program"}} {
		dir := t.TempDir()
		if err := RunFolder(t.Context(), FolderConfig{Folder: dir, N: 1, Run: []string{"files1"}, Worker: argv}, none); err == nil {
			t.Errorf("%v: no error", argv)
		}
		if left, err := filepath.Glob(dir + "/*"); err != nil || len(left) != 0 {
			t.Errorf("left behind: %v, %v", left, err)
		}
	}
}
