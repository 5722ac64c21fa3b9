// Package calls has what callers and the tree say to each other: who asks, and for what
// ([Call], [Ref], the requests); what they are told of files ([Attr], [FileView],
// [OpenFile]); what of the tree changes, and whether that is durable ([Change],
// [Tracker]); and the news of it ([Event]).
//
// It is data, with the rules that need no tree: which permission bits are a caller's, and
// which record must be durable before a call may be answered. Package namespace has the
// tree, and other names for all that is exported here.
package calls
