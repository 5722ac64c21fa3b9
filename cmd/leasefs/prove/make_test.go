package prove

import (
	"crypto/x509"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/proof"
)

// TestRevoke: the list that an authority makes is one that a namenode takes, from the
// first on, and whoever is added to it stays on it.
func TestRevoke(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	ca := filepath.Join(dir, "ca")
	authority, err := Authority(ca, "test", now, 24*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	users := map[string]*x509.Certificate{}
	for _, name := range []string{"ann", "bob", "eve"} {
		file, _, err := Certificate(ca, name, nil, now, time.Hour, dir)
		if err != nil {
			t.Fatal(err)
		}
		if users[name], err = readCertificate(file); err != nil {
			t.Fatal(err)
		}
	}
	list := filepath.Join(ca, caList)
	revoked := func(want string) {
		t.Helper()
		f, err := proof.OpenAuthorities(clock.System{}, authority, list)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, name := range []string{"ann", "bob", "eve"} {
			if _, err := f.Get().Verify([]*x509.Certificate{users[name]}, now); err != nil {
				if !strings.Contains(err.Error(), "revoked") {
					t.Error(err)
				}
				got = append(got, name)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("revoked are %q, want %q", got, want)
		}
		if f.Get().Overdue(now.Add(12 * time.Hour)) {
			t.Error("the list has to be made again before the authority has")
		}
	}
	revoked("")
	for _, step := range []struct{ name, want string }{{"bob", "bob"}, {"ann", "ann bob"}, {"ann", "ann bob"}} {
		if got, err := Revoke(ca, filepath.Join(dir, step.name+".pem"), now); err != nil || got != list {
			t.Fatalf("%s: %q, %v", step.name, got, err)
		}
		revoked(step.want)
	}
}
