package prove

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/urfave/cli/v2"

	"github.com/leasefs/leasefs/cmd/leasefs/argv"
	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/proof"
	"github.com/leasefs/leasefs/namenode/identity/issuer"
)

// noPrefix is how a prefix is said to be empty; defaultPrefix is before the users and groups
// of issuers otherwise, so that they are neither the superuser nor in the supergroup, nor
// users of this system, unless somebody wants that.
const noPrefix, defaultPrefix = "-", "oidc/"

// IssuerFlags are the namenode's for issuers of tokens.
func IssuerFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "oidc-issuer", Usage: "take the tokens (JWT) of the OpenID Connect issuer `URL`, as they have it under \"iss\"", EnvVars: []string{"LEASEFS_OIDC_ISSUER"}},
		&cli.StringFlag{Name: "oidc-audience", Usage: "with it: a token must be for one of `NAMES`, with commas between", EnvVars: []string{"LEASEFS_OIDC_AUDIENCE"}},
		&cli.StringFlag{Name: "oidc-user-claim", Usage: "with it: the `CLAIM` that names the user", Value: issuer.DefaultUserClaim},
		&cli.StringFlag{Name: "oidc-user-prefix", Usage: "with it: put `TEXT` before the names of users; - for nothing: then the issuer can name any user but the superuser", Value: defaultPrefix},
		&cli.StringFlag{Name: "oidc-groups-claim", Usage: "with it: the `CLAIM` that names groups; a/b for b in a", DefaultText: "none: users have no groups"},
		&cli.StringFlag{Name: "oidc-groups-prefix", Usage: "with it: put `TEXT` before the names of groups; - for nothing: then the issuer can make its users superusers", Value: defaultPrefix},
		&cli.BoolFlag{Name: "oidc-machine-groups", Usage: "with it: users have the groups that this machine knows of users of their names"},
		&cli.StringFlag{Name: "oidc-ca", Usage: "with it: PEM `FILE` of the authorities that sign the issuer's certificate", DefaultText: "the system's"},
		&cli.StringFlag{Name: "oidc-config", Usage: "a TOML `FILE` of several issuers, instead of the other --oidc flags", EnvVars: []string{"LEASEFS_OIDC_CONFIG"}},
	}
}

// oneIssuer is an issuer as the file of --oidc-config has it: the flags by name.
type oneIssuer struct {
	URL           string   `toml:"url"`
	Audience      []string `toml:"audience"`
	UserClaim     string   `toml:"user-claim"`
	UserPrefix    *string  `toml:"user-prefix"`
	GroupsClaim   string   `toml:"groups-claim"`
	GroupsPrefix  *string  `toml:"groups-prefix"`
	MachineGroups bool     `toml:"machine-groups"`
	CA            string   `toml:"ca"`
}

// issuers are those that the flags name; nil: none.
func issuers(op string, flags Flags) (*issuer.Issuers, error) {
	file, url := flags.String("oidc-config"), flags.String("oidc-issuer")
	var list []oneIssuer
	switch {
	case file != "" && url != "":
		return nil, argv.Usagef(op, "--oidc-config and --oidc-issuer cannot be given together: put that issuer into the file")
	case file != "":
		var err error
		if list, err = readIssuers(file); err != nil {
			return nil, err
		}
	case url != "":
		user, groups := flags.String("oidc-user-prefix"), flags.String("oidc-groups-prefix")
		list = []oneIssuer{{
			URL: url, UserClaim: flags.String("oidc-user-claim"), UserPrefix: &user, GroupsClaim: flags.String("oidc-groups-claim"), GroupsPrefix: &groups,
			MachineGroups: flags.Bool("oidc-machine-groups"), CA: flags.String("oidc-ca"),
		}}
		if names := flags.String("oidc-audience"); names != "" {
			list[0].Audience = strings.Split(names, ",")
		}
	default:
		for _, name := range []string{"oidc-audience", "oidc-groups-claim", "oidc-ca"} {
			if flags.String(name) != "" {
				return nil, argv.Usagef(op, "--%s needs --oidc-issuer", name)
			}
		}
		return nil, nil
	}
	configs := make([]issuer.Config, len(list))
	for i, o := range list {
		c := issuer.Config{
			URL: o.URL, Audiences: o.Audience, UserClaim: o.UserClaim, UserPrefix: prefix(o.UserPrefix),
			GroupsClaim: o.GroupsClaim, GroupsPrefix: prefix(o.GroupsPrefix), MachineGroups: o.MachineGroups,
		}
		if o.CA != "" {
			f, err := proof.OpenAuthorities(clock.System{}, o.CA, "")
			if err != nil {
				return nil, err
			}
			c.Roots = f.Get().Pool
		}
		configs[i] = c
	}
	return issuer.New(clock.System{}, configs...)
}

func prefix(p *string) string {
	switch {
	case p == nil:
		return defaultPrefix
	case *p == noPrefix:
		return ""
	}
	return *p
}

func readIssuers(file string) ([]oneIssuer, error) {
	raw, err := os.ReadFile(file) //nolint:gosec // the user names it
	if err != nil {
		return nil, local(file, err)
	}
	list, err := parseIssuers(raw)
	if err != nil {
		return nil, &fserror.Error{Op: "read issuers", Path: file, Kind: fserror.InvalidArgument, Err: err}
	}
	return list, nil
}

// parseIssuers reads the file of --oidc-config.
func parseIssuers(raw []byte) ([]oneIssuer, error) {
	var all struct {
		Issuers []oneIssuer `toml:"issuer"`
	}
	d := toml.NewDecoder(bytes.NewReader(raw)).DisallowUnknownFields()
	err := d.Decode(&all)
	var unknown *toml.StrictMissingError
	var wrong *toml.DecodeError
	switch {
	case errors.As(err, &unknown):
		row, _ := unknown.Errors[0].Position()
		return nil, fmt.Errorf("line %d: %q is no setting of an issuer; they are url, audience, user-claim, user-prefix, groups-claim, groups-prefix, machine-groups, ca",
			row, strings.Join(unknown.Errors[0].Key(), "."))
	case errors.As(err, &wrong):
		row, _ := wrong.Position()
		return nil, fmt.Errorf("line %d: %w; docs/SECURITY.md has an example", row, err)
	case err != nil:
		return nil, err
	case len(all.Issuers) == 0:
		return nil, errors.New("there is no [[issuer]] in it; docs/SECURITY.md has an example")
	}
	return all.Issuers, nil
}
