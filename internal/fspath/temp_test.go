package fspath

import (
	"strings"
	"testing"
)

func TestTempName(t *testing.T) {
	for _, name := range []string{"a", strings.Repeat("x", 255), strings.Repeat("ü", 127)} {
		if got := TempNameOf(name, "-mark"); CheckName(got) != nil || !strings.HasSuffix(got, "-mark") {
			t.Errorf("%s with a mark: %s", name, got)
		}
		got := TempName(name)
		if err := CheckName(got); err != nil || !strings.HasPrefix(got, ".") || !strings.Contains(got, TempInfix) || got == TempName(name) {
			t.Errorf("%s: %s, %v", name, got, err)
		}
	}
}
