package filemode

import (
	"io/fs"
	"testing"
)

func TestBothWays(t *testing.T) {
	for bits := range uint32(Most + 1) {
		m := FromUnix(bits)
		if m&^Changeable != 0 || Unix(m) != bits {
			t.Fatalf("%o is %v, and that is %o", bits, m, Unix(m))
		}
		if got, err := Parse(Format(m)); got != m || err != nil {
			t.Fatalf("%v is written %s and read as %v, %v", m, Format(m), got, err)
		}
	}
	if got := FromUnix(0o107644); got != 0o644|fs.ModeSticky {
		t.Errorf("bits that mean nothing here became %v", got)
	}
	if got := Unix(fs.ModeDir | fs.ModeSetuid | fs.ModeSticky | 0o750); got != 0o1750 {
		t.Errorf("a directory's bits are %o", got)
	}
}

func TestParse(t *testing.T) {
	for _, s := range []string{"", "8", "-1", "2000", "0o755", "0x1ff", "u+x", " 755", "77777777777"} {
		if m, err := Parse(s); err == nil {
			t.Errorf("%q was read as %v", s, m)
		}
	}
	if m, err := Parse("1777"); err != nil || m != fs.ModePerm|fs.ModeSticky {
		t.Errorf("1777 is %v, %v", m, err)
	}
}
