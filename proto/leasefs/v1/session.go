// Package leasefsv1 is the wire contract of leasefs, as Go.
package leasefsv1

import "crypto/sha256"

// SessionName is how a session is shown to others (HolderInfo.session): 16
// bytes that tell sessions apart and from which the id cannot be had. The id
// itself is a secret of the process that chose it: who knows it can speak for
// the session.
func SessionName(id []byte) []byte {
	sum := sha256.Sum256(append([]byte("leasefs session\x00"), id...))
	return sum[:16]
}
