package namespace

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/leasefs/leasefs/namenode/namespace/node"
	"github.com/leasefs/leasefs/namenode/namespace/quota"
	"github.com/leasefs/leasefs/namenode/namespace/snapshots"
)

// fill makes n empty closed files with names of 13 bytes, 1,000 a directory.
func fill(b testing.TB, n int) *rig {
	b.Helper()
	r := &rig{tree: New(), now: testStart}
	tree := r.tree
	apply := func(op Op) Result {
		last, _ := tree.Last()
		res, err := tree.Apply(Entry{TxID: last + 1, Time: testStart, Op: op})
		if err != nil {
			b.Fatal(err)
		}
		return res
	}
	apply(&OpActivate{Term: 1, User: "hdfs", Group: "supergroup"})
	var dir InodeID
	op := OpCreate{Mode: 0o644, User: "alice", Group: "staff", Closed: true}
	for i := range n {
		if i%1000 == 0 {
			dir = apply(&OpMkdir{Parent: RootID, Names: []string{fmt.Sprintf("dir%07d", i/1000)}, Mode: 0o755, User: "alice", Group: "staff"}).Inode
		}
		op.Parent, op.Name = dir, fmt.Sprintf("file%09d", i)
		apply(&op)
	}
	return r
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// BenchmarkHeap reports how many bytes of heap one empty file takes, as made by
// records and as read from an image.
func BenchmarkHeap(b *testing.B) {
	const files = 1_000_000
	for b.Loop() {
		before := heap()
		r := fill(b, files)
		b.ReportMetric(float64(heap()-before)/files, "B/file")
		var image bytes.Buffer
		start := time.Now()
		if err := r.tree.WriteImage(&image); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(time.Since(start).Seconds(), "s/write")
		b.ReportMetric(float64(image.Len())/files, "imageB/file")
		runtime.KeepAlive(r)
		r = nil
		before = heap()
		start = time.Now()
		back, err := ReadImage(bytes.NewReader(image.Bytes()))
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(time.Since(start).Seconds(), "s/read")
		b.ReportMetric(float64(heap()-before)/files, "B/file-read")
		runtime.KeepAlive(back)
		runtime.KeepAlive(&image) // it was there before, too
	}
}

// benchFiles is how many files BenchmarkImage has.
var benchFiles = flag.Int("files", 10_000_000, "how many files BenchmarkImage has")

// processor is the processor time that this process has used.
func processor(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkImage writes an image of many empty files with names of 13 bytes, 1,000 a
// directory, to a file, and reads it, in memory that was used before.
func BenchmarkImage(b *testing.B) {
	tree := fill(b, 0).tree
	put := func(n *inode) {
		tree.slots.PutInode(n)
		tree.slots.LinkInode(n)
		tree.counts.Add(n.Type, 1)
	}
	for i, files := 0, *benchFiles; i < files; i += 1000 {
		n := min(1000, files-i)
		dir := &inode{ID: tree.nextInode, Parent: RootID, Type: TypeDir, Mode: 0o755, MTime: testStart, Ext: &node.Ext{N: int64(n)}}
		dir.SetName(fmt.Sprintf("dir%07d", i/1000))
		put(dir)
		for j := range n {
			f := &inode{ID: dir.ID + 1 + InodeID(j), Parent: dir.ID, Type: TypeFile, Mode: 0o644, MTime: testStart + int64(j)}
			f.SetName(fmt.Sprintf("file%09d", i+j))
			put(f)
		}
		tree.nextInode = dir.ID + 1 + InodeID(n)
	}
	root := tree.get(RootID)
	root.OwnExt().N = int64(tree.counts.Dirs - 1)
	tree.put(root)
	file := filepath.Join(b.TempDir(), "image")
	for b.Loop() {
		f, err := os.Create(file)
		if err != nil {
			b.Fatal(err)
		}
		start, used := time.Now(), processor(b)
		if err := tree.WriteImage(f); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(time.Since(start).Seconds(), "s/write")
		b.ReportMetric((processor(b) - used).Seconds(), "cpu-s/write")
		files := tree.Counts().Files
		if info, err := f.Stat(); err == nil {
			b.ReportMetric(float64(info.Size())/float64(files), "image-B/file")
		}
		tree = nil
		before := heap()
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			b.Fatal(err)
		}
		start, used = time.Now(), processor(b)
		if tree, err = ReadImage(f); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(time.Since(start).Seconds(), "s/read")
		b.ReportMetric((processor(b) - used).Seconds(), "cpu-s/read")
		_ = f.Close()
		b.ReportMetric(float64(heap()-before)/float64(files), "B/file")
	}
}

// BenchmarkReplay decodes and applies the journal of 330,000 creates.
func BenchmarkReplay(b *testing.B) {
	const files = 330_000
	r := newRig(b)
	dirs := make([]InodeID, files/1000)
	for i := range dirs {
		dirs[i] = r.must(b, &OpMkdir{Parent: RootID, Names: []string{fmt.Sprintf("dir%07d", i)}, Mode: 0o755, User: "alice", Group: "staff"}).Inode
	}
	for i := range files {
		call := CallID{Session: SessionID{1, byte(i % 32)}, Seq: uint64(i/32 + 1), Acked: uint64(i / 32), Hash: 7}
		op := &OpCreate{Parent: dirs[i/1000], Name: fmt.Sprintf("file%09d", i), Mode: 0o644, User: "alice", Group: "staff", Closed: true}
		if _, err := r.apply(call, op); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		tree := New()
		for _, rec := range r.journal {
			call, op, err := DecodeOp(rec.typ, rec.body)
			if err != nil {
				b.Fatal(err)
			}
			if _, err := tree.Apply(Entry{TxID: rec.txid, Time: rec.time, Call: call, Op: op}); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(b.Elapsed().Seconds()/float64(b.N)/files*1e9, "ns/create")
}

// benchTree is shared by the benchmarks that change nothing or little.
var benchTree *rig

func benchRig(b *testing.B) *rig {
	b.Helper()
	if benchTree == nil {
		benchTree = fill(b, 1_000_000)
		benchTree.tree.Track(true)
	}
	b.ReportAllocs()
	return benchTree
}

func (r *rig) applyDirect(b *testing.B, op Op) Result {
	last, _ := r.tree.Last()
	res, err := r.tree.Apply(Entry{TxID: last + 1, Time: testStart, Op: op})
	if err != nil {
		b.Fatal(err)
	}
	r.tree.SetDurable(last - 1)
	return res
}

func BenchmarkStat(b *testing.B) {
	r := benchRig(b)
	paths := make([]string, 4096)
	for i := range paths {
		n := (i * 7919 * 31) % 1_000_000
		paths[i] = fmt.Sprintf("/dir%07d/file%09d", n/1000, n)
	}
	c := &Call{User: "alice", Groups: []string{"staff"}}
	i := 0
	for b.Loop() {
		if _, err := r.tree.Stat(c, Follow(paths[i%len(paths)])); err != nil {
			b.Fatal(err)
		}
		i++
	}
}

func BenchmarkList100(b *testing.B) {
	r := benchRig(b)
	c := &Call{User: "alice", Groups: []string{"staff"}}
	for b.Loop() {
		if _, _, _, err := r.tree.List(c, Follow("/dir0000500"), "", 100); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCreate(b *testing.B) {
	r := benchRig(b)
	c := &Call{User: "alice", Groups: []string{"staff"}}
	i := 0
	r.applyDirect(b, &OpMkdir{Parent: RootID, Names: []string{fmt.Sprintf("new%d", r.tree.txid)}, Mode: 0o755, User: "alice", Group: "staff"})
	dir := fmt.Sprintf("/new%d/", r.tree.txid-1)
	for b.Loop() {
		op, err := PlanCreate(r.tree, c, CreateRequest{At: At(dir + fmt.Sprintf("file%09d", i)), Mode: 0o644, Close: true})
		if err != nil {
			b.Fatal(err)
		}
		r.applyDirect(b, op)
		i++
	}
}

func BenchmarkRename(b *testing.B) {
	r := benchRig(b)
	c := &Call{User: "alice", Groups: []string{"staff"}}
	names := [2]string{"/dir0000001/file000001001", "/dir0000001/renamed"}
	i := 0
	for b.Loop() {
		op, err := PlanRename(r.tree, c, At(names[i%2]), At(names[1-i%2]), false, false)
		if err != nil {
			b.Fatal(err)
		}
		r.applyDirect(b, op)
		i++
	}
}

// BenchmarkTxn makes two files and moves one over the other, in one record.
func BenchmarkTxn(b *testing.B) {
	r := benchRig(b)
	a, _ := r.tree.Stat(nil, At("/dir0000003"))
	for b.Loop() {
		next := r.tree.nextInode
		r.applyDirect(b, &OpTxn{Parts: []Op{
			&OpCreate{Parent: a.ID, Name: "one", Mode: 0o644, User: "alice", Group: "staff", Closed: true},
			&OpCreate{Parent: a.ID, Name: "two", Mode: 0o644, User: "alice", Group: "staff", Closed: true},
			&OpRename{FromParent: a.ID, FromName: "one", ToParent: a.ID, ToName: "two", Replace: next + 1},
		}})
		r.applyDirect(b, &OpDelete{Parent: a.ID, Name: "two", Inode: next})
	}
}

func BenchmarkAppendTail(b *testing.B) {
	r := benchRig(b)
	a, _ := r.tree.Stat(nil, At("/dir0000002/file000002002"))
	res := r.applyDirect(b, &OpOpen{Inode: a.ID, Holder: Holder{User: "alice", Client: "c", Session: SessionID{1}}, Token: Token{1}})
	w := Writer{Inode: a.ID, Epoch: res.Opened.Epoch, Token: Token{1}}
	c := &Call{User: "alice"}
	data := make([]byte, 100)
	for b.Loop() {
		op, _, err := PlanAppendTail(r.tree, c, w, res.Length, data, 1<<20)
		if err != nil {
			op := &OpCommit{Inode: a.ID, Offset: res.BlocksLength, TailCovered: res.Length - res.BlocksLength}
			op.Block.Key.Term, op.Block.Key.Seq = 1, r.tree.txid
			op.Block.Used = uint32(op.TailCovered)
			op.Block.Stored = op.Block.Used
			res = r.applyDirect(b, op)
			continue
		}
		res = r.applyDirect(b, op)
	}
	r.applyDirect(b, &OpRecover{Inode: a.ID})
}

// BenchmarkCreateDeep makes files three levels below a directory that has a quota, or none, and
// asks whether they fit.
func BenchmarkCreateDeep(b *testing.B) {
	r := benchRig(b)
	c := &Call{User: "alice", Groups: []string{"staff"}}
	for name, limit := range map[string]int64{"free": quota.None, "quota": 1 << 40} {
		b.Run(name, func(b *testing.B) {
			top := fmt.Sprintf("/deep%d", r.tree.txid)
			r.applyDirect(b, &OpMkdir{Parent: RootID, Names: []string{top[1:], "a", "b"}, Mode: 0o755, User: "alice", Group: "staff"})
			a, _ := r.tree.Stat(nil, At(top))
			set := &OpQuota{Inode: a.ID, Limits: quota.Limits{Names: limit, Bytes: limit}}
			r.applyDirect(b, set)
			i := 0
			for b.Loop() {
				op, err := PlanCreate(r.tree, c, CreateRequest{At: At(top + fmt.Sprintf("/a/b/file%09d", i)), Mode: 0o644, Close: true})
				if err == nil {
					err = FitQuotas(r.tree, c, op)
				}
				if err != nil {
					b.Fatal(err)
				}
				r.applyDirect(b, op)
				i++
			}
			set.Limits = quota.Limits{Names: quota.None, Bytes: quota.None}
			r.applyDirect(b, set)
		})
	}
}

// BenchmarkQuotaWalk sets the first quota above a million files.
func BenchmarkQuotaWalk(b *testing.B) {
	r := fill(b, 1_000_000)
	for b.Loop() {
		for _, names := range []int64{1 << 40, quota.None} {
			last, _ := r.tree.Last()
			if _, err := r.tree.Apply(Entry{TxID: last + 1, Time: testStart, Op: &OpQuota{Inode: RootID, Limits: quota.Limits{Names: names, Bytes: quota.None}}}); err != nil {
				b.Fatal(err)
			}
		}
	}
}

// BenchmarkSnapshot makes snapshots of a thousand and of a million files, changes a file for the
// first time after each, and lists a thousand changes of the million.
func BenchmarkSnapshot(b *testing.B) {
	for _, files := range []int{1_000, 1_000_000} {
		b.Run(fmt.Sprint(files), func(b *testing.B) { benchmarkSnapshot(b, files) })
	}
}

func benchmarkSnapshot(b *testing.B, files int) {
	r := fill(b, files)
	middle := InodeID(files / 2) //nolint:gosec // a count
	apply := func(op Op) {
		last, _ := r.tree.Last()
		if _, err := r.tree.Apply(Entry{TxID: last + 1, Time: testStart, Op: op}); err != nil {
			b.Fatal(err)
		}
	}
	apply(&OpSnapshot{Change: snapshots.Change{Do: snapshots.Allow, Dir: RootID}})
	made := 0
	snapshot := func() snapshots.ID {
		made++
		apply(&OpSnapshot{Change: snapshots.Change{Do: snapshots.Make, Dir: RootID, Name: fmt.Sprint(made)}})
		return snapshots.ID(made) //nolint:gosec // a count
	}
	drop := func(id snapshots.ID) {
		apply(&OpSnapshot{Change: snapshots.Change{Do: snapshots.Delete, ID: id}})
	}
	change := func(id InodeID) { apply(&OpSetAttr{Inode: id, SetMTime: true, MTime: int64(id)}) }
	b.Run("make", func(b *testing.B) {
		for b.Loop() {
			drop(snapshot())
		}
	})
	b.Run("change first", func(b *testing.B) {
		for b.Loop() {
			id := snapshot()
			change(middle)
			drop(id)
		}
	})
	b.Run("change later", func(b *testing.B) {
		id := snapshot()
		for b.Loop() {
			change(middle)
		}
		drop(id)
	})
	if files < 1_000_000 {
		return
	}
	b.Run("diff 1000", func(b *testing.B) {
		id := snapshot()
		for i := range InodeID(1000) {
			change(1000 + 900*i)
		}
		for b.Loop() {
			list, next, err := r.tree.SnapshotDiff(nil, At("/"), fmt.Sprint(made), "", 0, 2000)
			if len(list) != 1000 || next != 0 || err != nil {
				b.Fatal(len(list), next, err)
			}
		}
		drop(id)
	})
}
