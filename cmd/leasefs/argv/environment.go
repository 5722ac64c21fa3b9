package argv

import (
	"fmt"
	"os"
	"strings"

	"github.com/urfave/cli/v2"
)

// UnsetEmpty unsets empty variables with the prefix, since the parser would take them as
// values.
func UnsetEmpty(prefix string) {
	for _, v := range os.Environ() {
		if name, value, _ := strings.Cut(v, "="); value == "" && strings.HasPrefix(name, prefix) {
			_ = os.Unsetenv(name) // it cannot fail for a name that is there
		}
	}
}

// SecondsInEnvironment lets a variable of a duration be a plain number of seconds,
// which the parser does not know.
func SecondsInEnvironment(flags []cli.Flag) {
	for _, f := range flags {
		d, ok := f.(*cli.DurationFlag)
		if !ok {
			continue
		}
		for _, name := range d.EnvVars {
			if v, err := ParseDuration(os.Getenv(name)); err == nil {
				_ = os.Setenv(name, v.String()) // it cannot fail for such a name
			}
		}
	}
}

// Environment has the variables that set flags to what they are set to, for a process that
// takes the same ones.
func Environment(c *cli.Context, flags []cli.Flag) (environment []string) {
	for _, f := range flags {
		d, ok := f.(cli.DocGenerationFlag)
		if name := f.Names()[0]; ok && c.IsSet(name) && len(d.GetEnvVars()) > 0 {
			environment = append(environment, fmt.Sprintf("%s=%v", d.GetEnvVars()[0], c.Value(name)))
		}
	}
	return environment
}
