package marker

import (
	"encoding/json"
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/blockstore/local"
)

// TestFrozenIncarnations: the objects that say whose a store is, as releases put them, are read for
// ever, by the names that they have, and are still written so.
func TestFrozenIncarnations(t *testing.T) {
	raw, err := os.ReadFile("../../testdata/frozen/incarnations.txt")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(raw)), "\n")
	all := []Incarnation{
		{1, "00112233445566778899aabbccddeeff", "ffeeddccbbaa99887766554433221100", "", 0, "2026-11-28T19:38:32Z", "leasefs level-1 on host for main"},
		{2, "00112233445566778899aabbccddeeff", "0f1e2d3c4b5a69788796a5b4c3d2e1f0", "ffeeddccbbaa99887766554433221100", 65543, "2026-11-28T19:38:37Z", "leasefs level-1 on host for /srv/leasefs"},
	}
	if len(lines) != len(all) {
		t.Fatalf("%d lines", len(lines))
	}
	id, _ := ParseID(all[0].Namespace)
	st, err := local.Open(local.Config{Dir: t.TempDir(), NamespaceID: id, Secret: make([]byte, 32), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = st.Close() }()
	of := Incarnations{Objects: st, Store: "store", ID: id}
	for i, name := range []string{"incarnation-00000001", "incarnation-00000002"} {
		if err := blockstore.PutBytes(t.Context(), st, name, []byte(lines[i])); err != nil {
			t.Fatal(err)
		}
		if got, err := of.Read(t.Context()); err != nil || got != all[i] {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		if written, err := json.Marshal(all[i]); err != nil || string(written) != lines[i] {
			t.Errorf("%s is now written as %s, %v", name, written, err)
		}
	}
	if Object != "namespace" {
		t.Errorf("the object that says whose a store is has another name: %s", Object)
	}
}
