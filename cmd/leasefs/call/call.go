// Package call is what commands in packages of their own get of the command line and of the
// namespace.
package call

import (
	"context"

	"github.com/urfave/cli/v2"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/cmd/leasefs/screen"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fspath"
)

// Call is a run of a command, connected to the namespace.
type Call struct {
	*screen.Printer
	Ctx   context.Context
	FS    *client.FS
	Flags *cli.Context
	Args  []string // as they were typed
	Op    string   // the name of the command
}

// Action makes the action of a command that takes from least to most operands (-1: any number),
// which are called names in errors.
type Action func(least, most int, names string, run func(*Call) error) cli.ActionFunc

// Path is an operand, which is a path, cleaned.
func (c *Call) Path(operand int) (string, error) {
	path, err := fspath.Clean(c.Args[operand])
	return path, fserror.With(err, c.Op, c.Args[operand])
}
