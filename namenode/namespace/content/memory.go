package content

// GrowTail appends data to a tail. Its memory grows geometrically; what older
// versions see of a shared array is not touched.
func GrowTail(tail, data []byte) []byte {
	need := len(tail) + len(data)
	if need > cap(tail) {
		size := 2 * cap(tail)
		if size > 64<<10 {
			size = cap(tail) + cap(tail)/4
		}
		size = max(size, need, 64)
		grown := make([]byte, len(tail), size)
		copy(grown, tail)
		tail = grown
	}
	return append(tail, data...)
}

// ExactTail returns a tail that has no more memory than it needs.
func ExactTail(tail []byte) []byte {
	if cap(tail) == len(tail) {
		return tail
	}
	return CopyTail(tail)
}

// CopyTail returns an exact copy, which keeps no other bytes alive.
func CopyTail(tail []byte) []byte {
	if len(tail) == 0 {
		return nil
	}
	return append(make([]byte, 0, len(tail)), tail...)
}

// ExactBlocks returns a block list with little spare memory.
func ExactBlocks(blocks []Block) []Block {
	if len(blocks) == 0 {
		return nil
	}
	if cap(blocks)-len(blocks) <= len(blocks)/8 {
		return blocks
	}
	return append(make([]Block, 0, len(blocks)), blocks...)
}
