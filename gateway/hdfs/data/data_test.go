package data_test

import (
	"bytes"
	"crypto/md5"
	"encoding/binary"
	"hash/crc32"
	"math/rand/v2"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/leasefs/leasefs/gateway/hdfs/files"
	pb "github.com/leasefs/leasefs/gateway/hdfs/hadoop"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/test/env"
)

// random are bytes that differ from their neighbours.
func random(n int, seed uint64) []byte {
	b := make([]byte, n)
	r := rand.New(rand.NewPCG(seed, 1))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// TestBlocks: a file of several blocks, with a flush at every odd place, is what it should be after
// each acknowledgement, to readers of blocks and of the library.
func TestBlocks(t *testing.T) {
	r := start(t)
	const size = 8 * kib
	inode, b := r.create("c", "/f", size)
	all := random(2*size+700, 1)
	var previous *files.Block
	flushes := 0
	for at := 0; at < len(all); {
		if previous != nil {
			b = r.add("c", inode, previous)
			if again := r.add("c", inode, previous); again != b {
				t.Fatalf("asked again, the block is %+v, not %+v", again, b)
			}
		}
		w := r.writing(b)
		n := min(size, len(all)-at)
		for off := 0; off < n; {
			k := min(n-off, []int{1, 510, 1, 512, 513, 4000, 7}[flushes%7])
			flushes++
			w.put(int64(off), all[at+off:at+off+k])
			off += k
			r.holds("/f", all[:at+off])
		}
		w.finish(int64(n))
		at += n
		b.Length = int64(n)
		done := b
		previous = &done
	}
	r.complete("c", inode, previous)
	r.complete("c", inode, previous) // the answer was lost
	r.holds("/f", all)
	if i, err := r.fs.Stat(t.Context(), "/f"); err != nil || i.Open != nil {
		t.Fatalf("it is open: %v", err)
	}

	l, err := r.files.Locate(t.Context(), r.u, "/f", 0, 1<<40)
	if err != nil || l.Blocks.Len() != 3 || l.Length != int64(len(all)) || l.Last.Length != 700 || l.Open {
		t.Fatalf("%+v %v", l, err)
	}
	for i := range l.Blocks.Len() {
		b := l.Blocks.At(i)
		for _, c := range [][2]int64{{0, b.Length}, {1, b.Length - 1}, {511, 3}, {512, 0}, {b.Length - 1, 1}, {b.Length / 2, b.Length / 4}} {
			got := r.read(b, c[0], c[1], i%2 == 0)
			if want := all[b.Offset+c[0]:][:c[1]]; !bytes.Equal(got, want) {
				t.Errorf("block %d: %d bytes at %d are others", i, c[1], c[0])
			}
		}
	}
	if some, err := r.files.Locate(t.Context(), r.u, "/f", size+5, 10); err != nil || some.Blocks.Len() != 1 || some.Blocks.At(0).ID != l.Blocks.At(1).ID {
		t.Errorf("%+v %v", some, err)
	}
}

// fileOfOneBlock makes /f with 3 MiB.
func (r *rig) fileOfOneBlock(t *testing.T) (all []byte, l files.Located) {
	t.Helper()
	all = random(3<<20, 2)
	if err := r.fs.WriteFile(t.Context(), "/f", all); err != nil {
		t.Fatal(err)
	}
	l, err := r.files.Locate(t.Context(), r.u, "/f", 0, 1<<40)
	if err != nil || l.Blocks.Len() != 1 {
		t.Fatal(l, err)
	}
	return all, l
}

// TestOneConnection: one connection serves one read after the other.
func TestOneConnection(t *testing.T) {
	r := start(t)
	all, l := r.fileOfOneBlock(t)
	w := r.dial()
	for _, c := range [][2]int64{{0, 3 << 20}, {100, 1}, {1 << 20, 100_000}} {
		if got := w.read(r, l.Blocks.At(0), c[0], c[1], true); !bytes.Equal(got, all[c[0]:][:c[1]]) {
			t.Errorf("%d bytes at %d are others", c[1], c[0])
		}
	}
}

// TestStream: packets of a stream are acknowledged while more come, and everything is there at
// the end.
func TestStream(t *testing.T) {
	r := start(t)
	inode, b := r.create("c", "/f", 128<<20)
	w := r.writing(b)
	all := random(20<<20, 3)
	sent := make(chan int64)
	go func() {
		defer close(sent)
		for at := 0; at < len(all); at += 64512 {
			w.seqno++
			p := &wire{seqno: w.seqno, t: t}
			if _, err := w.Write(p.packet(int64(at), all[at:min(at+64512, len(all))], false, false)); err != nil {
				t.Error(err)
				return
			}
			sent <- p.seqno - 1
		}
	}()
	for n := range sent {
		w.acked(n, pb.Status_SUCCESS)
	}
	r.holds("/f", all) // the last one was acknowledged: so it is flushed
	w.seqno++
	w.finish(int64(len(all)))
	b.Length = int64(len(all))
	r.complete("c", inode, &b)
	r.holds("/f", all)
}

// TestWholeFile: a short packet that is all of a file is acknowledged when the end of the block is
// there, and the close makes it durable; one behind which anything else comes is durable when
// it is acknowledged.
func TestWholeFile(t *testing.T) {
	r := start(t)
	r.srv.ExpectEnd(patience / 2) // so long that only what comes ends it
	all := random(1000, 3)
	inode, b := r.create("c", "/f", 128<<20)
	w := r.writing(b)
	if _, err := w.Write(append(w.packet(0, all, false, false), w.packet(1000, nil, true, false)...)); err != nil {
		t.Fatal(err)
	}
	w.acked(0, pb.Status_SUCCESS)
	w.acked(1, pb.Status_SUCCESS)
	r.holds("/f", nil) // it was not flushed for that
	b.Length = 1000
	r.complete("c", inode, &b)
	r.holds("/f", all)

	for name, sync := range map[string]bool{"/two": false, "/hsync": true} {
		_, b := r.create("c", name, 128<<20)
		w := r.writing(b)
		if _, err := w.Write(w.packet(0, all[:600], false, sync)); err != nil {
			t.Fatal(err)
		}
		if !sync { // nobody but the next packet says that this was not the end
			if _, err := w.Write(w.packet(600, all[600:900], false, false)); err != nil {
				t.Fatal(err)
			}
		}
		w.acked(0, pb.Status_SUCCESS)
		got, err := r.fs.ReadFile(t.Context(), name)
		if err != nil || len(got) < 600 || !bytes.Equal(got, all[:len(got)]) {
			t.Fatalf("%s has %d bytes when 600 are acknowledged: %v", name, len(got), err)
		}
		w.Close()
	}
}

// TestAppend: a partial block is continued, with a new stamp and without.
func TestAppend(t *testing.T) {
	r := start(t)
	all := random(5000, 4)
	inode, b := r.closed("/f", all[:700])

	// As the Java client does: a new stamp first.
	o, err := r.files.Append(t.Context(), r.u, "d", "/f", false, false)
	if err != nil || o.Last == nil || o.Last.Length != 700 || o.Last.ID != b.ID || o.Attr.BlockSize != 4*kib {
		t.Fatalf("%+v %v", o, err)
	}
	_, err = r.files.Append(t.Context(), r.u, "d", "/f", false, false)
	r.kind("append by the holder", err, fserror.Held)
	_, err = r.files.Append(t.Context(), r.u, "e", "/f", false, false)
	r.kind("append by another", err, fserror.Held)
	n, err := r.files.UpdateBlockForPipeline(t.Context(), r.u, "d", *o.Last)
	if err != nil || n.Stamp <= o.Last.Stamp {
		t.Fatal(n, err)
	}
	w := r.dial()
	w.op(80, r.request(*o.Last, pb.OpWriteBlockProto_PIPELINE_SETUP_APPEND, n.Stamp, 700, 700))
	w.response(pb.Status_SUCCESS)
	if err := r.files.UpdatePipeline(t.Context(), r.u, "d", *o.Last, n); err != nil {
		t.Fatal(err)
	}
	w.put(700, all[700:1024]) // the rest of the chunk
	w.put(1024, all[1024:4096])
	w.finish(4096)
	n.Length = 4096
	n2 := r.add("d", inode, &n)
	w = r.writing(n2)
	w.put(0, all[4096:])
	w.finish(904)
	n2.Length = 904
	r.complete("d", inode, &n2)
	r.holds("/f", all)

	// A new block, wherever the last one ends.
	if o, err = r.files.Append(t.Context(), r.u, "d", "/f", true, false); err != nil || o.Last != nil {
		t.Fatal(o, err)
	}
	b = r.add("d", inode, nil)
	w = r.writing(b)
	w.put(0, all[:4096])
	w.finish(4096)
	b.Length = 4096
	r.complete("d", inode, &b)
	r.holds("/f", append(all[:5000:5000], all[:4096]...))
	l, err := r.files.Locate(t.Context(), r.u, "/f", 0, 1<<40)
	if err != nil || l.Blocks.Len() != 3 {
		t.Fatal(l, err)
	}
	if got := r.read(l.Blocks.At(1), 0, 4096, true); !bytes.Equal(got, append(all[4096:5000:5000], all[:3192]...)) {
		t.Error("other bytes")
	}
}

// TestRecovery: after a connection broke, the client continues under a new stamp, and repeats
// what was not acknowledged. What holds the older stamp is refused.
func TestRecovery(t *testing.T) {
	r := start(t)
	all := random(3000, 5)
	inode, b := r.create("c", "/f", 4*kib)
	w := r.writing(b)
	w.put(0, all[:1000])
	w.put(1000, all[1000:1500])
	n, err := r.files.UpdateBlockForPipeline(t.Context(), r.u, "c", b)
	if err != nil {
		t.Fatal(err)
	}
	w.ends() // the older connection
	old := r.dial()
	old.op(80, r.request(b, pb.OpWriteBlockProto_PIPELINE_SETUP_STREAMING_RECOVERY, b.Stamp, 1000, 1500))
	old.response(pb.Status_ERROR)
	lost := r.dial()
	lost.op(80, r.request(b, pb.OpWriteBlockProto_PIPELINE_SETUP_STREAMING_RECOVERY, n.Stamp, 1501, 1600))
	lost.response(pb.Status_ERROR)

	w = r.dial()
	w.op(80, r.request(b, pb.OpWriteBlockProto_PIPELINE_SETUP_STREAMING_RECOVERY, n.Stamp, 1000, 2000))
	w.response(pb.Status_SUCCESS)
	w.put(1000, all[1000:1500]) // again
	w.put(1024, all[1024:2048]) // partly again
	w.put(2048, all[2048:3000])
	w.acked(w.send(0, nil, true), pb.Status_SUCCESS)
	closing, err := r.files.UpdateBlockForPipeline(t.Context(), r.u, "c", n)
	if err != nil {
		t.Fatal(err)
	}
	w = r.dial()
	w.op(80, r.request(n, pb.OpWriteBlockProto_PIPELINE_CLOSE_RECOVERY, closing.Stamp, 3000, 3000))
	w.response(pb.Status_SUCCESS)
	closing.Length = 2999
	_, err = r.files.Complete(t.Context(), r.u, "c", "/f", inode, &closing)
	r.kind("complete with another length", err, fserror.InvalidArgument)
	closing.Length = 3000
	r.complete("c", inode, &closing)
	r.holds("/f", all)
}

// TestSyncOfWhatWasThere: a packet without bytes that asks for a flush, as the first one of a
// connection that continues, is acknowledged when what an earlier connection brought is durable.
func TestSyncOfWhatWasThere(t *testing.T) {
	r := start(t)
	all := random(3000, 7)
	_, b := r.create("c", "/f", 4*kib)
	p := r.pipe(b)
	defer p.Close()
	if _, err := p.Write(0, all); err != nil {
		t.Fatal(err)
	}
	n, err := r.files.UpdateBlockForPipeline(t.Context(), r.u, "c", b)
	if err != nil {
		t.Fatal(err)
	}
	w := r.dial()
	w.op(80, r.request(b, pb.OpWriteBlockProto_PIPELINE_SETUP_STREAMING_RECOVERY, n.Stamp, 0, 3000))
	w.response(pb.Status_SUCCESS)
	if _, err := w.Write(w.packet(3000, nil, false, true)); err != nil {
		t.Fatal(err)
	}
	w.acked(0, pb.Status_SUCCESS)
	r.holds("/f", all)
}

// TestOldWriters: whoever has lost a file fails at the next flush, however it was lost.
func TestOldWriters(t *testing.T) {
	for name, lose := range map[string]func(t *testing.T, r *rig){
		"recovered": func(t *testing.T, r *rig) {
			if done, err := r.files.Recover(t.Context(), r.u, "/f"); err != nil || !done {
				t.Fatal(done, err)
			}
		},
		"recovered by another way": func(t *testing.T, r *rig) {
			if _, err := r.fs.Recover(t.Context(), "/f", true); err != nil {
				t.Fatal(err)
			}
		},
		"deleted": func(t *testing.T, r *rig) {
			if err := r.fs.Remove(t.Context(), "/f"); err != nil {
				t.Fatal(err)
			}
		},
		"replaced": func(t *testing.T, r *rig) {
			if _, err := r.files.Create(t.Context(), r.u, "d", "/f", files.Create{Mode: 0o644, Create: true, Overwrite: true}); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t)
			inode, b := r.create("c", "/f", 1<<20)
			w := r.writing(b)
			w.put(0, []byte("hello"))
			lose(t, r)
			// Who sends no more learns of it by his next call.
			env.Eventually(t, "the gateway knows", func() bool { n := r.files.InUse(); return n == 0 || name == "replaced" && n == 1 })
			w.acked(w.send(5, nil, false), pb.Status_SUCCESS)
			_, _ = w.Write(w.packet(5, []byte("lost"), false, false))
			w.ends()
			b.Length = 5
			_, err := r.files.UpdateBlockForPipeline(t.Context(), r.u, "c", b)
			if k := fserror.KindOf(err); err == nil || k != fserror.LeaseLost && k != fserror.LeaseLostGone {
				t.Errorf("update: %v", err)
			}
			b.Length = 9
			_, err = r.files.Complete(t.Context(), r.u, "c", "/f", inode, &b)
			if k := fserror.KindOf(err); err == nil || k != fserror.LeaseLost && k != fserror.LeaseLostGone {
				t.Errorf("complete: %v", err)
			}
			if name == "recovered" || name == "recovered by another way" {
				r.holds("/f", []byte("hello"))
			}
			env.Eventually(t, "nothing is open", func() bool {
				n := r.files.InUse()
				return n == 0 || name == "replaced" && n == 1
			})
		})
	}
}

// TestChecksum: a block's checksum is HDFS's.
func TestChecksum(t *testing.T) {
	r := start(t)
	all := random(100_000, 6)
	if err := r.fs.WriteFile(t.Context(), "/f", all); err != nil {
		t.Fatal(err)
	}
	l, err := r.files.Locate(t.Context(), r.u, "/f", 0, 1<<40)
	if err != nil {
		t.Fatal(err)
	}
	var sums []byte
	table := crc32.MakeTable(crc32.Castagnoli)
	for at := 0; at < len(all); at += 512 {
		sums = binary.BigEndian.AppendUint32(sums, crc32.Checksum(all[at:min(at+512, len(all))], table))
	}
	want := md5.Sum(sums)
	w := r.dial()
	m := &pb.OpBlockChecksumProto{Header: r.header(l.Blocks.At(0), false).GetBaseHeader()}
	w.op(85, m)
	c := w.response(pb.Status_SUCCESS).GetChecksumResponse()
	if !bytes.Equal(c.GetBlockChecksum(), want[:]) || c.GetBytesPerCrc() != 512 || c.GetCrcPerBlock() != 196 {
		t.Errorf("%v, want %x", c, want)
	}
	m.BlockChecksumOptions = &pb.BlockChecksumOptionsProto{BlockChecksumType: pb.BlockChecksumTypeProto_COMPOSITE_CRC.Enum(), StripeLength: proto.Uint64(0)}
	w.op(85, m)
	c = w.response(pb.Status_SUCCESS).GetChecksumResponse()
	if got := binary.BigEndian.Uint32(c.GetBlockChecksum()); got != crc32.Checksum(all, table) {
		t.Errorf("the composite one is %x", got)
	}
	// Together with the next request, which is served when its turn comes.
	w.op(85, m)
	w.op(85, m)
	w.response(pb.Status_SUCCESS)
	w.response(pb.Status_SUCCESS)
}

// TestChecksumsEnd: a checksum is one of a block, and not of what may be behind it; and it is
// not made for a client that is gone.
func TestChecksumsEnd(t *testing.T) {
	r := start(t)
	_, idle := r.users.InUse()
	nobodyThere := func() bool { _, uses := r.users.InUse(); return uses == idle }
	inode, b := r.create("c", "/f", 4*kib)
	w := r.writing(b)
	w.put(0, random(4*kib, 8))
	w.finish(4 * kib)
	_ = w.Close()
	b.Length = 4 * kib
	n := r.add("c", inode, &b)
	w = r.writing(n)
	w.put(0, random(1000, 9))
	w.finish(1000)
	_ = w.Close()
	n.Length = 1000
	r.complete("c", inode, &n)
	l, err := r.files.Locate(t.Context(), r.u, "/f", 0, 1<<40)
	if err != nil {
		t.Fatal(err)
	}
	m := &pb.OpBlockChecksumProto{Header: r.header(l.Blocks.At(0), false).GetBaseHeader()}
	m.Header.Block.NumBytes = proto.Uint64(5*kib - 24)
	w = r.dial()
	w.op(85, m)
	w.response(pb.Status_ERROR)
	_ = w.Close()
	env.Eventually(t, "all who came before are gone", nobodyThere)

	r.srv.FillSums()
	m.Header.Block.NumBytes = proto.Uint64(4 * kib)
	w = r.dial()
	w.op(85, m)
	env.Eventually(t, "it waits for its turn", func() bool { return !nobodyThere() })
	_ = w.Close()
	env.Eventually(t, "nobody waits any more", nobodyThere)
}

// TestNothingIsKeptAhead: a connection whose stream had blocks fetched ahead keeps none of them for
// its next request, for as long as that does not come.
func TestNothingIsKeptAhead(t *testing.T) {
	r := start(t)
	all, l := r.fileOfOneBlock(t)
	_, uses := r.users.InUse()
	w := r.dial()
	for range 2 { // the place is free again
		if got := w.read(r, l.Blocks.At(0), 0, 3<<20, true); !bytes.Equal(got, all) {
			t.Error("the bytes are others")
		}
		env.Eventually(t, "the end of the file's use", func() bool { _, now := r.users.InUse(); return now == uses })
	}
	if got := w.read(r, l.Blocks.At(0), 0, 1000, true); !bytes.Equal(got, all[:1000]) {
		t.Error("the bytes are others")
	}
	if _, now := r.users.InUse(); now == uses {
		t.Error("a file of which little was read is not kept open")
	}
}
