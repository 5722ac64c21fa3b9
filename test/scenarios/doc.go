// Package scenarios has no code of its own. Its tests are the list of what
// leasefs must stand (conflicts, lost writers, restarts, lost replies, damage),
// one test a scenario, each against a real namenode over real sockets
// (package env). The number in a test's name is that of the list.
//
// The conventions: A and B are clients, in this order; A is the one who has the
// file. Time is a fake clock that moves when told, except where the namenode's
// own monitor or a client's own renewals are what is tested: those run with
// short limits, and the tests wait for what must happen, never for time.
package scenarios
