package experiments

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/test/env/spawn"
	"github.com/leasefs/leasefs/test/experiments/report"
)

// writerEnv says to the test's program that it is a writer: KIND TTL ADDRESS PATH NAME.
const writerEnv = "LEASEFS_EXPERIMENT_WRITER"

// TestMain is also the program of the writers that experiment I kills.
func TestMain(m *testing.M) {
	if how := os.Getenv(writerEnv); how != "" {
		if err := beWriter(strings.Fields(how)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	code := m.Run()
	if built.dir != "" {
		_ = os.RemoveAll(built.dir)
	}
	os.Exit(code)
}

// file is the file that writers take, write to and lose. write returns when the bytes are
// durable.
type file struct {
	write func(ctx context.Context, line string) error
	close func()
}

// takers are the ways to become the only writer of a file: each returns when it is.
var takers = map[string]func(ctx context.Context, ttl time.Duration, addr, path, name string) (*file, error){
	"leasefs": takeLeasefs, "etcd": takeEtcd, "flock": takeFlock,
}

// connected is a leasefs client that is connected before it has to take a file.
func connected(ctx context.Context, ttl time.Duration, addr, name string) (*client.FS, error) {
	return client.New(ctx, client.Config{Namenodes: []string{addr}, Client: name, TTL: ttl})
}

func takeLeasefs(ctx context.Context, ttl time.Duration, addr, path, name string) (*file, error) {
	fs, err := connected(ctx, ttl, addr, name)
	if err != nil {
		return nil, err
	}
	return takeWith(ctx, fs, path)
}

func takeWith(ctx context.Context, fs *client.FS, path string) (*file, error) {
	w, err := fs.Append(ctx, path, client.WithCreate(), client.WithParents(), client.WithWait(10*time.Minute))
	if err != nil {
		return nil, err
	}
	return &file{
		func(ctx context.Context, line string) error {
			if _, err := w.WriteContext(ctx, []byte(line)); err != nil {
				return err
			}
			return w.Flush(ctx)
		},
		func() { _ = fs.Close() },
	}, nil
}

func takeEtcd(ctx context.Context, ttl time.Duration, addr, path, _ string) (*file, error) {
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{"http://" + addr}, Logger: quietLog})
	if err != nil {
		return nil, err
	}
	s, err := concurrency.NewSession(c, concurrency.WithTTL(int(ttl.Seconds())))
	if err != nil {
		return nil, err
	}
	if err := concurrency.NewMutex(s, "/lock"+path).Lock(ctx); err != nil {
		return nil, err
	}
	return appendTo(path, func() { _ = c.Close() })
}

func takeFlock(_ context.Context, _ time.Duration, _, path, _ string) (*file, error) {
	lock, err := os.OpenFile(path+".lock", os.O_RDWR|os.O_CREATE, 0o640)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return nil, err
	}
	return appendTo(path, func() { _ = lock.Close() })
}

func appendTo(path string, end func()) (*file, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o640)
	if err != nil {
		return nil, err
	}
	return &file{
		func(_ context.Context, line string) error {
			if _, err := f.WriteString(line); err != nil {
				return err
			}
			return f.Sync()
		},
		func() { _ = f.Close(); end() },
	}, nil
}

// beWriter takes a file, says so, and writes to it until it is killed.
func beWriter(how []string) error {
	ttl, err := time.ParseDuration(how[1])
	if err != nil {
		return err
	}
	ctx := context.Background() //nolint:usetesting // it is no test
	f, err := takers[how[0]](ctx, ttl, how[2], how[3], how[4])
	if err != nil {
		return err
	}
	for i := 0; ; i++ {
		if err := f.write(ctx, "a line of the first writer\n"); err != nil {
			return err
		}
		if i == 0 {
			fmt.Println("written")
		}
		<-time.After(100 * time.Millisecond)
	}
}

// handOvers kills writers, and measures how long it takes until a successor's first bytes
// are durable.
func handOvers(t *testing.T, r *report.Result) {
	ttls := sizes([]time.Duration{2 * time.Second}, []time.Duration{2 * time.Second, 5 * time.Second, 10 * time.Second})
	n := sizes(3, 12)
	nn := startNamenode(t)
	defer nn.kill()
	etcdAddr := ""
	if *etcd != "" {
		s := startEtcd(t)
		defer s.kill()
		etcdAddr = s.clients
	}
	table := report.Table{
		Title:   fmt.Sprintf("From kill -9 of a writer, at any time, to its successor's first durable bytes; %d writers each, all processes on one machine. etcd %s guards a local file, written with fsync.", n, etcdVersion()),
		Columns: []string{"how", "limit or TTL", "least", "median", "most"},
	}
	chart := report.Chart{Name: "handover", Title: "From a writer's death to its successor's first durable bytes", X: report.Axis{Label: "milliseconds", Log: true}, Y: report.Axis{Label: "per cent of hand-overs done"}}
	type way struct {
		name, short, kind, addr string
		same                    bool // under the client name of the dead one, as a restarted service is
		ttls                    []time.Duration
	}
	ways := []way{
		{"leasefs, another client waits", "leasefs", "leasefs", nn.addr, false, ttls},
		{"leasefs, the same client name", "leasefs, same client name", "leasefs", nn.addr, true, ttls[len(ttls)-1:]},
		{"flock on a local file system", "flock", "flock", "-", false, []time.Duration{0}},
	}
	if etcdAddr != "" {
		ways = append(ways, way{"etcd and a file", "etcd and a file", "etcd", etcdAddr, false, ttls})
	}
	for i, w := range ways {
		for _, ttl := range w.ttls {
			took := make([]time.Duration, n)
			var running sync.WaitGroup
			for j := range n {
				running.Go(func() {
					took[j] = handOver(t, w.kind, ttl, w.addr, w.same, fmt.Sprintf("%d-%v-%d", i, ttl, j), time.Duration(j)*ttl/time.Duration(2*n))
				})
			}
			running.Wait()
			if t.Failed() {
				return
			}
			slices.Sort(took)
			name, limit := w.short, "–"
			if ttl > 0 && !w.same {
				limit = report.Show(ttl)
				name += ", " + limit
			}
			line := report.Series{Name: name, Steps: true}
			for j, d := range took {
				line.Add(float64(d)/float64(time.Millisecond), 100*float64(j+1)/float64(n))
			}
			chart.Series = append(chart.Series, line)
			table.Row(w.name, limit, took[0], took[n/2], took[n-1])
		}
	}
	r.Tables, r.Charts = []report.Table{table}, []report.Chart{chart}
}

// handOver starts a writer in a process, has a successor wait, and kills the writer a
// while after it has written.
func handOver(t *testing.T, kind string, ttl time.Duration, addr string, same bool, id string, while time.Duration) time.Duration {
	path := "/handover/" + id
	if kind != "leasefs" {
		path = filepath.Join(t.TempDir(), id)
	}
	first, second := "first-"+id, "second-"+id
	if same {
		second = first
	}
	read, write, err := os.Pipe()
	if err != nil {
		t.Error(err)
		return 0
	}
	defer read.Close()
	p := &process{cmd: exec.Command(os.Args[0])} //nolint:gosec // this program
	p.cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %v %s %s %s", writerEnv, kind, ttl, addr, path, first))
	p.cmd.Stdout, p.cmd.Stderr = write, os.Stderr
	p.exited, err = spawn.Start(p.cmd)
	_ = write.Close()
	if err != nil {
		t.Error(err)
		return 0
	}
	defer p.kill()
	if _, err := bufio.NewReader(read).ReadString('\n'); err != nil {
		t.Errorf("a writer of %s ended: %v", path, err)
		return 0
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	type taken struct {
		f   *file
		err error
	}
	got := make(chan taken, 1)
	var fs *client.FS
	if same { // a supervisor starts it when the first has ended; it is connected by then
		if fs, err = connected(ctx, ttl, addr, second); err != nil {
			t.Error(err)
			return 0
		}
	} else {
		go func() {
			f, err := takers[kind](ctx, ttl, addr, path, second)
			got <- taken{f, err}
		}()
	}
	<-time.After(while + 300*time.Millisecond)
	began := time.Now()
	p.kill()
	if same {
		f, err := takeWith(ctx, fs, path)
		got <- taken{f, err}
	}
	g := <-got
	if g.err == nil {
		defer g.f.close()
		g.err = g.f.write(ctx, "a line of the second writer\n")
	}
	if g.err != nil {
		t.Errorf("%s: %v", path, g.err)
	}
	return time.Since(began)
}
