// Package ensemble is what namenodes and the commands of operators agree on about a
// namespace in ZooKeeper: how it is reached, where its nodes are, and what is in the
// two that its format makes.
//
// All nodes of a namespace are below /leasefs/NAME. The node format says its id, and
// the node incarnation the token by which the block store is known to be its own.
// The first changes when the feature level is raised. Namenodes make neither; one sets the
// second when an operator has it resolve a conflict about the store.
//
// Package namenode reads both at its start; its format and restore make them;
// an operator can give all nodes to other users.
package ensemble
