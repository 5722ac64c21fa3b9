package env

import (
	"errors"
	"net"
	"syscall"
	"time"
)

// OpenPort is net.Listen for a namenode that takes the port of one that has just
// ended in this process: a child that another test starts has a copy of the old
// socket from its fork to its exec, so the port can be taken for a moment more.
func OpenPort(network, address string) (net.Listener, error) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for over := time.Now().Add(time.Minute); ; <-tick.C {
		l, err := net.Listen(network, address)
		if !errors.Is(err, syscall.EADDRINUSE) || time.Now().After(over) {
			return l, err
		}
	}
}
