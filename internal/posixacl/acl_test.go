package posixacl

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/leasefs/leasefs/internal/fserror"
)

func parse(t testing.TB, text string) ACL {
	t.Helper()
	a, err := ParseEntries(text, true)
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return a
}

const plain = "user::rwx,group::r-x,other::r--"

// The changes of HDFS's AclTransformation, and what setfacl does.
func TestApply(t *testing.T) {
	const masked = "user::rwx,user:bob:rw-,group::r-x,mask::rwx,other::r--"
	for _, c := range []struct {
		name   string
		before string
		action Action
		given  string
		want   string // empty: refused
	}{
		{"add a user", plain, Modify, "u:bob:rw", masked},
		{"a mask that is given stays", plain, Modify, "u:bob:rw,m::r", "user::rwx,user:bob:rw-,group::r-x,mask::r--,other::r--"},
		{"the mask grows with a change", "user::rwx,user:bob:r--,group::r-x,mask::r--,other::r--", Modify, "g:staff:w", "user::rwx,user:bob:r--,group::r-x,group:staff:-w-,mask::rwx,other::r--"},
		{"change who is there", masked, Modify, "u:bob:-", "user::rwx,user:bob:---,group::r-x,mask::r-x,other::r--"},
		{"the base entries", plain, Modify, "u::r,g::w,o::x", "user::r--,group::-w-,other::--x"},
		{"default takes what it lacks from access", plain, Modify, "d:u:bob:rw", plain + ",default:user::rwx,default:user:bob:rw-,default:group::r-x,default:mask::rwx,default:other::r--"},
		{"default without names needs no mask", plain, Modify, "d:g::w", plain + ",default:user::rwx,default:group::-w-,default:other::r--"},
		{"the access mask stays when default changes", "user::rwx,user:bob:rw-,group::r-x,mask::r--,other::r--", Modify, "d:o::-", "user::rwx,user:bob:rw-,group::r-x,mask::r--,other::r--,default:user::rwx,default:group::r-x,default:other::---"},
		{"remove a user, the mask stays", masked, Remove, "u:bob", "user::rwx,group::r-x,mask::r-x,other::r--"},
		{"remove nobody", masked, Remove, "u:alice", masked},
		{"remove a mask that is needed", masked, Remove, "m:", ""},
		{"remove user and mask", "user::rwx,user:bob:rw-,group::r-x,mask::r--,other::r--", Remove, "u:bob,m:", "user::rwx,group::r--,other::r--"},
		{"remove the owner", plain, Remove, "u:", ""},
		{"remove default entries one by one", plain + ",default:user::rwx,default:group::r-x,default:other::r--", Remove, "d:u:,d:g:,d:o:", plain},
		{"a base entry of default comes back", plain + ",default:user::r--,default:user:bob:rw-,default:group::r-x,default:mask::rwx,default:other::r--", Remove, "d:u:", plain + ",default:user::rwx,default:user:bob:rw-,default:group::r-x,default:mask::rwx,default:other::r--"},
		{"remove default", plain + ",default:user::rwx,default:group::r-x,default:other::r--", RemoveDefault, "", plain},
		{"remove all", "user::rwx,user:bob:rw-,group::r-x,mask::r--,other::r--,default:user::rwx,default:group::r-x,default:other::r--", RemoveAll, "", "user::rwx,group::r--,other::r--"},
		{"replace", masked, Replace, "u::r,g::r,o::r,g:staff:w", "user::r--,group::r--,group:staff:-w-,mask::rw-,other::r--"},
		{"replace access leaves default", plain + ",default:user::rwx,default:group::r-x,default:other::r--", Replace, "u::r,g::r,o::r", "user::r--,group::r--,other::r--,default:user::rwx,default:group::r-x,default:other::r--"},
		{"replace default leaves access", masked, Replace, "d:u::r,d:g::r,d:o::r", masked + ",default:user::r--,default:group::r--,default:other::r--"},
		{"replace without what has to be", plain, Replace, "u:bob:r", ""},
		{"exact computes no mask", plain, Exact, "u::r,u:bob:r,g::r,o::r", ""},
		{"exact", plain, Exact, "u::r,u:bob:rwx,g::r,m::-,o::r", "user::r--,user:bob:rwx,group::r--,mask::---,other::r--"},
		{"twice", plain, Modify, "u:bob:r,u:bob:w", ""},
		{"nothing", plain, Modify, "", ""},
		{"too much", plain, RemoveAll, "u:bob", ""},
		{"whole", "user::rwx,user:bob:rw-,group::r-x,mask::rwx,other::r--,default:user::rwx,default:group::r-x,default:other::r--", Whole, "u::r,g::r,o::r", "user::r--,group::r--,other::r--"},
		{"unknown", plain, Whole + 1, "u:bob:r", ""},
	} {
		before := parse(t, c.before)
		was := before.String()
		got, err := before.Apply(Change{c.action, parse(t, c.given)})
		if c.want == "" {
			if fserror.KindOf(err) != fserror.InvalidArgument || err == nil {
				t.Errorf("%s: %s, %v", c.name, got, err)
			}
			continue
		}
		if err != nil || got.String() != c.want {
			t.Errorf("%s: %v\n%s, should be\n%s", c.name, err, got, c.want)
		}
		if before.String() != was {
			t.Errorf("%s: it changed what was there", c.name)
		}
	}
}

func TestLimits(t *testing.T) {
	many := func(n int, prefix string) (text string) {
		for i := range n {
			text += fmt.Sprintf("%su:user%02d:r,", prefix, i)
		}
		return text
	}
	full, err := FromMode(0o750).Apply(Change{Modify, parse(t, many(28, "")+many(28, "d:"))})
	if err != nil || len(full.Part(false)) != MaxEntries || len(full.Part(true)) != MaxEntries {
		t.Fatalf("%d entries: %v", len(full), err)
	}
	for _, more := range []string{"g:g:r", "d:g:g:r"} {
		if _, err := full.Apply(Change{Modify, parse(t, more)}); fserror.KindOf(err) != fserror.InvalidArgument || !strings.Contains(err.Error(), "the limit is 32") {
			t.Errorf("one more: %v", err)
		}
	}
	if _, err := ParseEntries(many(65, ""), false); fserror.KindOf(err) != fserror.InvalidArgument || err == nil {
		t.Errorf("too many in a text: %v", err)
	}
}

func TestParse(t *testing.T) {
	for text, want := range map[string]string{
		"u:bob:rw":         "user:bob:rw-",
		"user:bob:6":       "user:bob:rw-",
		"bob:x":            "user:bob:--x",
		"g:staff:r-x":      "group:staff:r-x",
		"m:rx":             "mask::r-x",
		"mask::rwx,o:-":    "mask::rwx,other::---",
		"d:u:bob:rw":       "default:user:bob:rw-",
		"default:group::w": "default:group::-w-",
		"# file: x\nuser::rw-\t#effective:r--\n\n": "user::rw-",
		` user:a\040b\072c:r `:                     `user:a\040b\072c:r--`,
		`user:DOMAIN\134bob:r`:                     `user:DOMAIN\134bob:r--`,
		"user:é:r":                                 "user:é:r--",
	} {
		if a, err := ParseEntries(text, false); err != nil || a.String() != want {
			t.Errorf("%q: %s, %v; should be %s", text, a, err, want)
		}
	}
	for _, text := range []string{"x", "u", "u:bob", "u:bob:", "user:bob:rwz", "user:bob:8", "user:bob:r:w", "o:bob:r", "m:bob:r", "d", "d:", "d:d:u:bob:r", ":r", ":", "u:bob:rwxrwxrwx"} {
		if a, err := ParseEntries(text, false); fserror.KindOf(err) != fserror.InvalidArgument || err == nil {
			t.Errorf("%q: %s, %v", text, a, err)
		}
	}
	a := parse(t, "u:bob:rX,u:eve:x")
	if got := a.Resolve(true).String() + " " + a.Resolve(false).String(); got != "user:bob:r-x,user:eve:--x user:bob:r--,user:eve:--x" {
		t.Error(got)
	}
	long := parse(t, "u::rwx,u:bob:rwx,g::r-x,m::r,o::x").Long()
	if want := "user::rwx\nuser:bob:rwx\t#effective:r--\ngroup::r-x\t#effective:r--\nmask::r--\nother::--x\n"; long != want {
		t.Errorf("%s", long)
	}
}

// Whatever is accepted is written so that it is read again as the same.
func FuzzParse(f *testing.F) {
	f.Add("u:bob:rw,d:g:staff:rx\nm::7 # x")
	f.Add(`user:a\040b:r,o:-`)
	f.Fuzz(func(t *testing.T, text string) {
		a, err := ParseEntries(text, false)
		if err != nil {
			if fserror.KindOf(err) != fserror.InvalidArgument {
				t.Fatalf("%v", err)
			}
			return
		}
		a = a.Resolve(true)
		again, err := ParseEntries(a.String(), false)
		if err != nil || !slices.Equal(again, a) {
			t.Fatalf("%q is %s, which is read as %s, %v", text, a, again, err)
		}
		if b, err := FromMode(0o640).Apply(Change{Modify, a}); err == nil && b.Check() != nil {
			t.Fatalf("%q makes %s: %v", text, b, b.Check())
		}
	})
}

func number(name string) (uint32, bool) {
	n, err := strconv.ParseUint(name, 10, 32)
	return uint32(n), err == nil
}

func name(id uint32) string { return strconv.FormatUint(uint64(id), 10) }

func TestLinux(t *testing.T) {
	a := parse(t, "u::rwx,u:10:rw,u:9:r,u:unknown:x,g::r-x,g:5:x,m::rwx,o::-")
	b := a.EncodeLinux(number, number)
	const want = "02000000" + "01000700ffffffff" + "0200040009000000" + "020006000a000000" + "04000500ffffffff" + "0800010005000000" + "10000700ffffffff" + "20000000ffffffff"
	if fmt.Sprintf("%x", b) != want {
		t.Fatalf("%x, should be\n%s", b, want)
	}
	back, err := DecodeLinux(b, name, name)
	if err != nil || back.String() != "user::rwx,user:10:rw-,user:9:r--,group::r-x,group:5:--x,mask::rwx,other::---" {
		t.Fatalf("%s, %v", back, err)
	}
	if _, err := DecodeLinux(b, func(uint32) string { return "" }, name); fserror.KindOf(err) != fserror.InvalidArgument || err == nil {
		t.Fatalf("a number that is nobody's: %v", err)
	}
	if a, err := DecodeLinux(b[:4], name, name); a != nil || err != nil {
		t.Fatalf("an empty list: %s, %v", a, err)
	}
}

// FuzzLinux reads what a process may hand to setxattr(2).
func FuzzLinux(f *testing.F) {
	f.Add([]byte{2, 0, 0, 0, 1, 0, 7, 0, 255, 255, 255, 255, 4, 0, 5, 0, 0, 0, 0, 0, 32, 0, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := DecodeLinux(b, name, name)
		if err != nil {
			if fserror.KindOf(err) != fserror.InvalidArgument {
				t.Fatalf("%v", err)
			}
			return
		}
		if a.Check() != nil {
			return
		}
		c := a.EncodeLinux(number, number)
		again, err := DecodeLinux(c, name, name)
		if err != nil || !slices.Equal(a, again) || !bytes.Equal(c, again.EncodeLinux(number, number)) {
			t.Fatalf("%x is %s, written as %x: %v", b, a, c, err)
		}
	})
}
