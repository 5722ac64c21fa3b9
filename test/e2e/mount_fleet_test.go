package e2e_test

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestMountFailover: the active namenode is killed under two mounts. What was
// under way waits and continues with the next one; nothing is lost, and the lease
// is held all the time.
func TestMountFailover(t *testing.T) {
	ctx := deadline(t, 5*time.Minute)
	e := startFleet(ctx, t)
	a, b := e.mount(ctx), e.mount(ctx)
	f := a.open("log", os.O_CREATE|os.O_WRONLY|os.O_APPEND)
	var want strings.Builder
	add := func(i int) error {
		if _, err := f.WriteString(line("a", i)); err != nil {
			return err
		}
		want.WriteString(line("a", i))
		return f.Sync()
	}
	if err := add(0); err != nil {
		t.Fatal(err)
	}
	first := e.settled(ctx)
	first.kill()
	// All of these wait for the next one.
	made := make(chan error, 2)
	go func() { made <- os.Mkdir(b.path("dir"), 0o755) }()
	go func() {
		_, err := os.Stat(b.path("log"))
		made <- err
	}()
	for i := 1; i < 20; i++ {
		if err := add(i); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := <-made; err != nil {
			t.Fatal(err)
		}
	}
	b.is("log", want.String())
	if err := b.add("log", "no\n"); err == nil {
		t.Fatal("the lease did not live on")
	}
	e.successor(ctx, first).term(ctx) // two are gone
	first.start(ctx)
	for i := 20; i < 30; i++ {
		if err := add(i); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err := b.add("log", line("b", 0)); err != nil {
		t.Fatal(err)
	}
	want.WriteString(line("b", 0))
	a.is("log", want.String())
}

// TestMountAway: no namenode answers. Calls wait, can be interrupted, and continue
// when one answers again.
func TestMountAway(t *testing.T) {
	ctx := deadline(t, 3*time.Minute)
	e := startFleet(ctx, t)
	m := e.mount(ctx)
	if err := m.add("f", "text\n"); err != nil {
		t.Fatal(err)
	}
	for _, n := range e.members {
		n.fromClients()
	}
	asks := func(p *process) {
		t.Helper()
		eventually(ctx, t, "it waits for the mount", func() bool {
			if p.ended() {
				t.Fatalf("%s ended (%v): %s", p.name, p.cmd.ProcessState, p.err)
			}
			wchan, err := os.ReadFile(fmt.Sprintf("/proc/%d/wchan", p.cmd.Process.Pid))
			return err == nil && strings.Contains(string(wchan), "request_wait_answer")
		})
	}
	for _, argv := range [][]string{{"mkdir", m.path("dir")}, {"sh", "-c", "echo more >>" + m.path("f")}, {"mv", m.path("f"), m.path("g")}} {
		p := start(ctx, t, spec{argv: argv})
		asks(p)
		p.signal(syscall.SIGTERM)
		p.ends(ctx, -1)
	}
	p := start(ctx, t, spec{argv: []string{"mkdir", m.path("later")}})
	asks(p)
	for _, n := range e.members {
		n.toClients()
	}
	p.ends(ctx, 0)
	if i, err := os.Stat(m.path("later")); err != nil || !i.IsDir() {
		t.Fatal(i, err)
	}
}
