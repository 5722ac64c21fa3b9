package fserror

import "errors"

// Reasons to which a program adds, in its own words, what its user can do: a
// library knows no commands and no flags. A log line has one under the key
// "reason". They travel on the wire.
const (
	ReasonNoNamenode     = "no namenode"       // none is active, or found, where the client looks
	ReasonNoAnswer       = "no answer"         // none of them answered a call
	ReasonSafeMode       = "safe mode"         // it refuses changes
	ReasonNotSuperuser   = "not the superuser" // only a superuser may
	ReasonLevel          = "level"             // the namespace is not at the level that has it yet
	ReasonUpgrade        = "upgrade"           // of a namenode is missing
	ReasonNewer          = "newer release"     // only that one reads what is there
	ReasonOlder          = "older release"     // of the namenode, which does not know the call
	ReasonNoHistory      = "no history"        // of leases is kept
	ReasonNoLease        = "no lease"          // of that id, or on that file
	ReasonQuotaNames     = "quota of names"    // of a directory above; it has as many as it may
	ReasonQuotaBytes     = "quota of bytes"    // the same
	ReasonNoSnapshots    = "no snapshots"      // the directory is not allowed to have any
	ReasonHasSnapshots   = "has snapshots"     // which have to be deleted first
	ReasonInWay          = "in the way"        // something is in the place of what is restored
	ReasonAlone          = "alone"             // it takes, or was, one of several namenodes
	ReasonNoNamespace    = "no namespace"      // ZooKeeper has none of the name
	ReasonNamespaceTaken = "namespace taken"   // ZooKeeper has one of the name
	ReasonStoreTaken     = "store taken"       // the block store has files of a namespace of the name
	ReasonOtherStore     = "other store"       // the block store belongs to another incarnation
	ReasonStoreConflict  = "store conflict"    // two copies of a namespace use the block store
	ReasonUnsweptBlocks  = "unswept blocks"    // no record vouches for them
	ReasonDamagedBlock   = "damaged block"     // files have lost bytes
	ReasonDamagedRecord  = "damaged record"    // the journal has more to tell
	ReasonOneImage       = "one image"         // the other is lost
	ReasonArchive        = "archive"           // of the journal, in the block store
	ReasonRestore        = "restore"           // only that brings the namespace back
	ReasonNoBackup       = "no backup"         // the folder is none
	ReasonTreeOnly       = "tree only"         // a backup has no blocks
	ReasonRoomForBackup  = "room for a backup" // the folder has too little
	ReasonTree           = "tree"              // Copy takes files only
	ReasonTreeNotAsked   = "tree not asked"    // Options.Recursive
	ReasonSpecialFile    = "special file"      // Options.SkipSpecial
	ReasonAttributeLost  = "attribute lost"    // Options.Xattrs
	ReasonTrust          = "trust"             // other machines would reach it, and nobody checks who asks
	ReasonData           = "Data"              // from here on: that field of a Config is wrong
	ReasonBlocks         = "Blocks"
	ReasonBlockCache     = "BlockCache"
	ReasonListen         = "Listen"
	ReasonHTTP           = "HTTP"
	ReasonPages          = "Pages"
	ReasonTLS            = "TLS"
	ReasonAudit          = "Audit"
	ReasonShares         = "Shares"
	ReasonProof          = "proof"      // of who the caller is; it is missing, or not good
	ReasonProxy          = "proxy"      // no rule lets the caller act for another
	ReasonLogin          = "login"      // at an issuer of tokens is over, or was refused
	ReasonIdentity       = "identity"   // how clients prove who they are
	ReasonDelegation     = "delegation" // delegation tokens, which have to be wanted
	ReasonSoftLimit      = "SoftLimit"
	ReasonMinLeaseTTL    = "MinLeaseTTL"
	ReasonNamespaceID    = "ID"
	ReasonZooKeeper      = "HA.ZooKeeper"
	ReasonZooKeeperUser  = "HA.User"
	ReasonNamespaceName  = "HA.Name"
	ReasonSessionTimeout = "HA.SessionTimeout"
)

// ReasonBlockStore is the reason of errors of a block store that does not serve. It has no hint: the
// user cannot do anything about it.
const ReasonBlockStore = "block store"

// ReasonReplyLost is the reason of errors of calls of which nobody knows whether they happened. It has no
// hint, since the message says it.
const ReasonReplyLost = "reply lost"

// Because returns e with the reason.
func (e *Error) Because(reason string) *Error {
	e.Reason = reason
	return e
}

// OverQuota reports whether a quota of a directory refused something.
func OverQuota(err error) bool {
	r := ReasonOf(err)
	return r == ReasonQuotaNames || r == ReasonQuotaBytes
}

// ReasonOf returns the first reason in err's chain, empty if there is none.
func ReasonOf(err error) string {
	for e := (*Error)(nil); errors.As(err, &e); err = e.Err {
		if e.Reason != "" {
			return e.Reason
		}
	}
	return ""
}
