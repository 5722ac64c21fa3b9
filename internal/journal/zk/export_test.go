package zk

import "github.com/leasefs/leasefs/internal/zkconn"

// SeenBeat is the version of the beat node that Tail last saw.
func (j *Journal) SeenBeat() int32 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.sight.beat
}

// BatchOps is the transaction that writes a batch under epoch 0.
func (j *Journal) BatchOps(s *zkconn.Session, number uint64, node []byte) []any {
	return j.batchOps(s, &header{number: number}, node)
}

// BatchPath is where a batch is.
func (j *Journal) BatchPath(number uint64) string { return j.batchPath(number) }

// Batches is how many batches are durable.
func (j *Journal) Batches() uint64 { return uint64(j.batches.Load()) - 1 } //nolint:gosec // batches
