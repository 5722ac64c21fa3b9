// Package sim runs whole fleets in one process and in simulated time: namenodes on
// disks that lose what was not synced, models of ZooKeeper (zkmodel) and of an S3
// store (s3model), a network that fails as it is told (simnet), and real clients over
// real gRPC, all in one testing/synctest bubble. Some minutes of such a world cost a second.
//
// A World is made from a seed, which decides what the clients do, what fails and
// when. What is promised is checked all the time and at the end: see truth.go.
package sim
