// Package experiments measures what leases do and cost, as docs/EXPERIMENTS.md shows it:
// TestExperiments is a run, by scripts/experiments. Where real time would be too slow, or
// would measure other work of the machine, an experiment has namenodes and clients in a
// bubble of testing/synctest, on the network and the ZooKeeper of test/sim; where cost is
// measured, processes.
//
// No run fails because something took long. It fails if what has to hold by logic does not.
package experiments
