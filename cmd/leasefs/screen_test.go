package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/leasefs/leasefs/namenode"
)

// terminal makes a terminal: what is written to screen is read from the first.
func terminal(t *testing.T) (outside, screen *os.File) {
	t.Helper()
	outside, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = outside.Close() })
	fd := int(outside.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	screen, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = screen.Close() })
	return outside, screen
}

// Long work shows its progress on a terminal, takes that away again, and
// writes nothing of the kind elsewhere.
func TestLongWorkShowsABar(t *testing.T) {
	s, err := namenode.Start(t.Context(), namenode.Config{Data: t.TempDir(), Listen: "127.0.0.1:0", HTTP: "127.0.0.1:0", Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	for _, tc := range []struct{ command, shows string }{
		{"admin fsck --blocks", "checking"}, {"admin gc", "collecting"}, {"admin checkpoint", "writing the image"},
		{"admin backup " + filepath.Join(t.TempDir(), "b"), "copying"},
	} {
		for _, quiet := range []string{"", "--quiet", "--json"} {
			t.Run(strings.Join(strings.Fields(tc.command + " " + quiet)[1:], " "), func(t *testing.T) {
				outside, screen := terminal(t)
				null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
				if err != nil {
					t.Fatal(err)
				}
				defer null.Close()
				words := strings.Fields("--namenode " + s.Addr() + " " + tc.command + " " + quiet)
				if words[3] == "backup" {
					words[4] += quiet
				}
				if code := newProgram(null, null, screen).run(words); code != 0 {
					t.Errorf("exit code %d", code)
				}
				fmt.Fprintln(screen, "end")
				shown := until(t, outside, "end\r\n")
				if quiet != "" {
					if shown != "" {
						t.Errorf("it shows %q", shown)
					}
					return
				}
				if !strings.Contains(shown, tc.shows) || !strings.HasSuffix(shown, "\r") {
					t.Errorf("it shows %q", shown)
				}
			})
		}
	}
	if _, _, errs := result(t, "--namenode", s.Addr(), "admin", "fsck", "--blocks"); waitNote.ReplaceAllString(errs, "") != "" {
		t.Errorf("in a pipe it shows %q", errs)
	}
}

// until reads what comes before end.
func until(t *testing.T, f *os.File, end string) string {
	t.Helper()
	if err := f.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Logf("no deadline for reading a terminal here: %v", err)
	}
	var got []byte
	b := make([]byte, 4096)
	for {
		n, err := f.Read(b)
		got = append(got, b[:n]...)
		if before, found := bytes.CutSuffix(got, []byte(end)); found {
			return string(before)
		}
		if err != nil {
			t.Fatalf("%v after %q", err, got)
		}
	}
}
