package imaging

import (
	"github.com/leasefs/leasefs/namenode/namespace/codec"
	"github.com/leasefs/leasefs/namenode/namespace/levels"
)

// Check reads an image to its end, and returns the last txid in it. It checks the checksums.
func Check(r *codec.ImageReader) (txid uint64, err error) {
	if r.Next(); r.Version >= codec.SinceRelease {
		new(levels.State).Code(&r.Coder)
	}
	r.U64(&txid)
	r.Skip()
	if !r.OK() {
		return 0, r.Failure("txid")
	}
	return txid, r.Finish()
}
