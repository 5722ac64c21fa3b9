package leasefsv1

import (
	"sync"

	"github.com/cespare/xxhash/v2"
	"google.golang.org/protobuf/proto"
)

// hashed are buffers in which small requests were encoded.
var hashed = sync.Pool{New: func() any { return new([]byte) }}

// HashRequest hashes a request with its name, but without its field "call", which it has to have
// and which has to be set: a call id that is used for two different requests is noticed so. The
// request is not for others meanwhile.
func HashRequest(req proto.Message) (uint64, error) {
	m := req.ProtoReflect()
	field := m.Descriptor().Fields().ByName("call")
	call := m.Get(field)
	m.Clear(field)
	kept := hashed.Get().(*[]byte)
	defer hashed.Put(kept)
	raw, err := proto.MarshalOptions{Deterministic: true}.MarshalAppend((*kept)[:0], req)
	m.Set(field, call)
	if err != nil {
		return 0, err
	}
	if cap(raw) <= 4<<10 {
		*kept = raw
	}
	var d xxhash.Digest
	d.Reset()
	_, _ = d.WriteString(string(m.Descriptor().Name()))
	_, _ = d.Write(raw)
	return d.Sum64(), nil
}
