package screen

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/leasefs/leasefs/cmd/leasefs/runner"
	"github.com/leasefs/leasefs/internal/fserror"
)

func TestQuoteName(t *testing.T) {
	for in, want := range map[string]string{
		"plain": "plain", "with space": "with space", "grün": "grün", "a\nb": `"a\nb"`, "\x1b[31m": `"\x1b[31m"`, "bad\xff": `"bad\xff"`,
	} {
		if got := QuoteName(in); got != want {
			t.Errorf("%q: %s, want %s", in, got, want)
		}
	}
	if got := OneLine("a\nb\x1b[0m\tc"); got != `a\nb\x1b[0m\tc` {
		t.Errorf("oneLine: %s", got)
	}
}

func TestSize(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 1023: "1023", 1024: "1.0K", 1536: "1.5K", 10 << 20: "10M", 3 << 40: "3.0T"} {
		if got := Size(n, true); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
	if got := Size(1536, false); got != "1536" {
		t.Error(got)
	}
}

func TestModeString(t *testing.T) {
	for mode, want := range map[fs.FileMode]string{
		0o644: "-rw-r--r--", fs.ModeDir | 0o755: "drwxr-xr-x", fs.ModeSymlink | 0o777: "lrwxrwxrwx",
		fs.ModeDir | fs.ModeSticky | 0o777: "drwxrwxrwt", fs.ModeDir | fs.ModeSticky | 0o770: "drwxrwx--T",
	} {
		if got := ModeString(mode); got != want {
			t.Errorf("%v: %s, want %s", mode, got, want)
		}
	}
}

func TestErrorLineAndJSON(t *testing.T) {
	held := &fserror.Error{
		Op: "append", Path: "/logs/a", Kind: fserror.Held, TakeableIn: 48 * time.Second,
		Holder: &fserror.Holder{Client: "ingest-3", Host: "b", PID: 812, Since: 250 * time.Second, Idle: 12 * time.Second},
	}
	dir := t.TempDir()
	shown := func(asJSON bool) string {
		f, err := os.Create(filepath.Join(dir, "err"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		p := New(os.Stdout, f)
		p.JSON = asJSON
		if code := p.Report(held, nil); code != fserror.ExitHeld {
			t.Errorf("exit code %d", code)
		}
		raw, _ := os.ReadFile(f.Name())
		return string(raw)
	}
	want := "leasefs: append /logs/a: held by ingest-3 (host b, pid 812) for 4m10s, idle 12s; can be taken in 48s (leasefs lease recover --force /logs/a takes it now)\n"
	if got := shown(false); got != want {
		t.Errorf("%q\nwant %q", got, want)
	}
	var j map[string]map[string]any
	if err := json.Unmarshal([]byte(shown(true)), &j); err != nil {
		t.Fatal(err)
	}
	e := j["error"]
	if e["kind"] != "HELD" || e["path"] != "/logs/a" || e["holder"] != "ingest-3" || e["idle_ms"] != 12000.0 || e["takeable_in_ms"] != 48000.0 || e["retry_after_ms"] != nil {
		t.Errorf("%v", j)
	}
}

func TestReportOfAnInterrupt(t *testing.T) {
	p := New(os.Stdout, os.Stderr)
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	p.Stderr = null
	for _, tc := range []struct {
		err, cause error
		want       int
	}{
		{nil, runner.Interrupted{Signal: 2}, 0},
		{runner.Interrupted{Signal: 2}, runner.Interrupted{Signal: 2}, 130},
		{stoppedError{"x"}, runner.Interrupted{Signal: 15}, 143},
		{fserror.New(fserror.Canceled, "", "", "x"), runner.Interrupted{Signal: 15}, 143},
		{fserror.New(fserror.LeaseLost, "", "", "x"), runner.Interrupted{Signal: 2}, 7},
		{fserror.New(fserror.Canceled, "", "", "x"), nil, 1},
		{errors.New("x"), nil, 1},
		{reportedError{fserror.New(fserror.NotFound, "", "", "x")}, nil, 3},
		{fserror.New(fserror.Damaged, "", "", "x"), nil, 10},
	} {
		if got := p.Report(tc.err, tc.cause); got != tc.want {
			t.Errorf("%v, %v: %d, want %d", tc.err, tc.cause, got, tc.want)
		}
	}
}

// counted counts what reaches it.
type counted struct{ n int }

func (c *counted) Write(p []byte) (int, error) {
	c.n += len(p)
	return len(p), nil
}

// A long table is written as it comes.
func TestTableIsNotHeld(t *testing.T) {
	var sink counted
	p := &Printer{Out: bufio.NewWriter(&sink)}
	w := p.Table()
	for i := range 10*tableRows + 5 {
		fmt.Fprintf(w, "%d", i) // a row in parts, as ls -l writes it
		fmt.Fprintf(w, "\t%d\n", i)
		if i%tableRows == tableRows-1 && sink.n+p.Out.Buffered() < 5*i {
			t.Fatalf("%d rows: %d bytes were written", i+1, sink.n+p.Out.Buffered())
		}
	}
	before := sink.n + p.Out.Buffered()
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	if sink.n+p.Out.Buffered() == before {
		t.Error("the last rows were never held")
	}
	failing := &Printer{Out: bufio.NewWriterSize(brokenWriter{}, 16)}
	w = failing.Table()
	for range 2 * tableRows {
		fmt.Fprintln(w, "a\tb")
	}
	if err := w.Flush(); err == nil {
		t.Error("a failed write was not told")
	}
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }
