package fuse_test

import (
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/leasefs/leasefs/fuse"
	"github.com/leasefs/leasefs/test/env"
)

// drops loses all messages with that name from now on, until back is called. tried is
// closed when there was one.
func (d *drafter) drops(method string) (tried <-chan struct{}, back func()) {
	first, once, over := make(chan struct{}), new(sync.Once), new(atomic.Bool)
	d.wire.Set(func(m string, _ any, send func() error) error {
		if m != method || over.Load() {
			return send()
		}
		once.Do(func() { close(first) })
		return env.ErrLost
	})
	return first, func() { over.Store(true) }
}

// signalled is a program that handles SIGUSR1, and what it says.
func signalled(t *testing.T, argv ...string) (*exec.Cmd, *strings.Builder) {
	t.Helper()
	cmd, out := exec.CommandContext(t.Context(), argv[0], argv[1:]...), new(strings.Builder) //nolint:gosec // the test's own
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader("text"), out, out
	must(t, cmd.Start())
	return cmd, out
}

// TestClosesThatASignalInterrupts: what was written is in the file also if a signal ended its writer's
// wait for the close, be it one that he handles. Who looks at the file meanwhile, and the end of the mount, waits.
func TestClosesThatASignalInterrupts(t *testing.T) {
	for name, test := range map[string]struct {
		before, call string
		signal       syscall.Signal
		writer       []string
	}{
		"a draft": {"", "Create", syscall.SIGKILL, []string{"tee"}}, // it has no second descriptor, as a shell does
		"a file":  {"old ", "Close", syscall.SIGUSR1, []string{"bash", "-c", `trap : USR1; printf text >>"$0" && echo ended`}},
	} {
		for _, then := range []string{"read", "unmount"} {
			t.Run(name+", "+then, func(t *testing.T) {
				r := newRig(t, longTerm)
				a, b := r.drafter(long()), r.Client(t)
				if test.before != "" {
					a.write("d/f", test.before)
				}
				a.ready("d")
				tried, back := a.drops(test.call)
				cmd, out := signalled(t, append(test.writer, a.path("d/f"))...)
				<-tried
				must(t, cmd.Process.Signal(test.signal))
				if err := cmd.Wait(); err != nil && test.signal != syscall.SIGKILL {
					t.Fatalf("%v: %s", err, out)
				}
				done := make(chan error, 1)
				if then == "unmount" {
					env.Eventually(t, "it is unmounted", func() bool { return unix.Unmount(a.dir, 0) == nil })
					go func() { done <- a.Wait() }()
				} else {
					go func() {
						_, err := os.ReadFile(a.path("d/f"))
						done <- err
					}()
				}
				back()
				must(t, <-done)
				if got, err := b.ReadFile(t.Context(), "/d/f"); err != nil || string(got) != test.before+"text" {
					t.Errorf("it has %q, %v", got, err)
				}
			})
		}
	}
}

// TestSyncedWritesThatASignalInterrupts: a write to a file that was opened with O_SYNC is not
// interrupted once its bytes are in the file, so nobody writes them twice.
func TestSyncedWritesThatASignalInterrupts(t *testing.T) {
	r := newRig(t, longTerm)
	a := r.drafter(long())
	a.write("d/f", "")
	tried, back := a.drops("AppendTail")
	cmd, out := signalled(t, "dd", "of="+a.path("d/f"), "bs=4", "count=1", "oflag=append,sync", "conv=notrunc")
	<-tried
	must(t, cmd.Process.Signal(syscall.SIGUSR1)) // dd says how far it is, and tries again
	time.AfterFunc(2*time.Second, back)
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	a.reads("d/f", "text")
}

// TestWritesThatAreToBeDurable: what is written with RWF_DSYNC or RWF_SYNC is durable when the
// write returns, whatever the file was opened with.
func TestWritesThatAreToBeDurable(t *testing.T) {
	r := newRig(t)
	a, b := r.mount(fuse.Options{}), r.Client(t)
	f := a.open("f", os.O_CREATE|os.O_WRONLY|os.O_APPEND)
	const rwfDSync, rwfSync = 2, 4
	want := ""
	for _, how := range []int{rwfDSync, rwfSync} {
		want += "text"
		_, err := unix.Pwritev2(int(f.Fd()), [][]byte{[]byte("text")}, -1, how)
		must(t, err)
		if i, err := b.Stat(t.Context(), "/f"); err != nil || i.Size() != int64(len(want)) {
			t.Errorf("RWF %d: %v, %v", how, i, err)
		}
	}
}
