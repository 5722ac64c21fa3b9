package many

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"

	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
	"github.com/leasefs/leasefs/test/env/spawn"
)

// leasefs is the program under test, which is built for the first that asks.
func leasefs(t testing.TB) string {
	t.Helper()
	program, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return program
}

var build = sync.OnceValues(func() (string, error) {
	if other := os.Getenv("LEASEFS_MANY"); other != "" { // another version, to compare with
		return other, nil
	}
	program := filepath.Join(os.Getenv("TMPDIR"), "leasefs")
	out, err := exec.Command("go", "build", "-buildvcs=false", "-ldflags=-s -w", "-o", program, "../../cmd/leasefs").CombinedOutput() //nolint:gosec // its own
	if err != nil {
		err = fmt.Errorf("go build: %w\n%s", err, out)
	}
	return program, err
})

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	if addr := os.Getenv(beside); addr != "" {
		if err := standBeside(addr); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return 0
	}
	temp, err := filepath.Abs("../../.cache/tmp") // not in memory, as /tmp may be
	if err == nil {
		err = os.MkdirAll(temp, 0o755) //nolint:gosec // a usual mode
	}
	var dir string
	if err == nil {
		dir, err = os.MkdirTemp(temp, "leasefs-many-")
	}
	if err == nil {
		err = os.Setenv("TMPDIR", dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	return m.Run()
}

// namenode is a process on one folder and one pair of ports.
type namenode struct {
	t                  testing.TB
	data, listen, http string
	flags              []string // more of them
	cmd                *exec.Cmd
	exited             <-chan struct{}
}

func startNamenode(t testing.TB, flags ...string) *namenode {
	t.Helper()
	host := spawn.Loopback()
	n := &namenode{t: t, data: filepath.Join(t.TempDir(), "data"), listen: host + ":7070", http: host + ":7071", flags: flags}
	n.start()
	t.Cleanup(n.kill)
	return n
}

// start starts it and waits until it answers.
func (n *namenode) start() {
	n.t.Helper()
	argv := append([]string{"namenode", "--data", n.data, "--listen", n.listen, "--http", n.http, "--insecure-trust-clients", "--pprof", "--log-level", "error"}, n.flags...)
	n.cmd = exec.CommandContext(context.Background(), leasefs(n.t), argv...) //nolint:gosec // its own
	n.cmd.Stderr = os.Stderr
	out, in := io.Pipe()
	n.cmd.Stdout = in
	var err error
	if n.exited, err = spawn.Start(n.cmd); err != nil {
		n.t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || !strings.HasPrefix(line, "ready") {
		n.t.Fatalf("the namenode says %q: %v", line, err)
	}
	go func() { _, _ = io.Copy(io.Discard, out) }()
}

func (n *namenode) kill() {
	_ = n.cmd.Process.Kill()
	<-n.exited
}

func (n *namenode) get(path string) string {
	n.t.Helper()
	resp, err := http.Get("http://" + n.http + path) //nolint:gosec,noctx // its own
	if err != nil {
		n.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		n.t.Fatal(err)
	}
	return string(b)
}

// metric is the value of one without labels.
func (n *namenode) metric(name string) float64 {
	n.t.Helper()
	for line := range strings.Lines(n.get("/metrics")) {
		if v, ok := strings.CutPrefix(line, name+" "); ok {
			f, err := strconv.ParseFloat(strings.TrimSpace(v), 64)
			if err != nil {
				n.t.Fatal(err)
			}
			return f
		}
	}
	n.t.Fatalf("no metric %s", name)
	return 0
}

// cpu is how much processor time it has used.
func (n *namenode) cpu() time.Duration {
	n.t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", n.cmd.Process.Pid))
	if err != nil {
		n.t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(raw), ") ")
	f := strings.Fields(rest)
	user, _ := strconv.Atoi(f[11])
	system, _ := strconv.Atoi(f[12])
	return time.Duration(user+system) * 10 * time.Millisecond // ticks of a hundredth
}

// size is what it takes: bytes of heap and stacks in use, resident bytes, goroutines.
type size struct{ heap, stacks, resident, goroutines float64 }

func (n *namenode) size() size {
	n.t.Helper()
	for range 3 { // each halves the stacks of which little is used
		n.get("/debug/pprof/heap?gc=1")
	}
	return size{
		heap:       n.metric("go_memstats_heap_inuse_bytes"),
		stacks:     n.metric("go_memstats_stack_inuse_bytes"),
		resident:   n.metric("process_resident_memory_bytes"),
		goroutines: n.metric("go_goroutines"),
	}
}

// profile writes a profile to the folder LEASEFS_PROFILES, if that is set.
func (n *namenode) profile(name, what string) {
	n.t.Helper()
	if dir := os.Getenv("LEASEFS_PROFILES"); dir != "" {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(n.get("/debug/pprof/"+what)), 0o600); err != nil {
			n.t.Fatal(err)
		}
	}
}

// profileCPU is profile of the processor's time, of seconds from now. wait waits for it.
func (n *namenode) profileCPU(name string, seconds int) (wait func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		n.profile(name, fmt.Sprintf("profile?seconds=%d", seconds))
	}()
	return func() { <-done }
}

// report reports times as a benchmark's metrics.
func report(b *testing.B, times []time.Duration, what string) {
	b.Helper()
	if len(times) == 0 {
		b.Fatalf("no %s", what)
	}
	slices.Sort(times)
	ms := func(q float64) float64 {
		return float64(times[min(len(times)-1, int(q*float64(len(times))))]) / 1e6
	}
	b.ReportMetric(ms(0.5), what+"-p50-ms")
	b.ReportMetric(ms(0.99), what+"-p99-ms")
}

// bystander is a process that stats the root over and over. stop ends it and returns
// how long each took. What failed is repeated and not counted, nor is the first one, with
// which it connects.
func (n *namenode) bystander() (stop func() []time.Duration) {
	n.t.Helper()
	self, err := os.Executable()
	if err != nil {
		n.t.Fatal(err)
	}
	cmd := exec.CommandContext(context.Background(), self) //nolint:gosec // this program
	cmd.Env = append(os.Environ(), beside+"="+n.listen)
	cmd.Stderr = os.Stderr
	var out bytes.Buffer
	cmd.Stdout = &out
	in, err := cmd.StdinPipe()
	if err != nil {
		n.t.Fatal(err)
	}
	exited, err := spawn.Start(cmd)
	if err != nil {
		n.t.Fatal(err)
	}
	return func() (took []time.Duration) {
		n.t.Helper()
		_ = in.Close()
		<-exited
		if err := json.Unmarshal(out.Bytes(), &took); err != nil || len(took) < 2 {
			n.t.Fatalf("the bystander says %q: %v", out.String(), err)
		}
		return took[1:]
	}
}

// beside is the variable that makes a process of this program a bystander, and names its namenode.
const beside = "LEASEFS_MANY_BESIDE"

// standBeside is such a process. It ends with its input.
func standBeside(addr string) error {
	cc, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 10 * time.Millisecond, MaxDelay: 50 * time.Millisecond, Multiplier: 2}, MinConnectTimeout: time.Second}))
	if err != nil {
		return err
	}
	nn, who := pb.NewNamenodeClient(cc), &pb.Caller{User: "root", Client: "bystander", Session: pb.NewSession("root"), Host: "h", Pid: 1}
	ctx, cancel := context.WithCancel(context.Background())
	go func() { _, _ = io.Copy(io.Discard, os.Stdin); cancel() }()
	var took []time.Duration
	for ctx.Err() == nil {
		began := time.Now()
		if _, err := nn.Stat(ctx, statOf(who, "/"), grpc.WaitForReady(true)); err == nil {
			took = append(took, time.Since(began))
		}
		select {
		case <-ctx.Done():
		case <-time.After(2 * time.Millisecond):
		}
	}
	return json.NewEncoder(os.Stdout).Encode(took)
}

// openFiles raises the limit as far as it goes, and returns it.
func openFiles(t testing.TB) int {
	t.Helper()
	var l syscall.Rlimit
	err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l)
	if err == nil && l.Cur < l.Max {
		l.Cur = l.Max
		err = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &l)
	}
	if err != nil {
		t.Fatal(err)
	}
	return int(l.Cur) //nolint:gosec // small
}
