// Package reign is how a namenode becomes the active one of its namespace, and ceases
// to be: alone it reigns from its start to its end; as one of several it stands by,
// follows the journal in ZooKeeper, is elected, and takes over.
//
// Role is what a namenode is at a time: starting, standby, active or isolated. What
// differs between the two kinds of namenodes is behind one interface, form; nothing
// else of a reign asks of which kind it is.
//
// A reign begins when the journal has its term and everything before is applied. The
// rooms are told, the activation is journalled, the lease table is rebuilt from the
// tree, and only then is anything answered. A namenode has one reign at most: one that
// was deposed, or has handed over, ends, and its process starts another.
package reign
