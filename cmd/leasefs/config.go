package main

import (
	"fmt"
	"os"

	"github.com/urfave/cli/v2"

	"github.com/leasefs/leasefs/cmd/leasefs/argv"
	"github.com/leasefs/leasefs/internal/transfer"
)

// before runs ahead of each command.
func (p *program) before(c *cli.Context) error {
	err := applyConfig(c)
	p.JSON, p.Quiet = c.Bool("json"), c.Bool("quiet") // by environment or file, too
	return err
}

// applyConfig sets from --config what neither flags nor environment set.
func applyConfig(c *cli.Context) error {
	name := c.String("config")
	if name == "" {
		return nil
	}
	raw, err := os.ReadFile(name) //nolint:gosec // the user names the file
	if err != nil {
		return transfer.LocalError("read configuration", name, err)
	}
	values, err := argv.ParseConfig(raw)
	if err != nil {
		return argv.ConfigError(name, globalFlags(), err)
	}
	for flag, value := range values {
		if c.IsSet(flag) {
			continue
		}
		if flag == "timeout" {
			d, err := argv.ParseDuration(value)
			if err != nil || d < 0 {
				return argv.ConfigError(name, globalFlags(), fmt.Errorf("timeout: %q is not a duration such as \"30s\", nor a number of seconds", value))
			}
			value = d.String()
		}
		if err := c.Set(flag, value); err != nil {
			return argv.ConfigError(name, globalFlags(), fmt.Errorf("%s: %q is not a valid value", flag, value))
		}
	}
	return nil
}
