package datadir

import (
	"encoding/hex"
	"strings"
	"testing"

	"github.com/pelletier/go-toml/v2"
)

// FuzzParseVersion: whatever is in VERSION, it is an error that says what to do,
// or what was written comes back.
func FuzzParseVersion(f *testing.F) {
	f.Add([]byte("format = 1\nnamespace = \"00112233445566778899aabbccddeeff\"\ncreated = \"2026-01-01\"\nby = \"x\"\nbackup = 7\n"))
	f.Add([]byte("format = -1\nnamespace = \"\"\n"))
	f.Add([]byte("format = \"1\"\n[namespace]\nx = [1, {}]\n"))
	f.Add([]byte("\x00\xff"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		v, id, err := ParseVersion(raw)
		if err != nil {
			if !strings.Contains(err.Error(), "backup") {
				t.Fatalf("no next step: %v", err)
			}
			return
		}
		if v.Format < 1 || hex.EncodeToString(id[:]) != strings.ToLower(v.Namespace) {
			t.Fatalf("%+v, id %x", v, id)
		}
		again, err := toml.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		if w, wid, err := ParseVersion(again); err != nil || w != v || wid != id {
			t.Fatalf("%+v became %+v, %v", v, w, err)
		}
	})
}
