package e2e_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/leasefs/leasefs/client"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
	"github.com/leasefs/leasefs/test/env"
)

// filling is a namenode of the altered program of which something fills up. Its forecasts go by
// a clock that the test moves, and it reads what is in use whenever it is asked.
type filling struct {
	*namenode
	t     *testing.T
	ahead func(name string, by time.Duration)
}

// newFilling makes one, which is not started yet.
func newFilling(t *testing.T, n *namenode) *filling {
	t.Helper()
	return &filling{n, t, n.alter(t)}
}

// rooms are what its status tells.
func (f *filling) rooms(ctx context.Context) []client.Room {
	f.t.Helper()
	list, err := client.QueryStatus(ctx, client.Config{Namenodes: []string{f.listen}})
	if err != nil || list[0].Err != nil {
		f.t.Fatal(err, list)
	}
	return list[0].Rooms
}

// foretells fills something, each minute by as much, for longer than an hour, and sees that status
// tells what will be used up, and when: the resources that are named, the first one first, and each
// within that part of the time. Disk and store are others', too, unless they are named.
func (f *filling) foretells(ctx context.Context, aMinute int64, within float64, fill func(minute int), resources ...string) {
	f.t.Helper()
	const minutes = 70
	var grow []client.Room
	for minute := range minutes {
		fill(minute)
		f.ahead("forecast", time.Duration(minute)*time.Minute)
		grow = slices.DeleteFunc(f.rooms(ctx), func(r client.Room) bool {
			others := r.Resource == "disk" || r.Resource == "store" // which others fill, too
			return r.Full == nil || others && !slices.Contains(resources, r.Resource)
		})
		if minute < 50 && len(grow) > 0 {
			f.t.Fatalf("after %d minutes: %+v", minute, grow)
		}
	}
	if len(grow) != len(resources) || grow[0].Resource != resources[0] {
		f.t.Fatalf("%+v are to be used up, want %s", grow, resources)
	}
	for _, r := range grow {
		want := time.Duration(r.Limit-r.Used) * time.Minute / time.Duration(aMinute)
		f.t.Logf("%s: %d of %d, full in %s, by its rate in %s", r.Resource, r.Used, r.Limit, *r.Full, want)
		if !slices.Contains(resources, r.Resource) || (*r.Full-want).Abs() > time.Duration(within*float64(want)) {
			f.t.Errorf("%s will be used up in %s, want %s", r.Resource, *r.Full, want)
		}
	}
	out := f.run(ctx, "status")
	if _, table, _ := strings.Cut(out, "\nFULLEST "); !strings.Contains(table, "\n"+resources[0]+" ") {
		f.t.Errorf("people are shown:\n%s", out)
	}
}

// TestForecasts: real resources fill up at a known rate, and status tells in time which it is, and
// when it is used up.
func TestForecasts(t *testing.T) {
	t.Parallel()
	alone := func(t *testing.T) *filling {
		t.Helper()
		return newFilling(t, newNamenode(t, filepath.Join(t.TempDir(), "data")))
	}
	const mib = 1 << 20
	for name, run := range map[string]func(context.Context, *testing.T){
		"disk": func(ctx context.Context, t *testing.T) {
			const size = 320 * mib // 128 MiB are kept free
			disk := newScratch(ctx, t, fmt.Sprint(size))
			f := newFilling(t, newNamenode(t, filepath.Join(disk.dir, "data")))
			f.via = disk.via
			f.start(ctx)
			f.foretells(ctx, mib, 0.1, func(minute int) { disk.fill(size - int64(50+minute)*mib) }, "disk")
		},
		"store": func(ctx context.Context, t *testing.T) {
			const size = 320 * mib
			disk := newScratch(ctx, t, fmt.Sprint(size))
			f := newFilling(t, newNamenode(t, filepath.Join(t.TempDir(), "data"), "--blocks", "file://"+filepath.Join(disk.dir, "blocks")))
			f.via = disk.via
			f.start(ctx)
			f.foretells(ctx, mib, 0.1, func(minute int) { disk.fill(size - int64(50+minute)*mib) }, "store")
		},
		"memory": func(ctx context.Context, t *testing.T) {
			f := alone(t)
			f.env = append(f.env, memoryVariable+"=200", "GOGC=5") // what is used is known after a collection
			f.start(ctx)
			fs, made := f.client(ctx), 0
			value := client.WithXattrs([]client.Xattr{{Name: "user.x", Value: make([]byte, 8<<10)}})
			fill := func(mibs int) {
				var g errgroup.Group
				g.SetLimit(200)
				for range 128 * mibs {
					path := fmt.Sprint("/", made)
					made++
					g.Go(func() error { return fs.WriteFile(ctx, path, nil, value) })
				}
				if err := g.Wait(); err != nil {
					t.Fatal(err)
				}
			}
			fill(40)
			f.foretells(ctx, mib, 0.25, func(int) { fill(1) }, "memory")
		},
		"connections": func(ctx context.Context, t *testing.T) {
			f := alone(t)
			// It has 140 files open from the start, so that half of the descriptors are in use in time.
			f.via = []string{"bash", "-c", `ulimit -n 512; for i in {100..239}; do eval "exec $i</dev/null"; done; exec "$@"`, "bash"}
			f.start(ctx)
			connect := func() {
				cc, err := grpc.NewClient(f.listen, grpc.WithTransportCredentials(insecure.NewCredentials()))
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = cc.Close() }) // it has nothing to say
				if !connects(ctx, cc) {
					t.Fatal("there is no room")
				}
			}
			for range 60 {
				connect()
			}
			f.foretells(ctx, 1, 0.1, func(int) { connect() }, "connections", "descriptors")
		},
		"sessions": func(ctx context.Context, t *testing.T) {
			f := alone(t)
			f.start(ctx)
			r := env.RawAt(t, f.listen, "many")
			begin := func() {
				r.Who = &pb.Caller{User: "root", Client: "many", Session: pb.NewSession("root"), Host: "h", Pid: 1}
				t.Cleanup(r.Connect())
			}
			for range 60 {
				begin()
			}
			f.foretells(ctx, 1, 0.1, func(int) { begin() }, "sessions")
		},
		"tails": func(ctx context.Context, t *testing.T) {
			const each = 128 << 10
			f := alone(t)
			f.env = append(f.env, tailsVariable+"=32")
			f.start(ctx)
			fs, made := f.client(ctx), 0
			fill := func() { // and the writer holds it open, so that it is not sealed
				w, err := fs.Create(ctx, fmt.Sprint("/", made))
				if err == nil {
					_, err = w.Write(make([]byte, each))
				}
				if err == nil {
					err = w.Flush(ctx)
				}
				if err != nil {
					t.Fatal(err)
				}
				made++
			}
			for range 100 {
				fill()
			}
			f.foretells(ctx, each, 0.1, func(int) { fill() }, "tails")
		},
		"zookeeper": func(ctx context.Context, t *testing.T) {
			const each = 192 << 10
			dir := t.TempDir()
			e := startFleet(ctx, t, func(c *fleetConfig) {
				c.n, c.direct, c.program = 1, true, alteredProgram(t)
				c.env = []string{clockVariable + "=" + dir, imageVariable + "=8"}
			})
			m := e.active(ctx)
			f := &filling{m.namenode, t, aheadIn(t, dir)}
			images, err := filepath.Glob(filepath.Join(strings.TrimPrefix(flagOf(t, m.flags, "--blocks"), "file://"), "*", "named"))
			if err != nil || len(images) != 1 {
				t.Fatalf("%q, %v", images, err)
			}
			t.Cleanup(refuseFiles(t, images[0])) // no image frees any of it
			fs, written := e.library(ctx), 0
			fill := func() {
				if err := fs.WriteFile(ctx, fmt.Sprint("/", written), []byte(strings.Repeat("x", each))); err != nil {
					t.Fatal(err)
				}
				written++
			}
			for range 32 {
				fill()
			}
			f.foretells(ctx, each, 0.1, func(int) { fill() }, "zookeeper")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(deadline(t, 8*time.Minute), t) // the program is built in it
		})
	}
}
