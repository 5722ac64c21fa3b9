package local

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/vfs"
	"github.com/leasefs/leasefs/test/env/blocktest"
	"github.com/leasefs/leasefs/test/env/crashfs"
)

// hungDisk is a disk of which some calls do not come back before gate is closed.
type hungDisk struct {
	vfs.FS
	gate    chan struct{}
	in      atomic.Int64 // calls that hang
	inOpen  bool
	inRead  bool
	inWrite bool
}

func (d *hungDisk) hang() {
	d.in.Add(1)
	<-d.gate
}

func (d *hungDisk) Open(name string) (vfs.File, error) {
	block := strings.HasSuffix(name, blockSuffix)
	if block && d.inOpen {
		d.hang()
	}
	f, err := d.FS.Open(name)
	if block && d.inRead && err == nil {
		f = hungFile{f, d}
	}
	return f, err
}

func (d *hungDisk) CreateExclusive(name string) (vfs.File, error) {
	if strings.HasSuffix(name, tmpSuffix) && d.inWrite {
		d.hang()
	}
	return d.FS.CreateExclusive(name)
}

type hungFile struct {
	vfs.File
	d *hungDisk
}

func (f hungFile) ReadAt(p []byte, off int64) (int, error) {
	f.d.hang()
	return f.File.ReadAt(p, off)
}

// hung returns a store over a disk that hangs until the test, or mend, ends.
func hung(t *testing.T, disk *hungDisk, cfg Config) (s *Store, fake *clock.Fake, h blocktest.Harness, mend func()) {
	disk.FS, disk.gate = crashfs.New(), make(chan struct{})
	cfg.FS, cfg.Dir = disk, "/b"
	s, fake, h = harness(t, cfg)
	var once atomic.Bool
	mend = func() {
		if !once.Swap(true) {
			close(disk.gate)
		}
	}
	t.Cleanup(mend)
	return s, fake, h, mend
}

// leaveHanging sends a request whose client goes away once it hangs in the disk.
func leaveHanging(t *testing.T, disk *hungDisk, h blocktest.Harness, signed blockstore.Signed, body []byte) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	req, err := signed.NewRequest(ctx, body)
	if err != nil {
		t.Fatal(err)
	}
	before, sent := disk.in.Load(), make(chan struct{})
	go func() {
		defer close(sent)
		if resp, err := h.Client.Do(req); err == nil {
			_ = resp.Body.Close()
		}
	}()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for over := time.Now().Add(2 * time.Minute); disk.in.Load() == before; <-tick.C {
		if time.Now().After(over) {
			t.Fatal("it does not hang")
		}
	}
	cancel()
	<-sent
}

// Reads that hang in the disk when their clients have gone are few, and others are told so; so are
// commits, which look at a block.
func TestHungReads(t *testing.T) {
	const most = 8
	obj, crc := object(1000, 1)
	key := blockstore.Key{Term: 1, Seq: 1}
	for name, disk := range map[string]*hungDisk{"open": {inOpen: true}, "transfer": {inRead: true}} {
		t.Run(name, func(t *testing.T) {
			s, fake, h, mend := hung(t, disk, Config{})
			s.gate = newGate(most, fake.Mono)
			if err := s.Put(t.Context(), key, obj, crc); err != nil {
				t.Fatal(err)
			}
			get, err := s.SignGet(key, h.Now().Add(time.Hour))
			if err != nil {
				t.Fatal(err)
			}
			for range most {
				leaveHanging(t, disk, h, get, nil)
			}
			awaitStats(t, s, func(Stats) bool { return len(s.gate.places) == most })
			fake.Advance(2 * gatePatience)
			if status, kind := send(t, h.Client, get, nil); status != http.StatusServiceUnavailable || kind != "RETRY" {
				t.Errorf("one read more: %d %s", status, kind)
			}
			if _, err := s.Stat(t.Context(), key); fserror.KindOf(err) != fserror.Retry {
				t.Errorf("a look at a block: %v", err)
			}
			if n := disk.in.Load(); n != most {
				t.Errorf("%d reads hang, of at most %d", n, most)
			}
			mend()
			awaitStats(t, s, func(Stats) bool { return len(s.gate.places) == 0 })
			if status, kind := send(t, h.Client, get, nil); status != http.StatusOK {
				t.Errorf("when the disk is back: %d %s", status, kind)
			}
		})
	}
}

// A read that finds no place gets the next one that is given back.
func TestReadWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := &clock.Fake{}
		g := newGate(1, fake.Mono)
		if err := g.enter(t.Context(), "get", "a"); err != nil {
			t.Fatal(err)
		}
		go g.leave()
		if err := g.enter(t.Context(), "get", "b"); err != nil {
			t.Error(err)
		}
	})
}

// While others come and go one waits for longer, also behind many.
func TestReadWaitsWhileOthersMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		g := newGate(2, func() time.Duration { return time.Since(began) })
		for range 2 {
			if err := g.enter(t.Context(), "get", "a"); err != nil {
				t.Fatal(err)
			}
		}
		ended := make(chan error)
		for range 10 {
			go func() {
				err := g.enter(t.Context(), "get", "b")
				if err == nil {
					<-time.After(gatePatience * 2 / 3) // the bubble's clock
					g.leave()
				}
				ended <- err
			}()
		}
		g.leave() // the other one hangs
		for range 10 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	})
}

// A client that goes while it is sent to is told of, so that what waits for it ends: only what is in
// the file system keeps a place.
func TestTransferEndsWithItsClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(1, (&clock.Fake{}).Mono)
		ctx, cancel := context.WithCancel(t.Context())
		told := make(chan struct{})
		end := g.transfer(ctx, func() { close(told) })
		cancel()
		<-told
		synctest.Wait()
		if len(g.places) != 1 {
			t.Error("what goes on without its client has no place")
		}
		end()
		synctest.Wait()
		if len(g.places) != 0 {
			t.Error("it has one when it has ended")
		}
	})
}

// A PUT has its place until it comes back from the disk, also when it had to make room.
func TestHungPuts(t *testing.T) {
	const most = 4
	disk := &hungDisk{inWrite: true}
	s, fake, h, mend := hung(t, disk, Config{MaxPuts: most})
	obj, crc := object(1000, 1)
	sign := func(seq uint64) blockstore.Signed {
		signed, err := s.SignPut(blockstore.Key{Term: 1, Seq: seq}, int64(len(obj)), crc, h.Now().Add(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		return signed
	}
	for i := range uint64(most) {
		leaveHanging(t, disk, h, sign(1+i), obj)
		fake.Advance(2 * time.Second)
	}
	s.slots.patience = time.Millisecond
	for i := range uint64(3 * most) {
		if status, kind := send(t, h.Client, sign(100+i), obj); status != http.StatusServiceUnavailable || kind != "RETRY" {
			t.Fatalf("one PUT more: %d %s", status, kind)
		}
		fake.Advance(2 * time.Second)
	}
	if n, st := disk.in.Load(), s.Stats(); n != most || st.PutsInFlight != most {
		t.Errorf("%d PUTs hang, it says %d, of at most %d", n, st.PutsInFlight, most)
	}
	mend()
	awaitStats(t, s, func(st Stats) bool { return st.PutsInFlight == 0 })
	s.slots.patience = cutPatience
	if status, kind := send(t, h.Client, sign(1000), obj); status != http.StatusOK {
		t.Errorf("when the disk is back: %d %s", status, kind)
	}
}
