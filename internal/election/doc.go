// Package election lets one namenode of several be active, by ZooKeeper, and
// says how long it may answer.
//
// # Who is active
//
// Each namenode joins with a node of its own: ephemeral, so that it goes with
// the session, and numbered by ZooKeeper. The lowest number is elected; each
// other one watches only the node just before its own, so that the end of one
// wakes one. A namenode whose session has ended is out (Lost) and joins again.
// Who wants to know who the others are watches them all (Changes).
//
// The name of the node begins with 16 random bytes. When the connection breaks
// just as the node is made, nobody knows whether it is there: on the session's
// next connection the namenode looks for a node with its own bytes. Whenever it
// looks, only its lowest node counts and any other of its own is removed, so
// that it never waits for itself.
//
// # Who should be
//
// Each node says how well its namenode could serve (Report): how far it has
// followed, and why it is unfit, if it is. Only a namenode itself acts on what it
// sees: one that is elected and sees a fitter one may go to the end of the line
// (MoveBack) before it begins a term. The caller limits how often.
//
// # Who may answer
//
// Being elected says who should be active. It does not say that no other thinks
// so: a process can be held up for minutes between looking and answering. Writes
// are fenced by the journal's term. For reads, and for saying that a write was
// done, there is Window: only a write that checks the term, and succeeded, lets
// its holder answer, and only until the time when that write was sent + lease −
// margin.
//
// # Taking over, in this order
//
//  1. Candidacy.Wait: be elected. Then read the last term, and Wait again: a
//     namenode that was elected, then held up, and is out by now must not take a
//     term above its successor's.
//  2. internal/journal/zk.TakeOver: begin a higher term, which fences the predecessor, and
//     then, on the same session, read to the end.
//  3. AwaitEnd: until the predecessor's window is over, by its own clock,
//     however slow it runs (within the margin). After a clean hand-over there is
//     nothing to wait for.
//  4. Journal the activation; serve, with Window.Keep running.
//
// And back: Window.End, so that nothing is answered any more; internal/journal/zk.Release;
// Candidacy.Resign.
//
// The rule of step 3 is Chubby's and Spanner's leader lease; HDFS fences by
// quorum and lets a deposed namenode answer stale reads.
package election
