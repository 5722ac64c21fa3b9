// Package e2e holds the tests of the whole: the built binary as real
// processes, over real sockets, on a real disk, with real SIGKILL, SIGSTOP and
// full disks. It has no code but tests.
//
// The binary is built once, into a temporary folder. Each test starts its own
// namenode on ports of its own and ends only processes that it started. What
// the tests wait for is an event or a condition with a deadline, never a time.
//
//	go test ./e2e                      sizes for every day, under 90 s
//	LEASEFS_E2E=full go test ./e2e     Go's whole source tree, 2 GiB, 100,000 files
//
// Figures (seconds, memory, bytes on disk) are logged, see them with -v; they
// are asserted only where they would show a leak, with room to spare.
//
//	tree_test.go     trees and a large file, in and out, also over a killed namenode
//	held_test.go     two writers of one file; one killed, one stopped
//	writer_test.go   create, append, close, tail and signals to them
//	many_test.go     many appends, many small files: memory and disk stay bounded
//	serve_test.go    starts and ends of a namenode
//	full_test.go     a full disk
//	backup_test.go   backup, journal and image from outside
//	demo_test.go     scripts/demo
//	process_test.go, namenode_test.go   what all of them use
package e2e
