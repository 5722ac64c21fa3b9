package main

import (
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"strconv"

	"github.com/leasefs/leasefs/cmd/leasefs/prove"
	"github.com/leasefs/leasefs/cmd/leasefs/screen"
)

// clientTLS is nil for plain text.
func (c *commandLine) clientTLS() (*tls.Config, error) {
	return prove.DialTLS(c.op, c.flags, "tls", func(err error) { fmt.Fprintln(os.Stderr, "leasefs: "+screen.OneLine(screen.WithReason(err))) })
}

// checkAddress returns what is wrong with a HOST:PORT, or nothing.
func checkAddress(a string) string {
	host, port, err := net.SplitHostPort(a)
	if err != nil || host == "" {
		return strconv.Quote(a) + " is not HOST:PORT"
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return strconv.Quote(a) + ": the port is not a number from 0 to 65535"
	}
	return ""
}
