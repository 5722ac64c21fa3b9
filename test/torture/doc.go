// Package torture holds one test: the clients and the checker of test/sim on a fleet
// of real processes. Three namenodes, three ZooKeeper servers and, for even seeds, an
// S3 server run on machines of their own in a network that loses what it is told to
// (env.Lab). Each namenode has a small disk of its own, which can be full, and a time
// of day that can be stepped.
//
// The seed decides what the clients do and what fails, as long as the machine permits.
// Up to two things fail at once; then all heals, and what is promised is checked. This
// is a round, and there are rounds until the minutes are over.
//
// The test has the build tag torture:
//
//	make torture MINUTES=30 SEED=2026
//	go test -tags torture ./test/torture -minutes 1 -seed 7
//
//	torture_test.go    the rounds, and what is checked after them
//	faults_test.go     what can fail
//	machines_test.go   namenodes, and machines of clients
//	clock_test.go      the program, with a time of day that can be stepped
package torture
