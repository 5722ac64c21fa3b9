// Package delegation is a client session's half of the delegations of directories
// (docs/adr/0013-directory-delegations.md); the namenode's is namenode/drafts.
//
// A session to which a directory is delegated is the only one that may make files in
// it without asking. A [Table] has the files that the session has begun so and not
// made yet, its drafts, and the inode numbers that the namenode has set aside for
// them. A [Draft] takes the bytes that are written, and becomes a file with one Create.
//
// # The rules
//
// A draft is begun only while the session holds the delegation, knows that nothing has
// the name, and has a number left. [Table.NewDraft] looks at all three and notes the draft
// in one step, so that the acknowledgement of a recall ([Table.Recalled]) names every
// draft that was begun under the delegation that it returns. The acknowledgement waits
// for no call: if it did, two sessions could wait for each other.
//
// Any other Create of this session asks first whether a draft has the name
// ([Table.Begun]), after it has given up what is known of the name, so that none can
// begin any more. It asks for the delegation, and for numbers if few are left
// ([Table.Ask], [Table.Answered]).
//
// Numbers are good for as long as the namenode knows the session. A session that had to
// come back drops them ([Table.ForgetNumbers]).
//
// # Absent names
//
// Before the kernel creates a file, it looks the name up, so filling a new directory
// would take a question a file. For a directory that was empty, the client keeps
// [Names], a filter to which it adds each name that it creates there since; any other
// name is absent. It is kept, as the delegation is, in the client's read cache: a
// recall of the directory's entries drops the one, and a recall of the delegation the
// other.
//
// # Concurrency
//
// A Table is safe for concurrent use. It calls its [Client] under its lock to look at
// what is cached, and without it to send anything. There is no goroutine and no timer.
package delegation
