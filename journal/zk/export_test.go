package zk

// SeenBeat is the version of the beat node that Tail last saw.
func (j *Journal) SeenBeat() int32 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.sight.beat
}

// BatchPath is where a batch is.
func (j *Journal) BatchPath(number uint64) string { return j.batchPath(number) }

// Batches is how many batches are durable.
func (j *Journal) Batches() uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.durableNumber
}
