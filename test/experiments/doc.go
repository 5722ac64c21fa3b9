// Package experiments measures what leases do and cost, as docs/EXPERIMENTS.md shows it.
// scripts/experiments runs TestExperiments. Where real time would be too slow, or would
// measure other work of the machine, an experiment runs namenodes and clients in a bubble of
// testing/synctest, on the network and the ZooKeeper of test/sim; where it measures cost, it
// runs processes.
//
// No run fails because something took long, only if something that must hold by logic does
// not.
package experiments
