// Package costs holds the calls of the library to what they may cost: allocations of client
// and namenode together, and waits for the disk. Both are counts, so they say the same on a
// busy machine; time does not, and is only printed, by a benchmark.
//
//	go test ./test/costs -v                            what each costs now
//	go test ./test/costs -run - -bench . -benchtime 1x processor time of each
package costs
