package data_test

import (
	"testing"

	"github.com/leasefs/leasefs/gateway/hdfs/files"
	pb "github.com/leasefs/leasefs/gateway/hdfs/hadoop"
)

// TestAppendRecovery: a client whose connections break at each stage of an append sets up the pipeline
// again, and nothing is missing or there twice. One that is wrong about the block is refused: what
// it sends would be taken for what is there.
func TestAppendRecovery(t *testing.T) {
	r := start(t)
	all := random(3000, 8)
	inode, b := r.closed("/f", all[:700])
	o, err := r.files.Append(t.Context(), r.u, "d", "/f", false, false)
	if err != nil || o.Last == nil {
		t.Fatal(o, err)
	}
	b = *o.Last
	restamp := func() files.Block {
		t.Helper()
		n, err := r.files.UpdateBlockForPipeline(t.Context(), r.u, "d", b)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	set := func(stage pb.OpWriteBlockProto_BlockConstructionStage, stamp, least, most int64, want pb.Status) *wire {
		t.Helper()
		w := r.dial()
		w.op(80, r.request(b, stage, stamp, least, most))
		w.response(want)
		return w
	}
	const (
		again     = pb.OpWriteBlockProto_PIPELINE_SETUP_APPEND_RECOVERY
		streaming = pb.OpWriteBlockProto_PIPELINE_SETUP_STREAMING_RECOVERY
		closing   = pb.OpWriteBlockProto_PIPELINE_CLOSE_RECOVERY
	)
	n := restamp()
	first := set(pb.OpWriteBlockProto_PIPELINE_SETUP_APPEND, n.Stamp, 700, 700, pb.Status_SUCCESS)
	_ = first.Close() // before the client has the answer
	older := n.Stamp
	n = restamp()
	set(again, older, 700, 700, pb.Status_ERROR)
	for _, length := range []int64{0, 699, 701, 1 << 62} {
		set(again, n.Stamp, length, length, pb.Status_ERROR)
	}
	w := set(again, n.Stamp, 700, 0, pb.Status_SUCCESS)
	if err := r.files.UpdatePipeline(t.Context(), r.u, "d", b, n); err != nil {
		t.Fatal(err)
	}
	w.put(700, all[700:1024])
	w.send(1024, all[1024:2048], false)
	if _, err := w.Write(w.packet(2048, all[2048:3000], false, false)[:200]); err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
	b = n
	b.Length = 1024
	n = restamp()
	w = set(streaming, n.Stamp, 1024, 3000, pb.Status_SUCCESS)
	w.put(1024, all[1024:2048])
	w.put(2048, all[2048:3000])
	w.send(3000, nil, true)
	_ = w.Close() // before the end of the block is acknowledged
	b = n
	b.Length = 3000
	n = restamp()
	set(closing, n.Stamp, 2999, 2999, pb.Status_ERROR)
	set(closing, n.Stamp, 3001, 3001, pb.Status_ERROR)
	_ = set(closing, n.Stamp, 3000, 3000, pb.Status_SUCCESS).Close()
	n.Length = 3000
	r.complete("d", inode, &n)
	r.holds("/f", all)
}

// TestStages: each stage of HDFS's is taken or refused, where it makes sense and where it does not.
func TestStages(t *testing.T) {
	r := start(t)
	_, empty := r.create("c", "/empty", 4*kib)
	_, b := r.create("c", "/f", 4*kib)
	r.writing(b).put(0, random(100, 1))
	type stage = pb.OpWriteBlockProto_BlockConstructionStage
	for s, c := range map[stage]struct{ empty, begun pb.Status }{
		pb.OpWriteBlockProto_PIPELINE_SETUP_CREATE:             {pb.Status_SUCCESS, pb.Status_ERROR},
		pb.OpWriteBlockProto_PIPELINE_SETUP_APPEND:             {pb.Status_SUCCESS, pb.Status_SUCCESS},
		pb.OpWriteBlockProto_PIPELINE_SETUP_APPEND_RECOVERY:    {pb.Status_SUCCESS, pb.Status_SUCCESS},
		pb.OpWriteBlockProto_PIPELINE_SETUP_STREAMING_RECOVERY: {pb.Status_SUCCESS, pb.Status_SUCCESS},
		pb.OpWriteBlockProto_PIPELINE_CLOSE_RECOVERY:           {pb.Status_SUCCESS, pb.Status_SUCCESS},
		// No connection begins with these, and there is nobody to pass a block on to.
		pb.OpWriteBlockProto_DATA_STREAMING:     {pb.Status_ERROR_UNSUPPORTED, pb.Status_ERROR_UNSUPPORTED},
		pb.OpWriteBlockProto_PIPELINE_CLOSE:     {pb.Status_ERROR_UNSUPPORTED, pb.Status_ERROR_UNSUPPORTED},
		pb.OpWriteBlockProto_TRANSFER_RBW:       {pb.Status_ERROR_UNSUPPORTED, pb.Status_ERROR_UNSUPPORTED},
		pb.OpWriteBlockProto_TRANSFER_FINALIZED: {pb.Status_ERROR_UNSUPPORTED, pb.Status_ERROR_UNSUPPORTED},
	} {
		for _, at := range []struct {
			block  files.Block
			length int64
			want   pb.Status
		}{{empty, 0, c.empty}, {b, 100, c.begun}} {
			w := r.dial()
			w.op(80, r.request(at.block, s, at.block.Stamp, at.length, at.length))
			m := new(pb.BlockOpResponseProto)
			if w.receive(m); m.GetStatus() != at.want {
				t.Errorf("%s with %d bytes: %v, want %s", s, at.length, m, at.want)
			}
		}
	}
	if all := pb.OpWriteBlockProto_BlockConstructionStage_name; len(all) != 9 {
		t.Errorf("stages that are not tried: %v", all)
	}
	m := r.request(b, pb.OpWriteBlockProto_PIPELINE_SETUP_APPEND_RECOVERY, b.Stamp, 100, 100)
	m.Targets = []*pb.DatanodeInfoProto{datanode()}
	w := r.dial()
	w.op(80, m)
	w.response(pb.Status_ERROR_UNSUPPORTED)
	m = r.request(b, 0, b.Stamp, 100, 100)
	m.Stage = stage(99).Enum()
	w = r.dial()
	w.op(80, m)
	w.ends() // as a number that nobody knows it is no message, or refused
	r.holds("/f", random(100, 1))
}
