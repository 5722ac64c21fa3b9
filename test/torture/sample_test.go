//go:build torture

package torture

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/leasefs/leasefs/test/env"
	"github.com/leasefs/leasefs/test/env/drift"
)

const (
	sampleEvery = 5 * time.Second
	sampleLimit = 3 * time.Second // a process that stands still has no sample
	// judged is how long a soak has to be for what grew in it to mean something: garbage waits
	// for URLs, which live for a quarter of an hour, and logs have tails until they are sealed.
	judged = 40 * time.Minute
)

// grown are the bounds of what may have grown in the last half of a soak: its first half is
// the warm-up. What is sampled and not here is drawn only.
var grown = map[string]drift.Bound{
	"resident":                {Part: 0.25, Floor: 48 << 20},
	"heap":                    {Part: 0.25, Floor: 16 << 20},
	"goroutines":              {Part: 0.25, Floor: 40},
	"descriptors":             {Part: 0.25, Floor: 40},
	"watches":                 {Part: 0.25, Floor: 40},
	"nodes":                   {Part: 0.25, Floor: 200},
	"disk":                    {Part: 0.5, Floor: 64 << 20},
	"garbage_blocks":          {Part: 0.5, Floor: 300},
	"journal_bytes":           {Part: 0.5, Floor: 32 << 20},
	"zookeeper_journal_nodes": {Part: 0.5, Floor: 500},
	"zookeeper_journal_bytes": {Part: 0.5, Floor: 8 << 20},
}

// sawn is what an image takes away, or a collection: it has teeth of some minutes, as high as
// what happened between two of them.
var sawn = map[string]bool{
	"nodes": true, "zookeeper_journal_nodes": true, "zookeeper_journal_bytes": true, "journal_bytes": true, "garbage_blocks": true, "disk": true,
}

// ofMetrics are the values of a namenode that are sampled, by the names of its metrics.
var ofMetrics = map[string]string{
	"process_resident_memory_bytes": "resident", "go_memstats_heap_alloc_bytes": "heap", "go_goroutines": "goroutines", "process_open_fds": "descriptors",
	"leasefs_inodes": "inodes", "leasefs_blocks": "blocks", "leasefs_garbage_blocks": "garbage_blocks", "leasefs_tail_bytes": "tail_bytes",
	"leasefs_journal_bytes": "journal_bytes", "leasefs_zookeeper_journal_nodes": "zookeeper_journal_nodes", "leasefs_zookeeper_journal_bytes": "zookeeper_journal_bytes",
	"leasefs_lease_history_bytes": "lease_history_bytes", "leasefs_retry_sessions": "retry_sessions", "leasefs_leases": "leases", "leasefs_standby": "standby", "leasefs_txid": "txid",
}

// ofZooKeeper are those of a ZooKeeper server.
var ofZooKeeper = map[string]string{
	"zk_znode_count": "nodes", "zk_watch_count": "watches", "zk_approximate_data_size": "data_bytes", "zk_open_file_descriptor_count": "descriptors",
	"zk_num_alive_connections": "connections",
}

// sampler takes samples of all processes, and writes them as JSON lines.
type sampler struct {
	f     *fleet
	pipe  *http.Transport
	began time.Time

	mu  sync.Mutex
	out *json.Encoder
	err error
	of  map[[2]string][]drift.Sample // by the process and what is sampled
}

// sample begins to take samples, if this is a soak. end ends that, and breaks a promise for
// what grew.
func (f *fleet) sample() (end func()) {
	if *soak == "" {
		return func() {}
	}
	file, err := os.Create(filepath.Join(*soak, "samples.jsonl"))
	if err != nil {
		f.t.Fatal(err)
	}
	s := &sampler{f: f, began: time.Now(), out: json.NewEncoder(file), of: map[[2]string][]drift.Sample{},
		pipe: &http.Transport{DialContext: newHost(f.lab.Observer(), f.addrs).DialContext, DisableKeepAlives: true}}
	ctx, cancel := context.WithCancel(f.t.Context())
	var running sync.WaitGroup
	running.Go(func() { s.run(ctx) })
	stop := sync.OnceFunc(func() {
		cancel()
		running.Wait()
		if err := file.Close(); s.err == nil {
			s.err = err
		}
	})
	f.t.Cleanup(stop)
	return func() {
		stop()
		s.judge()
	}
}

// run takes samples until ctx ends.
func (s *sampler) run(ctx context.Context) {
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	calls, since := s.calls(), time.Now()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		at := time.Since(s.began)
		var all sync.WaitGroup
		for _, n := range s.f.nodes {
			all.Go(func() { s.namenode(ctx, at, n) })
		}
		for i := range servers {
			all.Go(func() { s.server(at, fmt.Sprint("zk", i), s.f.zk.Server(i)) })
		}
		all.Go(func() {
			values := map[string]float64{}
			if s.f.store != nil {
				values = ofProcess(s.f.store.PID())
			}
			values["disk"] = ofFolder(s.f.blocks)
			s.take(at, storeName, "", values)
		})
		all.Wait()
		values := ofProcess(os.Getpid())
		delete(values, "resident") // it keeps the history
		values["goroutines"] = float64(runtime.NumGoroutine())
		now := s.calls()
		values["calls_per_s"] = float64(now-calls) / time.Since(since).Seconds()
		calls, since = now, time.Now()
		s.take(at, "clients", "", values)
	}
}

// calls is how many calls of clients have succeeded.
func (s *sampler) calls() (n int) {
	for _, done := range s.f.w.Done() {
		n += done
	}
	return n
}

// take takes in a sample of a process, of a release if there are two.
func (s *sampler) take(at time.Duration, process, release string, values map[string]float64) {
	if len(values) == 0 {
		return
	}
	line := map[string]any{"at": at.Seconds(), "process": process}
	if release != "" {
		line["release"] = release
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for what, v := range values {
		line[what] = v
		key := [2]string{process, what}
		s.of[key] = append(s.of[key], drift.Sample{At: at, Value: v})
	}
	if err := s.out.Encode(line); s.err == nil {
		s.err = err
	}
}

// namenode samples one, after a collection of its garbage; one that does not answer has no
// sample. Which release it is, is told by what it was started with last.
func (s *sampler) namenode(ctx context.Context, at time.Duration, n *node) {
	release := "new"
	if n.starts() == s.f.last {
		release = "last"
	}
	ctx, cancel := context.WithTimeout(ctx, sampleLimit)
	defer cancel()
	if s.get(ctx, n.name+":8021/debug/pprof/heap?gc=1", nil) != nil {
		return
	}
	values := map[string]float64{}
	if s.get(ctx, n.name+":8021/metrics", func(name string, v float64) {
		if what, ok := ofMetrics[name]; ok {
			values[what] = v
		}
	}) == nil {
		values["disk"] = ofFolder(filepath.Join(n.disk, "data"))
		s.take(at, n.name, release, values)
	}
}

// get asks for a page, and hands out its lines that are a name and a number.
func (s *sampler) get(ctx context.Context, url string, each func(name string, v float64)) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+url, nil)
	if err != nil {
		return err
	}
	resp, err := s.pipe.RoundTrip(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 16<<20) // a profile has no lines
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), " ")
		if v, err := strconv.ParseFloat(value, 64); err == nil && each != nil {
			each(name, v)
		}
	}
	return lines.Err()
}

func (s *sampler) server(at time.Duration, name string, z *env.ZooKeeperServer) {
	stats, err := z.Stats()
	if err != nil {
		return
	}
	values := map[string]float64{}
	for stat, what := range ofZooKeeper {
		if v, ok := stats[stat]; ok {
			values[what] = float64(v)
		}
	}
	if v, ok := ofProcess(z.PID())["resident"]; ok {
		values["java_resident"] = v // it takes what it is allowed before it collects garbage, so nothing is judged by it
	}
	s.take(at, name, "", values)
}

// ofProcess is what the system tells of a process; nothing if it has ended.
func ofProcess(pid int) map[string]float64 {
	values := map[string]float64{}
	if pid == 0 {
		return values
	}
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if f := strings.Fields(string(raw)); err == nil && len(f) > 1 {
		pages, _ := strconv.Atoi(f[1])
		values["resident"] = float64(pages * os.Getpagesize())
	}
	if open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid)); err == nil {
		values["descriptors"] = float64(len(open))
	}
	return values
}

// ofFolder is how much room the files in a folder take, in bytes.
func ofFolder(dir string) (sum float64) {
	_ = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil {
			return nil // it was deleted meanwhile
		}
		info, err := e.Info()
		if err != nil {
			return nil
		}
		if stat, ok := info.Sys().(*syscall.Stat_t); ok {
			sum += float64(stat.Blocks * 512)
		}
		return nil
	})
	return sum
}

// judge breaks a promise for each value that has grown.
func (s *sampler) judge() {
	if s.err != nil {
		s.f.t.Errorf("the samples cannot be written: %v", s.err)
	}
	long := time.Since(s.began) >= judged
	if !long {
		s.f.t.Logf("shorter than %v: it is not judged what grew", judged)
	}
	for _, key := range slices.SortedFunc(maps.Keys(s.of), func(a, b [2]string) int { return slices.Compare(a[:], b[:]) }) {
		bound, ok := grown[key[1]]
		if !ok {
			continue
		}
		trendOf := drift.Of
		if sawn[key[1]] {
			trendOf = drift.OfSaw
		}
		trend, ok := trendOf(s.of[key])
		switch {
		case !ok && long:
			s.f.w.Break("%s of %s: %d samples are too few to tell whether it grew", key[1], key[0], len(s.of[key]))
		case ok:
			s.f.t.Logf("%s of %s: median %.4g, grown by %.4g in the last %v", key[1], key[0], trend.Median, trend.Grown, trend.Over.Round(time.Second))
			if long && trend.Exceeds(bound) {
				s.f.w.Break("%s of %s grew by %.4g in the last %v, to a median of %.4g: more than %g of it and %g", key[1], key[0], trend.Grown, trend.Over.Round(time.Second), trend.Median, bound.Part, bound.Floor)
			}
		}
	}
}
