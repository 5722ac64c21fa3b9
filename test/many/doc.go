// Package many measures a namenode with many clients: sessions that are idle, that come back
// after a kill, that cache what changes, and that watch; waiters of one lock; leases that end
// together. The namenode is a process; its clients are light ones (of package frames) in the
// process of the benchmark. TestMany is a small part of it. See BENCHMARKS.md, "Many clients".
//
//	make bench BENCH='Sessions/2000$' PKGS=./test/many
package many
