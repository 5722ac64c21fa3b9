package fspath

import (
	"errors"
	"strings"
	"testing"

	"github.com/leasefs/leasefs/internal/fserror"
)

func TestClean(t *testing.T) {
	for _, tc := range []struct {
		in, want string
		kind     fserror.Kind
	}{
		{"/", "/", 0},
		{"//", "/", 0},
		{"/a", "/a", 0},
		{"/a/", "/a", 0},
		{"//a///b//", "/a/b", 0},
		{"/ä b/…", "/ä b/…", 0},
		{"/" + strings.Repeat("n", MaxName), "/" + strings.Repeat("n", MaxName), 0},
		{"", "", fserror.InvalidPath},
		{"a", "", fserror.InvalidPath},
		{"./a", "", fserror.InvalidPath},
		{"/.", "", fserror.InvalidPath},
		{"/a/..", "", fserror.InvalidPath},
		{"/a\x00", "", fserror.InvalidPath},
		{"/\xff", "", fserror.InvalidPath},
		{"/" + strings.Repeat("n", MaxName+1), "", fserror.NameTooLong},
		{strings.Repeat("/d", MaxDepth+1), "", fserror.NameTooLong},
		{strings.Repeat("/dddddddd", MaxPath), "", fserror.NameTooLong},
	} {
		got, err := Clean(tc.in)
		if tc.want != "" {
			if err != nil || got != tc.want {
				t.Errorf("Clean(%.40q) = %q, %v; want %q", tc.in, got, err, tc.want)
			}
			continue
		}
		if !errors.Is(err, tc.kind) {
			t.Errorf("Clean(%.40q): %v, want kind %s", tc.in, err, tc.kind)
		}
		if len(err.Error()) > 600 {
			t.Errorf("Clean(%.40q): an error of %d bytes", tc.in, len(err.Error()))
		}
	}
}

func TestSplitJoin(t *testing.T) {
	for _, tc := range []struct{ path, dir, name string }{
		{"/", "/", ""}, {"/a", "/", "a"}, {"/a/b", "/a", "b"}, {"/a/b/c", "/a/b", "c"},
	} {
		dir, name := Split(tc.path)
		if dir != tc.dir || name != tc.name {
			t.Errorf("Split(%s) = %s, %s", tc.path, dir, name)
		}
		if tc.name != "" && Join(dir, name) != tc.path {
			t.Errorf("Join(%s, %s) = %s", dir, name, Join(dir, name))
		}
	}
}

// FuzzClean: whatever comes is refused or becomes a path that is valid and
// stays as it is when cleaned again.
func FuzzClean(f *testing.F) {
	for _, s := range []string{"/", "/a/b", "a", "//x/", "/..", "/\x00", "/\xc3("} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		out, err := Clean(in)
		if err != nil {
			return
		}
		if err := Check(out); err != nil {
			t.Fatalf("Clean(%q) = %q, which is not valid: %v", in, out, err)
		}
		again, err := Clean(out)
		if err != nil || again != out {
			t.Fatalf("Clean(%q) = %q, again %q, %v", in, out, again, err)
		}
	})
}

// TestCheckNameBytes: it says the same as CheckName, and of usual names takes no memory.
func TestCheckNameBytes(t *testing.T) {
	names := []string{"", ".", "..", "...", "a/b", "a\x00", "file-1", "ä", "\xff", strings.Repeat("n", MaxName), strings.Repeat("n", MaxName+1)}
	for c := range 256 {
		names = append(names, string([]byte{byte(c)}), string([]byte{'a', byte(c), 'b'}))
	}
	for _, name := range names {
		want, got := CheckName(name), CheckNameBytes([]byte(name))
		if (want == nil) != (got == nil) || want != nil && want.Error() != got.Error() {
			t.Errorf("%q: %v, but as bytes %v", name, want, got)
		}
	}
	usual := []byte("file-000000001")
	if n := testing.AllocsPerRun(100, func() { _ = CheckNameBytes(usual) }); n > 0 {
		t.Errorf("a usual name takes %v allocations", n)
	}
}

// TestEnd: of a path that is too long, the longest end that can be named.
func TestBegin(t *testing.T) {
	name := "/" + strings.Repeat("n", MaxName)
	most := MaxPath / len(name)
	for _, c := range []struct{ in, want string }{
		{"", ""},
		{"/", "/"},
		{"/a/b", "/a/b"},
		{strings.Repeat("/d", MaxDepth), strings.Repeat("/d", MaxDepth)},
		{"/x" + strings.Repeat("/d", MaxDepth), "/x" + strings.Repeat("/d", MaxDepth-2) + "/…"},
		{strings.Repeat(name, most), strings.Repeat(name, most)},
		{"/x" + strings.Repeat(name, most), "/x" + strings.Repeat(name, most-1) + "/…"},
		{strings.Repeat("/d", 100_000) + name, strings.Repeat("/d", MaxDepth-1) + "/…"},
	} {
		if got := Begin(c.in); got != c.want || got != "" && Check(got) != nil {
			t.Errorf("Begin(%.40q): %.40q of %d bytes, want %d", c.in, got, len(got), len(c.want))
		}
	}
}

func TestEnd(t *testing.T) {
	name := "/" + strings.Repeat("n", MaxName)
	for _, c := range []struct{ in, want string }{
		{"/", "/"},
		{"/a/b", "/a/b"},
		{strings.Repeat("/d", MaxDepth), strings.Repeat("/d", MaxDepth)},
		{"/x" + strings.Repeat("/d", MaxDepth), strings.Repeat("/d", MaxDepth)},
		{strings.Repeat(name, MaxPath/len(name)), strings.Repeat(name, MaxPath/len(name))},
		{"/x" + strings.Repeat(name, MaxPath/len(name)), strings.Repeat(name, MaxPath/len(name))},
		{strings.Repeat("/d", 100_000) + name, strings.Repeat("/d", MaxDepth-1) + name},
	} {
		if got := End(c.in); got != c.want || Check(got) != nil {
			t.Errorf("End(%.40q): %.40q of %d bytes, want %d", c.in, got, len(got), len(c.want))
		}
	}
}
