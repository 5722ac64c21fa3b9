// Package e2e holds the tests of the whole: the built binary as real
// processes, over real sockets, on a real disk, with real SIGKILL, SIGSTOP and
// full disks. It has no code but tests.
//
// The binary is built once, into a temporary folder. Each test starts its own
// namenode on ports of its own and ends only processes that it started. What
// the tests wait for is an event or a condition with a deadline, never a time.
//
//	go test ./test/e2e                          sizes for every day
//	LEASEFS_TEST_SIZE=full go test ./test/e2e   Go's whole source tree, 2 GiB, 100,000 files, 25 failures
//
// Figures (seconds, memory, bytes on disk) are logged, see them with -v; they
// are asserted only where they would show a leak, with room to spare.
//
//	tree_test.go     trees and a large file, in and out, also over a killed namenode
//	held_test.go     two writers of one file; one killed, one stopped
//	lock_test.go     lock: leaders stopped, killed, cut off; waiters; exit codes
//	rename_test.go   a directory renamed under two writers, the namenode killed twice
//	writer_test.go   create, append, close, tail and signals to them
//	many_test.go     many appends, many small files: memory and disk stay bounded
//	serve_test.go    starts and ends of a namenode
//	full_test.go     a full disk
//	backup_test.go   backup, journal and image from outside
//	backup_target_test.go   what cannot become a backup: refused, and left as it was
//	s3_test.go       blocks in two S3 servers; what is wrong with a store, in one line
//	s3_settings_test.go   keys that are renewed, http for https
//	s3_ha_test.go    several namenodes over them: images in the store, restarts one
//	                 by one under load, everything lost but the store
//	archive_test.go  the disk or ZooKeeper is lost, and brought back from the archive
//	restore_test.go  restores: one store, one namespace; for a user of ZooKeeper
//	s3_faults_test.go   a bad line to the store: no byte changes, no orphan stays
//	runbooks_test.go, runbooks_fleet_test.go   alarms fire, and docs/RUNBOOKS.md ends them
//	forecast_test.go   resources fill up, and status tells which and when
//	demo_test.go     scripts/demo
//	tutorial_test.go   docs/TUTORIAL.md and docs/HOWTO.md, command by command
//	ha_scenario_test.go, ha_stale_test.go   several namenodes over ZooKeeper: the
//	                 scenarios, and that nobody reads what is old
//	ha_stress_test.go   32 writers, and namenodes that are killed, stopped, cut off
//	ha_lab_test.go   machines in network namespaces, and a network that loses packets
//	ha_secure_test.go   TLS to ZooKeeper, users, and strangers
//	ha_store_test.go    a take-over while the block store is silent
//	ha_bench_test.go    how long writers wait for the next namenode
//	ha_raw_test.go   a session that goes to whichever namenode is active
//	ha_fleet_test.go    several namenodes, ZooKeeper and links that can be cut
//	mount_test.go, mount_tools_test.go   mounts on /dev/fuse, in turn and at once, stopped and killed; tools on them
//	process_test.go, namenode_test.go   what all of them use
package e2e
