package tables

import "bytes"

// InodeID names an inode for ever: ids are never reused.
type InodeID uint64

// SessionID is a client process.
type SessionID [16]byte

// Token is the unguessable part of a writer's identity.
type Token [16]byte

// LeaseID names a lease that somebody was granted: from 1 to MaxLeaseID. It
// may be granted again once the lease has ended and its files are gone.
type LeaseID uint64

func compareSessions(a, b SessionID) int { return bytes.Compare(a[:], b[:]) }
