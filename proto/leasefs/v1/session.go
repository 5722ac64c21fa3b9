// Package leasefsv1 is the wire contract of leasefs, as Go.
package leasefsv1

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"crypto/sha256"
)

// A session's id is ten random bytes and six that bind them to the session's user (see
// Caller.session in leasefs.proto), so that a namenode knows without any state that another
// user, whatever he learns, cannot speak for it.
const (
	sessionBytes = 16
	// RandomSessionBytes is how many bytes of the id of a session are random.
	RandomSessionBytes = 10
)

// NewSession returns the id of a new session of a user.
func NewSession(user string) []byte {
	var random [RandomSessionBytes]byte
	_, _ = rand.Read(random[:]) // it never fails
	return SessionFor(user, random)
}

// SessionFor returns the id that a session of a user has with these random bytes.
func SessionFor(user string, random [RandomSessionBytes]byte) []byte {
	sum := sha256.Sum256(append(append([]byte("leasefs session of\x00"), random[:]...), user...))
	return append(random[:], sum[:sessionBytes-RandomSessionBytes]...)
}

// SessionIsOf reports whether an id was made for a session of that user.
func SessionIsOf(id []byte, user string) bool {
	return len(id) == sessionBytes && bytes.Equal(id, SessionFor(user, [RandomSessionBytes]byte(id)))
}

// SessionUser is whose a session is by what a caller says.
func SessionUser(c *Caller) string { return cmp.Or(c.GetSessionUser(), c.GetUser()) }

// SessionName is how a session is shown to others (HolderInfo.session): 16
// bytes that tell sessions apart and from which the id cannot be had. The id
// itself is a secret of the process that chose it: where no proof is asked for,
// who knows it can speak for the session.
func SessionName(id []byte) []byte {
	sum := sha256.Sum256(append([]byte("leasefs session\x00"), id...))
	return sum[:16]
}
