// Package calls has the types that callers and the tree exchange: the caller and the request
// ([Call], [Ref], and others); descriptions of files ([Attr], [FileView], [OpenFile]); which
// parts of the tree change, and whether that is durable ([Change], [Tracker]); and reports
// of changes ([Event]).
//
// It is data, with the rules that need no tree: which permission bits apply to a caller, and
// which record must be durable before a call may be answered. Package namespace has the
// tree, and aliases for everything that is exported here.
package calls
