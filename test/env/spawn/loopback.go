package spawn

import (
	"fmt"
	"os"
	"sync/atomic"
)

var loopbacks atomic.Uint32

// Loopback is an address of this machine (all of 127.0.0.0/8 is) that no other server of any
// test has: one that is started again, or has to know its port before it starts, finds that
// port free. On a shared address, any connection that somebody makes may have taken it.
func Loopback() string {
	n, pid := loopbacks.Add(1), os.Getpid()
	return fmt.Sprintf("127.%d.%d.%d", 1+pid%250, 1+(pid/250+int(n/250))%250, 1+n%250)
}
