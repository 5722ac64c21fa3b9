package proof

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/leasefs/leasefs/internal/clock"
)

// TestFrozenTokens: a server's file of tokens and a client's own, as operators have them, are read
// for ever, and the lines are still made so.
func TestFrozenTokens(t *testing.T) {
	const first, second = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8", "ICEiIyQlJicoKSorLC0uLzAxMjM0NTY3ODk6Ozw9Pj8"
	raw, err := os.ReadFile("../../testdata/frozen/tokens.txt")
	if err != nil {
		t.Fatal(err)
	}
	f, err := OpenTokens(clock.System{}, "../../testdata/frozen/tokens.txt")
	if err != nil {
		t.Fatal(err)
	}
	for token, want := range map[string]Bearer{first: {User: "ann"}, second: {User: "bob", Groups: []string{"dev", "ops"}}} {
		if got, ok := f.Get().Find(Hash(token)); !ok || !reflect.DeepEqual(got, want) {
			t.Errorf("%+v, %t, want %+v", got, ok, want)
		}
		if line, err := Line(token, want.User, want.Groups...); err != nil || !strings.Contains(string(raw), "\n"+line+"\n") {
			t.Errorf("the line of %s is now %s, %v", want.User, line, err)
		}
	}
	raw, err = os.ReadFile("../../testdata/frozen/token.txt")
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "token") // of mode 600
	write(t, name, string(raw))
	own, err := OpenOwn(clock.System{}, name)
	if err != nil || own.Get() != (Own{"ann", first}) {
		t.Errorf("a client's file: %v", err)
	}
}
