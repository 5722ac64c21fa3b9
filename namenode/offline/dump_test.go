package offline

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/journal"
	localjournal "github.com/leasefs/leasefs/internal/journal/local"
	"github.com/leasefs/leasefs/internal/vfs"
	"github.com/leasefs/leasefs/namenode/namespace"
	"github.com/leasefs/leasefs/test/env/crashfs"
)

var (
	session = namespace.SessionID{0xab}
	token   = namespace.Token{0xee, 0xdd, 0xcc}
	history = []namespace.Op{
		&namespace.OpActivate{Term: 1, NamespaceID: [16]byte{0x12, 0x34}, User: "root", Group: "wheel"},
		&namespace.OpMkdir{Parent: namespace.RootID, Names: []string{"d"}, Mode: 0o750, User: "ann", Group: "staff"},
		&namespace.OpCreate{Parent: namespace.RootID, Name: "f", Mode: 0o640, User: "ann", Group: "staff", Data: []byte("secret"), Token: token,
			Holder: namespace.Holder{User: "ann", Client: "c", Session: session, Host: "h", PID: 5}},
		&namespace.OpSymlink{Parent: namespace.RootID, Name: "l", Target: "/d", User: "ann", Group: "staff"},
	}
)

// folder writes a data folder with a journal of ops, in which extra records stand at the
// end, and returns the tree that the ops make.
func folder(t *testing.T, extra ...journal.Record) (fsys vfs.FS, tree *namespace.Tree) {
	t.Helper()
	disk := crashfs.New(1)
	j, err := localjournal.Open(localjournal.Config{FS: disk, Dir: "/data/journal", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := j.Replay(t.Context(), 0, func(journal.Record) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if err := j.BeginTerm(t.Context(), 3); err != nil {
		t.Fatal(err)
	}
	tree = namespace.New()
	for i, op := range history {
		e := namespace.Entry{TxID: uint64(i + 1), Time: 1_700_000_000_000, Op: op} //nolint:gosec // an index
		if i == 1 {
			e.Call = namespace.CallID{Session: session, Seq: 9}
		}
		typ, body := namespace.EncodeOp(nil, e.Call, op)
		if _, err := tree.Apply(e); err != nil {
			t.Fatal(err)
		}
		if err := j.Append(journal.Record{TxID: e.TxID, Time: e.Time, Type: typ, Body: body}); err != nil {
			t.Fatal(err)
		}
	}
	for _, r := range extra {
		if err := j.Append(r); err != nil {
			t.Fatal(err)
		}
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	return disk, tree
}

// lines are the objects that a dump writes, one a line.
func lines(t *testing.T, out string) (all []map[string]any) {
	t.Helper()
	for line := range strings.Lines(out) {
		var m map[string]any
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		all = append(all, m)
	}
	return all
}

// A journal is shown record by record, from either folder, and from a record on; writers'
// tokens and bytes of files are not in it.
func TestDumpJournal(t *testing.T) {
	fsys, _ := folder(t)
	for _, dir := range []string{"/data", "/data/journal"} {
		var out bytes.Buffer
		if err := DumpJournal(t.Context(), fsys, dir, 1, &out); err != nil {
			t.Fatal(err)
		}
		all := lines(t, out.String())
		if len(all) != len(history) {
			t.Fatalf("%d lines: %s", len(all), out.String())
		}
		mkdir, create := all[1], all[2]
		if mkdir["txid"] != 2.0 || mkdir["term"] != 3.0 || mkdir["op"] != "Mkdir" || mkdir["call"] != 9.0 || mkdir["time"] != "2023-11-14T22:13:20Z" ||
			mkdir["session"] != "ab000000000000000000000000000000" || strings.Contains(mkdir["segment"].(string), "/") {
			t.Errorf("%v", mkdir)
		}
		if _, ok := create["session"]; ok || create["call"] != nil {
			t.Errorf("a call that there was not: %v", create)
		}
		fields := create["fields"].(map[string]any)
		if fields["Token"] != "redacted" || fields["DataBytes"] != 6.0 || fields["Data"] != nil || fields["Closed"] != nil || fields["Holder"].(map[string]any)["client"] != "c" {
			t.Errorf("%v", fields)
		}
		if ns := all[0]["fields"].(map[string]any)["NamespaceID"]; ns != "12340000000000000000000000000000" {
			t.Errorf("the namespace is %v", ns)
		}
		for _, secret := range []string{"secret", "c2VjcmV0", "eeddcc", "7t3M", "238,221,204"} { // as text, base64, hexadecimal, numbers
			if strings.Contains(out.String(), secret) {
				t.Errorf("the dump has %q", secret)
			}
		}
	}
	var out bytes.Buffer
	if err := DumpJournal(t.Context(), fsys, "/data", 3, &out); err != nil || lines(t, out.String())[0]["txid"] != 3.0 || len(lines(t, out.String())) != 2 {
		t.Errorf("from 3 on: %v, %s", err, out.String())
	}
}

// A sound journal is found to be so; a record that cannot be decoded, a flipped bit and a
// missing folder are told, each with where it is and what to do.
func TestVerifyJournal(t *testing.T) {
	fsys, _ := folder(t)
	rep, err := VerifyJournal(t.Context(), fsys, "/data")
	if err != nil || rep.Last != uint64(len(history)) {
		t.Errorf("%+v, %v", rep, err)
	}
	check := func(fsys vfs.FS, dir string, kind fserror.Kind, texts ...string) {
		t.Helper()
		_, verr := VerifyJournal(t.Context(), fsys, dir)
		derr := DumpJournal(t.Context(), fsys, dir, 1, new(bytes.Buffer))
		for _, err := range []error{verr, derr} {
			if err == nil || fserror.KindOf(err) != kind {
				t.Errorf("%v, want %v", err, kind)
				continue
			}
			for _, text := range texts {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("%q does not say %q", err, text)
				}
			}
		}
	}
	check(fsys, "/nowhere", fserror.NotFound, "/nowhere", "give a namenode's data folder")
	odd, _ := folder(t, journal.Record{TxID: uint64(len(history) + 1), Time: 1_700_000_000_000, Type: 255, Body: []byte("?")})
	check(odd, "/data", fserror.Damaged, "/data/journal/")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := VerifyJournal(ctx, fsys, "/data"); !errors.Is(err, context.Canceled) {
		t.Errorf("under a context that has ended: %v", err)
	}
}

// An image is shown as one line about it and one an inode, the way down from the root.
func TestDumpImage(t *testing.T) {
	fsys, tree := folder(t)
	write := func(name string, text []byte) {
		t.Helper()
		f, err := fsys.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write(text); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	var image, out bytes.Buffer
	if err := tree.WriteImage(&image); err != nil {
		t.Fatal(err)
	}
	write("/data/image", image.Bytes())
	if err := DumpImage(fsys, "/data/image", &out); err != nil {
		t.Fatal(err)
	}
	all := lines(t, out.String())
	if head := all[0]; head["txid"] != float64(len(history)) || head["term"] != 1.0 || head["namespace"] != "12340000000000000000000000000000" {
		t.Errorf("%v", head)
	}
	inodes := map[string]map[string]any{}
	for _, l := range all[1:] {
		inodes[l["path"].(string)] = l
	}
	if got := slices.Sorted(maps.Keys(inodes)); !slices.Equal(got, []string{"/", "/d", "/f", "/l"}) || all[1]["path"] != "/" {
		t.Errorf("%q, %v first", got, all[1]["path"])
	}
	d, f, l := inodes["/d"], inodes["/f"], inodes["/l"]
	if d["type"] != "directory" || d["mode"] != "0750" || d["user"] != "ann" || d["group"] != "staff" || d["holder"] != nil {
		t.Errorf("%v", d)
	}
	if f["type"] != "file" || f["length"] != 6.0 || f["tail"] != 6.0 || f["holder"] != "c" || f["epoch"] != 3.0 || f["link_target"] != nil {
		t.Errorf("%v", f)
	}
	if l["type"] != "symlink" || l["link_target"] != "/d" {
		t.Errorf("%v", l)
	}
	if err := DumpImage(fsys, "/data/none", &out); fserror.KindOf(err) != fserror.NotFound || !strings.Contains(err.Error(), "/data/none") {
		t.Errorf("an image that is not there: %v", err)
	}
	broken := image.Bytes()
	broken[len(broken)/2] ^= 1
	write("/data/broken", broken)
	if err := DumpImage(fsys, "/data/broken", &out); fserror.KindOf(err) != fserror.Damaged || !strings.Contains(err.Error(), "/data/broken") {
		t.Errorf("a flipped bit: %v", err)
	}
}

// Format and Restore are for several namenodes; one alone is told how to start.
func TestWithoutZooKeeper(t *testing.T) {
	_, ferr := Format(t.Context(), Config{})
	_, rerr := Restore(t.Context(), Restoring{})
	for _, err := range []error{ferr, rerr} {
		if err == nil || !strings.Contains(err.Error(), "start it on its folder") {
			t.Error(err)
		}
	}
}
