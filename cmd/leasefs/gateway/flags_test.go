package gateway

import (
	"slices"
	"testing"

	"github.com/urfave/cli/v2"
)

// TestDoasKeepsCommas: a rule has commas of its own, and does not become several.
func TestDoasKeepsCommas(t *testing.T) {
	var got []string
	app := cli.App{Flags: common(), Action: func(c *cli.Context) error {
		got = doas(c)
		return nil
	}}
	if err := app.Run([]string{"leasefs", "--doas", "hue users=ann,bob from=10.0.0.7", "--doas", "knox"}); err != nil {
		t.Fatal(err)
	}
	if want := []string{"hue users=ann,bob from=10.0.0.7", "knox"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
