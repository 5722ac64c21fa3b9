package audit

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
	"github.com/leasefs/leasefs/test/env/textlog"
)

func start(t testing.TB, cfg Config) *Log {
	t.Helper()
	cfg.Clock, cfg.Log = clock.System{}, slog.New(slog.DiscardHandler)
	l, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}

// lines parses what was written.
func lines(t testing.TB, text []byte) (out []map[string]any) {
	t.Helper()
	for line := range bytes.Lines(text) {
		var m map[string]any
		if err := json.Unmarshal(line, &m); err != nil || !bytes.HasSuffix(line, []byte("\n")) {
			t.Fatalf("%q is no line of JSON: %v", line, err)
		}
		out = append(out, m)
	}
	return out
}

func read(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(name) //nolint:gosec // of the test
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// until waits for something that other goroutines bring about.
func until(t testing.TB, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); {
		if time.Now().After(end) {
			t.Fatalf("%s has not come about in a minute", what)
		}
		select {
		case <-t.Context().Done():
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func TestALine(t *testing.T) {
	at := time.Date(2026, 2, 3, 4, 5, 6, 7000, time.UTC)
	denied := fserror.New(fserror.Permission, "", "", "may not write").Because(fserror.ReasonProof)
	session := []byte("0123456789abcdef")
	name := fmt.Sprintf("%x", pb.SessionName(session))
	ask := func(method string, req, resp any) *Line {
		l := &Line{Time: at, Op: "op", Took: 1500 * time.Nanosecond}
		l.Asked(method, req)
		if resp != nil {
			l.Answered(resp)
		}
		return l
	}
	caller := &pb.Caller{User: "ann", Client: "c", Session: session}
	const head = `{"time":"2026-02-03T04:05:06.000007Z"`
	for _, c := range []struct {
		line *Line
		want string
	}{
		{
			ask("Mkdir", &pb.MkdirRequest{Call: &pb.CallId{Session: session, Seq: 7}, Caller: caller, At: pb.At("/a")}, &pb.MutateResponse{Txid: 9, Attr: &pb.Attr{Inode: 3}}),
			`,"user":"ann","client":"c","session":"` + name + `","call":7,"op":"op","path":"/a","inode":3,"txid":9,"result":"ok","us":1}`,
		},
		{
			ask("Rename", &pb.RenameRequest{Caller: caller, From: &pb.Ref{Base: 5, Path: "x"}, To: pb.At("/b\n\"\u202e\x80é😀")}, nil),
			`,"user":"ann","client":"c","session":"` + name + `","op":"op","paths":[{"base":5,"path":"x"},{"path":"/b\u000a\"\u202e\ufffdé😀"}],"result":"ok","us":1}`,
		},
		{&Line{Time: at, Op: "op", User: "bob", RealUser: "ann", Address: "h:1", Err: denied}, `,"user":"bob","real_user":"ann","address":"h:1","op":"op","result":"denied","kind":"PERMISSION","reason":"proof","why":"may not write","us":0}`},
		{&Line{Time: at, Op: "op", Err: errors.New("broken"), Took: time.Second}, `,"op":"op","result":"failed","kind":"INTERNAL","why":"broken","us":1000000}`},
		{ask("GrantLease", &pb.GrantLeaseRequest{Caller: &pb.Caller{User: "u"}}, &pb.GrantLeaseResponse{Id: 255, Txid: 4}), `,"user":"u","op":"op","lease":"ff","txid":4,"result":"ok","us":1}`},
		{ask("ChangeDelegationToken", &pb.ChangeDelegationTokenRequest{Caller: &pb.Caller{User: "u"}, Id: 12}, &pb.DelegationTokenResponse{Id: 12, Txid: 4}), `,"user":"u","op":"op","delegation_token":12,"txid":4,"result":"ok","us":1}`},
		{ask("AppendTail", &pb.AppendTailRequest{Writer: &pb.WriterId{Inode: 2, Epoch: 8, Session: session, Token: []byte("secret of writer")}, Data: []byte("content")}, nil), `,"session":"` + name + `","op":"op","inode":2,"epoch":8,"result":"ok","us":1}`},
		{ask("Stat", &pb.StatRequest{Caller: &pb.Caller{User: "u"}, At: pb.At("/f")}, &pb.StatResponse{Txid: 77}), `,"user":"u","op":"op","path":"/f","result":"ok","us":1}`},
	} {
		got := string(c.line.append(nil))
		if got != head+c.want+"\n" {
			t.Errorf("%s, want\n%s", got, head+c.want)
		}
		lines(t, []byte(got))
	}
	many := &pb.TransactRequest{Caller: &pb.Caller{User: "u"}}
	for i := range 64 {
		many.Ops = append(many.Ops, &pb.TxOp{Path: fmt.Sprint("/", i), Op: &pb.TxOp_Rename{Rename: &pb.TxRename{To: fmt.Sprint("/to", i)}}})
	}
	if got := lines(t, ask("Transact", many, nil).append(nil))[0]["paths"].([]any); len(got) != 128 {
		t.Errorf("a transaction of 64 renames names %d paths", len(got))
	}
}

func TestStrings(t *testing.T) {
	for _, s := range []string{"", "a", "\x00\x1f\x7f", "a\\b\"c", "é", strings.Repeat("é", 20000), "x" + strings.Repeat("é", 20000), "\xff\xfe", "\ufffd", "😀", "\U000e0001", "a\u2028b"} {
		raw := appendString(nil, s, maxText)
		var back string
		if err := json.Unmarshal(raw, &back); err != nil {
			t.Errorf("%.20q: %v", s, err)
		}
		want := strings.ToValidUTF8(s, "\ufffd")
		if s == "\xff\xfe" {
			want = "\ufffd\ufffd"
		}
		if len(s) > maxText {
			if len(back) > maxText+len("…") || !strings.HasPrefix(want, strings.TrimSuffix(back, "…")) {
				t.Errorf("%.20q is cut to %d bytes", s, len(back))
			}
		} else if back != want {
			t.Errorf("%q is %q", s, back)
		}
	}
}

// TestLinesAreBounded: no request is so large that its line does not fit, and what proves
// nothing has a short one.
func TestLinesAreBounded(t *testing.T) {
	long := strings.Repeat("\x01", 4<<20)
	few, many := new(pb.TransactRequest), new(pb.TransactRequest)
	for range 64 {
		few.Ops = append(few.Ops, &pb.TxOp{Path: long[:32<<10], Op: &pb.TxOp_Rename{Rename: &pb.TxRename{To: long[:32<<10]}}})
	}
	few.Ops = append(few.Ops, &pb.TxOp{Path: "/the/last"})
	for range 1 << 17 {
		many.Ops = append(many.Ops, &pb.TxOp{Path: "x"})
	}
	for _, c := range []struct {
		method string
		req    any
		paths  int
		more   float64
	}{
		{"Transact", few, 129, 0},
		{"Transact", many, maxPaths, 1<<17 - maxPaths},
		{"Rename", &pb.RenameRequest{Caller: &pb.Caller{User: long, Client: long, RealUser: long}, From: pb.At(long), To: pb.At(long)}, 2, 0},
	} {
		for _, unproven := range []bool{false, true} {
			most, paths := maxPending/3, c.paths
			if unproven {
				most, paths = 16<<10, 2
			}
			line := &Line{Op: "op", Unproven: unproven, Err: errors.New(long)}
			line.Asked(c.method, c.req)
			got := line.append(nil)
			m := lines(t, got)[0]
			all, more := m["paths"].([]any), 0.0
			if m["more_paths"] != nil {
				more = m["more_paths"].(float64)
			}
			if len(got) > most || len(all) != paths || int(more) != c.paths+int(c.more)-paths {
				t.Errorf("%s, unproven %t: a line of %d bytes with %d paths and %v more", c.method, unproven, len(got), len(all), more)
			}
			if c.paths == 129 && !unproven && all[128].(map[string]any)["path"] != "/the/last" {
				t.Errorf("the last path is %v", all[128])
			}
		}
	}
}

func TestWhichAreKept(t *testing.T) {
	no := fserror.New(fserror.Permission, "", "", "no")
	for _, c := range []struct {
		cfg  Config
		want string
	}{
		{Config{}, "read write denied"},
		{Config{Only: Changes}, "write denied"},
		{Config{Only: Denied}, "denied"},
		{Config{Skip: []string{"read", "denied"}}, "write denied"},
	} {
		c.cfg.File = filepath.Join(t.TempDir(), "a")
		l := start(t, c.cfg)
		l.Tell(&Line{Op: "read", Reads: true})
		l.Tell(&Line{Op: "write"})
		l.Tell(&Line{Op: "denied", Reads: true, Err: no})
		l.Close()
		var got []string
		for _, m := range lines(t, read(t, c.cfg.File)) {
			got = append(got, m["op"].(string))
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%+v keeps %v, want %s", c.cfg, got, c.want)
		}
		if info, err := os.Stat(c.cfg.File); err != nil || info.Mode() != 0o600 {
			t.Errorf("%v, %v", info.Mode(), err)
		}
	}
}

// TestFilesAreBounded: files have their size, and no more of them are kept than asked for;
// no line is lost but with the oldest file.
func TestFilesAreBounded(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "a")
	l := start(t, Config{File: name, MaxBytes: 1 << 20, Keep: 2})
	const batches, each = 40, 1000
	for i := range batches {
		for j := range each {
			l.Tell(&Line{Op: "op", Call: uint64(i*each + j + 1), Client: strings.Repeat("x", 60)})
		}
		want := uint64((i + 1) * each)
		until(t, "the writing of a batch", func() bool { l.mu.Lock(); defer l.mu.Unlock(); return len(l.pending) == 0 && l.stats.Lines == want })
	}
	l.Close()
	names, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || !slices.Equal(names, []string{name, name + ".1", name + ".2"}) {
		t.Fatalf("%v, %v", names, err)
	}
	var all []byte
	for _, n := range []string{name + ".2", name + ".1", name} {
		part := read(t, n)
		if len(part) > 1<<20+each*200 {
			t.Errorf("%s has %d bytes", n, len(part))
		}
		all = append(all, part...)
	}
	got := lines(t, all)
	for i, m := range got {
		if want := float64(batches*each - len(got) + i + 1); m["call"] != want {
			t.Fatalf("line %d is of call %v, want %v", i, m["call"], want)
		}
	}
}

// TestMovedAway: a file that is moved away, as logrotate does, has what was written before,
// and another one begins.
func TestMovedAway(t *testing.T) {
	name := filepath.Join(t.TempDir(), "a")
	l := start(t, Config{File: name})
	l.Tell(&Line{Op: "one"})
	until(t, "the first line", func() bool { return len(read(t, name)) > 0 })
	if err := os.Rename(name, name+".old"); err != nil {
		t.Fatal(err)
	}
	n := 0
	until(t, "a new file", func() bool {
		l.Tell(&Line{Op: "two"})
		n++
		_, err := os.Stat(name)
		return err == nil
	})
	l.Close()
	got := lines(t, append(read(t, name+".old"), read(t, name)...))
	if len(got) != n+1 || got[0]["op"] != "one" {
		t.Errorf("%d lines, want %d", len(got), n+1)
	}
}

// TestNobodyElseWritesIt: two namenodes do not write one file, and what an earlier one has left
// is continued on a new line.
func TestNobodyElseWritesIt(t *testing.T) {
	name := filepath.Join(t.TempDir(), "a")
	l := start(t, Config{File: name})
	if _, err := New(Config{File: name, Clock: clock.System{}, Log: slog.Default()}); fserror.ReasonOf(err) != fserror.ReasonAudit || !strings.Contains(err.Error(), "another process") {
		t.Errorf("a second one: %v", err)
	}
	l.Close()
	if err := os.WriteFile(name, []byte(`{"cut`), 0o600); err != nil {
		t.Fatal(err)
	}
	l = start(t, Config{File: name})
	l.Tell(&Line{Op: "op"})
	l.Close()
	_, rest, _ := bytes.Cut(read(t, name), []byte("\n"))
	if got := lines(t, rest); len(got) != 1 {
		t.Errorf("%q", rest)
	}
	if _, err := New(Config{File: t.TempDir(), Clock: clock.System{}, Log: slog.Default()}); fserror.ReasonOf(err) != fserror.ReasonAudit {
		t.Errorf("a folder: %v", err)
	}
	if _, err := New(Config{File: filepath.Join(t.TempDir(), "no", "a"), Clock: clock.System{}, Log: slog.Default()}); fserror.ReasonOf(err) != fserror.ReasonAudit {
		t.Errorf("no folder: %v", err)
	}
}

// TestAReaderThatHangs: while nobody reads the pipe no caller waits, what is lost is counted,
// and told when the reader comes back; the end waits for no reader.
func TestAReaderThatHangs(t *testing.T) {
	name := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(name, 0o600); err != nil {
		t.Fatal(err)
	}
	l := start(t, Config{File: name}) // nobody reads it yet
	r, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	line := &Line{Op: "op", Client: strings.Repeat("x", 1000)}
	tellMany := func() {
		for range 3 * maxPending / 1000 {
			l.Tell(line)
		}
	}
	tellMany()
	lost := l.Stats().Lost
	if lost == 0 {
		t.Fatal("nothing is lost, so something is not bounded")
	}
	var told, ops uint64
	br := bufio.NewReader(r)
	for told == 0 {
		text, err := br.ReadBytes('\n')
		if err != nil {
			t.Fatal(err)
		}
		if n, ok := lines(t, text)[0]["lost"].(float64); ok {
			told = uint64(n)
		} else {
			ops++
		}
	}
	if total := l.Stats(); told < lost || told+ops > total.Lines || ops < 1000 {
		t.Errorf("%d told lost, %d were by then, %d are there, %+v", told, lost, ops, total)
	}
	tellMany() // and nobody reads
	began := time.Now()
	l.Close()
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("the end took %s", took)
	}
	select {
	case <-l.done:
	case <-time.After(time.Minute):
		t.Error("the writer is left behind")
	}
}

// TestAFullDisk: lines that cannot be written are kept while there is room for them, and then
// lost and counted; the log says so once.
func TestAFullDisk(t *testing.T) {
	var log textlog.Log
	l, err := New(Config{File: "/dev/full", Clock: clock.System{}, Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	l.Tell(&Line{Op: "op"})
	until(t, "the problem", func() bool { return l.Stats().Problem != "" })
	for range 100 {
		l.Tell(&Line{Op: "op"})
	}
	l.Close()
	if s := l.Stats(); s.Lost != 1 && s.Lost != 101 || !strings.Contains(s.Problem, "no space") {
		t.Errorf("%+v", s)
	}
	if text := log.String(); strings.Count(text, "cannot be written") != 1 || !strings.Contains(text, "lost=101") {
		t.Errorf("the log says %s", text)
	}
}

// TestTornLines: what a failed write has begun is continued in the same file, and its rest is
// left out of one that was opened since.
func TestTornLines(t *testing.T) {
	for _, opened := range []bool{false, true} {
		name := filepath.Join(t.TempDir(), "a")
		o := &output{name: name, most: 1 << 20, keep: 1}
		if err := o.open(); err != nil {
			t.Fatal(err)
		}
		if _, err := o.file.WriteString(`{"a":`); err != nil {
			t.Fatal(err)
		}
		o.torn = true
		if opened {
			o.close()
		}
		rest, skipped, err := o.write([]byte("1}\n{\"b\":2}\n"))
		if err != nil || len(rest) > 0 || skipped == 0 == opened {
			t.Fatalf("%q, %d, %v", rest, skipped, err)
		}
		o.close()
		want := "{\"a\":1}\n{\"b\":2}\n"
		if opened {
			want = "{\"a\":\n{\"b\":2}\n"
		}
		if got := string(read(t, name)); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestOlderFilesStay: a file that cannot be moved, as one that was mounted into a container by itself, costs
// no older ones, however often it is tried.
func TestOlderFilesStay(t *testing.T) {
	name := filepath.Join(t.TempDir(), "a")
	for _, older := range []string{"", ".1", ".2", ".3"} {
		if err := os.WriteFile(name+older, []byte("full"+older+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mount(name, name, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(name, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	o := &output{name: name, most: 8, keep: 4}
	if err := o.open(); err != nil {
		t.Fatal(err)
	}
	defer o.close()
	for range 5 {
		if _, _, err := o.write([]byte("one more\n")); !errors.Is(err, unix.EBUSY) {
			t.Fatal(err)
		}
	}
	for i, want := range []string{"", "full.1\n", "full.2\n", "full.3\n"} {
		got, err := os.ReadFile(fmt.Sprintf("%s.%d", name, i+1))
		if string(got) != want || errors.Is(err, fs.ErrNotExist) != (want == "") {
			t.Errorf("file %d has %q, %v", i+1, got, err)
		}
	}
}

// TestUnprovenCallsAreFew: whoever proves nothing cannot push others' lines out.
func TestUnprovenCallsAreFew(t *testing.T) {
	name := filepath.Join(t.TempDir(), "a")
	l := start(t, Config{File: name})
	const calls = 200_000
	for range calls {
		l.Tell(&Line{Op: "op", Unproven: true, Err: fserror.New(fserror.Permission, "", "", "no")})
	}
	l.Close()
	kept, more := 0, 0.
	for _, m := range lines(t, read(t, name)) {
		if n, ok := m["more_without_a_proof"].(float64); ok {
			more += n
		} else {
			kept++
		}
	}
	if kept < unprovenBurst || kept > calls/4 || kept+int(more) != calls {
		t.Errorf("%d lines and %v more of %d", kept, more, calls)
	}
}

func FuzzStrings(f *testing.F) {
	f.Add("a\x00é\xff")
	f.Fuzz(func(t *testing.T, s string) {
		var back string
		if err := json.Unmarshal(appendString(nil, s, maxText), &back); err != nil {
			t.Errorf("%q: %v", s, err)
		}
	})
}

// BenchmarkTell is what a line costs the call.
func BenchmarkTell(b *testing.B) {
	cfg := Config{File: filepath.Join(b.TempDir(), "a")}
	l := start(b, cfg)
	session := make([]byte, 16)
	req := &pb.CreateRequest{Call: &pb.CallId{Session: session, Seq: 7}, Caller: &pb.Caller{User: "ann", Client: "c", Session: session}, At: pb.At("/some/directory/with/a/file")}
	resp := &pb.OpenResponse{Attr: &pb.Attr{Inode: 99}}
	b.ReportAllocs()
	for b.Loop() {
		var line Line
		line.Time, line.Op, line.Address = time.Now(), "create", "10.0.0.7:33333"
		line.Asked("Create", req)
		line.Answered(resp)
		line.TxID = 12345
		l.Tell(&line)
	}
	b.StopTimer()
	b.ReportMetric(float64(l.Stats().Lost)/float64(l.Stats().Lines), "lost/op")
}

// A line of a call with a path or two takes no memory from the heap.
func TestLineStaysOnTheStack(t *testing.T) {
	session := make([]byte, 16)
	req := &pb.RenameRequest{Call: &pb.CallId{Session: session, Seq: 7}, Caller: &pb.Caller{User: "ann", Client: "c", Session: session}, From: pb.At("/a"), To: pb.At("/b")}
	resp := &pb.OpenResponse{Attr: &pb.Attr{Inode: 99}}
	buf := make([]byte, 0, 1<<10)
	if n := testing.AllocsPerRun(100, func() {
		var line Line
		line.Op = "rename"
		line.Asked("Rename", req)
		line.Answered(resp)
		buf = line.append(buf[:0])
	}); n > 0 {
		t.Errorf("a line takes %.0f allocations", n)
	}
}

// Each method is known to change nothing, or has a call or a writer by which it does, or is
// one of those named here, so that "changes" keeps neither too little nor too much.
func TestEachMethodChangesOrReads(t *testing.T) {
	changes := []string{
		"AppendTail", "AllocateBlock", "Commit", // of a writer
		"Checkpoint", "SafeMode", "Collect", "Backup", "Failover", "ResolveStore", "Upgrade", // of an operator
	}
	known := 0
	services := pb.File_leasefs_v1_leasefs_proto.Services()
	for i := range services.Len() {
		for j := range services.Get(i).Methods().Len() {
			m := services.Get(i).Methods().Get(j)
			name := string(m.Name())
			call := m.Input().Fields().ByName("call") != nil
			changes := call || slices.Contains(changes, name)
			if reads[name] {
				known++
			}
			if reads[name] == changes {
				t.Errorf("%s: reads %t, changes %t", name, reads[name], changes)
			}
		}
	}
	if known != len(reads) {
		t.Errorf("%d methods read, and %d names are listed", known, len(reads))
	}
}
