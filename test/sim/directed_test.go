package sim

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasefs/leasefs/test/env/crashfs"
)

// must ends a test with an error.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// check ends a world and fails the test for what it has broken.
func (w *World) check(t *testing.T) {
	t.Helper()
	w.end()
	for _, what := range w.Broken() {
		t.Error(what)
	}
}

// Nobody is shown an answer that was on its way while what it tells of changed.
func TestAnswersThatWereOvertaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan chan struct{}, 1) // who is in it lets the next look come back
		w := calm(t, 2, func(c *worker) {
			if c.name == "c0" {
				c.answered = func(call string) {
					if call != "Stat" {
						return
					}
					select {
					case pass := <-gate:
						<-pass
					default:
					}
				}
			}
		})
		reader, writer := w.clients[0], w.clients[1]
		for round := range 5 {
			path := fmt.Sprintf("/f%d", round)
			must(t, writer.fs.WriteFile(t.Context(), path, []byte("old")))
			pass, back := make(chan struct{}), make(chan struct{})
			gate <- pass
			go func() {
				defer close(back)
				_, _ = reader.fs.Stat(t.Context(), path) // old or new
			}()
			synctest.Wait()
			<-time.After(time.Second) // the answer has come
			f, err := writer.fs.Append(t.Context(), path)
			must(t, err)
			_, _ = f.Write([]byte(" and more")) // Close tells of its error, too
			must(t, f.Close())
			close(pass)
			<-back
			i, err := reader.fs.Stat(t.Context(), path)
			must(t, err)
			if i.Length != int64(len("old and more")) {
				t.Errorf("round %d: %s has %d bytes for who looked while it changed", round, path, i.Length)
			}
		}
		w.check(t)
	})
}

// A call whose answer is lost with its namenode is repeated, and answered as it was, by
// a successor whose time of day is a year ahead: reigns age what is remembered, not
// what is between them.
func TestCallsAreRememberedOverAWrongTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := calm(t, 1, func(c *worker) { c.plain = true })
		c := w.clients[0]
		for round := range 3 {
			w.waitActive(t.Context())
			old := w.theActive()
			for _, n := range w.nodes {
				if n != old {
					n.clock.SetSkew(400 * 24 * time.Hour)
				}
			}
			w.net.Line(old.name, c.name).Cut()
			done := make(chan error)
			go func() { done <- c.fs.Mkdir(t.Context(), fmt.Sprintf("/d%d", round), 0o755) }()
			<-time.After(100 * time.Millisecond) // it is carried out
			w.succeed()
			w.net.Line(old.name, c.name).Mend()
			if err := <-done; err != nil {
				t.Errorf("round %d: %v", round, err)
			}
			for _, n := range w.nodes {
				n.clock.SetSkew(0)
			}
		}
		w.check(t)
	})
}

// Who takes over applies all that its predecessor wrote before it writes itself: else its
// journal refuses the first record, and the fleet waits for another to take over.
func TestTakeOversReadToTheEnd(t *testing.T) {
	const changes = 300 // in less time than a standby reads them
	synctest.Test(t, func(t *testing.T) {
		w := calm(t, 1, func(c *worker) { c.plain = true })
		c := w.clients[0]
		for round := range 2 {
			active := w.theActive()
			for _, n := range w.nodes {
				for i := range w.cfg.ZooKeeper {
					delay := usualDelay
					if n != active {
						delay = 200 * time.Millisecond // it is behind when it is elected
					}
					w.net.Line(zkName(i), n.name).SetDelay(delay)
				}
			}
			<-time.After(10 * time.Second)
			for i := range changes {
				must(t, c.fs.Mkdir(t.Context(), fmt.Sprintf("/d%d-%d", round, i), 0o755))
			}
			before := active.tree().Term()
			w.succeed()
			if _, err := c.fs.Stat(t.Context(), fmt.Sprintf("/d%d-%d", round, changes-1)); err != nil {
				t.Errorf("round %d: %v", round, err)
			}
			if term := w.theActive().tree().Term(); term != before+1 {
				t.Errorf("round %d: after reign %d the first that serves is reign %d", round, before, term)
			}
		}
		w.check(t)
	})
}

// A fleet starts from its images after a crash of all, whenever the journal was purged.
func TestPurgedJournalsStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := calm(t, 2, func(c *worker) { c.plain = true })
		writer, admin := w.clients[0], w.clients[1]
		<-time.After(time.Minute) // images may be removed
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { // changes between an image and its record
			defer close(ended)
			for i := 0; ctx.Err() == nil; i++ {
				_ = writer.fs.Mkdir(ctx, fmt.Sprintf("/d%d", i), 0o755) // one of them as the world crashes
			}
		}()
		for range 4 {
			<-time.After(time.Second)
			_, err := admin.fs.Admin().Checkpoint(t.Context())
			must(t, err)
		}
		cancel()
		<-ended
		for _, n := range w.nodes {
			n.kill(crashfs.Strict)
		}
		for _, n := range w.nodes {
			n.start()
		}
		soon, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if w.waitActive(soon); soon.Err() != nil {
			t.Error("no namenode serves a minute after all have crashed")
		}
		w.check(t)
	})
}

// A tail that is on its way into a block when its file is written otherwise stays out
// of it.
func TestTailsAreSealedAsTheyAre(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size, files = 12 << 10, 4
		w := calmWorld(t, Config{Seed: 2, S3: true, TailBudget: 64 << 10}, 1, func(c *worker) { c.plain = true })
		fs := w.clients[0].fs
		must(t, fs.WriteFile(t.Context(), "/block", make([]byte, 2*blockSize))) // the store knows of the reign
		heal := w.cut(w.theActive().name, storeName, 0)
		for i := range files {
			must(t, fs.WriteFile(t.Context(), fmt.Sprintf("/f%d", i), []byte(strings.Repeat("0", size))))
		}
		<-time.After(3 * time.Second) // one is on its way
		for i := range files {
			path := fmt.Sprintf("/f%d", i)
			must(t, fs.Truncate(t.Context(), path, 0))
			f, err := fs.Append(t.Context(), path)
			must(t, err)
			_, _ = f.Write([]byte(strings.Repeat("1", size))) // Close tells of its error, too
			must(t, f.Close())
		}
		heal()
		<-time.After(10 * time.Second)
		for i := range files {
			path := fmt.Sprintf("/f%d", i)
			if data, err := fs.ReadFile(t.Context(), path); err != nil || string(data) != strings.Repeat("1", size) {
				t.Errorf("%s has %d bytes %.10q, %v", path, len(data), data, err)
			}
		}
		w.check(t)
	})
}

// A block whose file was removed is deleted no sooner than that is durable, however
// short the room is.
func TestBlocksGoWhenThatIsDurable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := calm(t, 2, func(c *worker) { c.plain = true })
		dead, other := w.clients[0], w.clients[1]
		text := strings.Repeat("0", 2*blockSize)
		must(t, dead.fs.WriteFile(t.Context(), "/f", []byte(text)))
		<-time.After(time.Minute) // blocks may be deleted
		w.shared.Capacity(8 * blockSize)
		old := w.theActive()
		var heals []func()
		for i := range w.cfg.ZooKeeper {
			heals = append(heals, w.cut(old.name, zkName(i), 0))
		}
		ctx, cancel := context.WithCancel(t.Context())
		gone := make(chan struct{})
		go func() { defer close(gone); _ = dead.fs.Remove(ctx, "/f") }() // nobody answers
		<-time.After(time.Second)
		dead.life.dead.Store(true)
		dead.host.Crash()
		cancel()
		<-gone
		for began := time.Now(); time.Since(began) < 30*time.Second && w.isActiveBeside(old) == nil; {
			<-time.After(time.Second)
		}
		<-time.After(15 * time.Second) // old has looked for garbage
		all(heals)
		if data, err := other.fs.ReadFile(t.Context(), "/f"); err != nil || string(data) != text {
			t.Errorf("/f, whose removal was told to nobody, has %d bytes, %v", len(data), err)
		}
		w.check(t)
	})
}

// isActiveBeside is another active namenode.
func (w *World) isActiveBeside(old *Node) *Node {
	for _, n := range w.nodes {
		if n != old && n.active() {
			return n
		}
	}
	return nil
}
