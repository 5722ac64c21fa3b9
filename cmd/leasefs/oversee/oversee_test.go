package oversee

import (
	"testing"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/leasefs/leasefs/namenode"
)

// TestArchive: without the flag a namenode does as the one before, with 0 it archives nothing.
func TestArchive(t *testing.T) {
	for _, c := range []struct {
		args []string
		want time.Duration
		bad  bool
	}{
		{nil, 0, false},
		{[]string{"--archive", "0"}, -1, false},
		{[]string{"--archive", "168h"}, 168 * time.Hour, false},
		{[]string{"--archive", "1s"}, 0, true},
		{[]string{"--archive", "-1h"}, 0, true},
	} {
		var cfg namenode.Config
		app := &cli.App{Flags: Flags(), Action: func(flags *cli.Context) error {
			return Namenode("namenode", flags, func(string, string) (int64, error) { return 1 << 20, nil }, &cfg)
		}}
		err := app.Run(append([]string{"leasefs"}, c.args...))
		if (err != nil) != c.bad || err == nil && cfg.Archive != c.want {
			t.Errorf("%q: %s, %v", c.args, cfg.Archive, err)
		}
	}
}
