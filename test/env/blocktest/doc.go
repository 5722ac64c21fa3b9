// Package blocktest is the suite that every blockstore.Store must pass. It
// speaks to the store as clients do, by signed URLs over HTTP, and as the
// namenode does, by its methods:
//
//	func TestConformance(t *testing.T) {
//		blocktest.Run(t, func(t *testing.T) blocktest.Harness { ... })
//	}
//
// RunObjects is the suite of every blockstore.Objects.
//
// Each test opens a store of its own, which must be empty, or in which nobody
// else uses terms from 1 to 1,000.
package blocktest
