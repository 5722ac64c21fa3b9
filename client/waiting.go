package client

import "github.com/leasefs/leasefs/internal/namecall"

// Waiting is what Config.OnWait is told of: something that is tried again and
// again, since a namenode, or the block store, does not serve it for now.
type Waiting = namecall.Waiting
