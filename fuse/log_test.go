package fuse_test

import (
	"log/slog"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/fuse"
	"github.com/leasefs/leasefs/test/env/textlog"
)

func (r *rig) logging() (*mounted, *textlog.Log) {
	l := new(textlog.Log)
	return r.mount(fuse.Options{}, func(c *client.Config) { c.Logger = slog.New(slog.NewTextHandler(l, nil)) }), l
}

// What a program that writes in place wants is refused, and the log says so, once
// a file.
func TestRefusalsAreLogged(t *testing.T) {
	m, log := newRig(t).logging()
	m.write("a", "0123456789")
	m.write("b", "0123456789")
	m.write("c", "0123456789")
	a, b, c := m.open("a", os.O_WRONLY), m.open("b", os.O_WRONLY), m.open("c", os.O_WRONLY)
	for range 3 {
		_, err := a.WriteAt([]byte("x"), 3)
		is(t, err, syscall.EOPNOTSUPP)
		is(t, b.Truncate(100), syscall.EOPNOTSUPP)
		is(t, syscall.Fallocate(int(c.Fd()), 0, 0, 100), syscall.EOPNOTSUPP)
	}
	must(t, a.Close())
	again := m.open("a", os.O_WRONLY)
	_, err := again.WriteAt([]byte("x"), 3)
	is(t, err, syscall.EOPNOTSUPP)
	for _, want := range []string{"path=/a ", "path=/b ", "path=/c "} {
		var got []string
		for _, line := range strings.Split(log.String(), "\n") {
			if strings.Contains(line, want) {
				got = append(got, line)
			}
		}
		if len(got) != 1 || !strings.Contains(got[0], "refused") || !strings.Contains(got[0], "docs/POSIX.md") {
			t.Errorf("%s: %q", want, got)
		}
	}
}

// A large read is nothing to warn of.
func TestLargeReadsAreNotLogged(t *testing.T) {
	m, log := newRig(t).logging()
	m.write("f", strings.Repeat("0123456789abcdef", 4<<20/16))
	m.reads("f", strings.Repeat("0123456789abcdef", 4<<20/16))
	if got := log.String(); got != "" {
		t.Errorf("logged: %q", got)
	}
}
