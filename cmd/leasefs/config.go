package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/urfave/cli/v2"

	"github.com/leasefs/leasefs/cmd/leasefs/argv"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/transfer"
)

// fileConfig is the TOML file: the global flags by name. A pointer tells what
// the file does not set.
type fileConfig struct {
	Namenode      any     `toml:"namenode"` // a string, or a list of them
	User          *string `toml:"user"`
	Client        *string `toml:"client"`
	JSON          *bool   `toml:"json"`
	Timeout       any     `toml:"timeout"` // a string, or a number of seconds
	Quiet         *bool   `toml:"quiet"`
	TLS           *bool   `toml:"tls"`
	TLSCA         *string `toml:"tls-ca"`
	TLSCert       *string `toml:"tls-cert"`
	TLSKey        *string `toml:"tls-key"`
	TLSServerName *string `toml:"tls-server-name"`
}

// values are the settings in the file, as text by flag.
func (f *fileConfig) values() (map[string]string, error) {
	v := make(map[string]string)
	for name, s := range map[string]*string{
		"user": f.User, "client": f.Client, "tls-ca": f.TLSCA,
		"tls-cert": f.TLSCert, "tls-key": f.TLSKey, "tls-server-name": f.TLSServerName,
	} {
		if s != nil {
			v[name] = *s
		}
	}
	for name, b := range map[string]*bool{"json": f.JSON, "quiet": f.Quiet, "tls": f.TLS} {
		if b != nil {
			v[name] = fmt.Sprint(*b)
		}
	}
	switch f.Timeout.(type) {
	case nil:
	case string, int64, float64:
		v["timeout"] = fmt.Sprint(f.Timeout)
	default:
		return nil, errors.New("timeout: a duration such as \"30s\", or a number of seconds is needed")
	}
	switch n := f.Namenode.(type) {
	case nil:
	case string:
		v["namenode"] = n
	case []any:
		var list []string
		for _, one := range n {
			s, ok := one.(string)
			if !ok {
				return nil, errors.New("namenode: a list of strings is needed")
			}
			list = append(list, s)
		}
		v["namenode"] = strings.Join(list, ",")
	default:
		return nil, errors.New("namenode: a string or a list of strings is needed")
	}
	return v, nil
}

// before runs ahead of each command.
func (p *program) before(c *cli.Context) error {
	err := applyConfig(c)
	p.json = c.Bool("json") // by environment or file, too
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
	values, err := parseConfig(raw)
	if err != nil {
		return configError(name, err)
	}
	for flag, value := range values {
		if c.IsSet(flag) {
			continue
		}
		if flag == "timeout" {
			d, err := argv.ParseDuration(value)
			if err != nil || d < 0 {
				return configError(name, fmt.Errorf("timeout: %q is not a duration such as \"30s\", nor a number of seconds", value))
			}
			value = d.String()
		}
		if err := c.Set(flag, value); err != nil {
			return configError(name, fmt.Errorf("%s: %q is not a valid value", flag, value))
		}
	}
	return nil
}

// parseConfig reads such a file.
func parseConfig(raw []byte) (map[string]string, error) {
	var f fileConfig
	if err := toml.NewDecoder(bytes.NewReader(raw)).DisallowUnknownFields().Decode(&f); err != nil {
		return nil, err
	}
	return f.values()
}

// configError names the file, the line and the key.
func configError(name string, err error) error {
	var strict *toml.StrictMissingError
	var decode *toml.DecodeError
	text := strings.TrimPrefix(err.Error(), "toml: ")
	switch {
	case errors.As(err, &strict) && len(strict.Errors) > 0:
		first := strict.Errors[0]
		line, _ := first.Position()
		key := strings.Join(first.Key(), ".")
		text = fmt.Sprintf("line %d: unknown key %q%s", line, key, argv.Suggest(key, argv.FlagNames(globalFlags())))
	case errors.As(err, &decode):
		line, _ := decode.Position()
		text = fmt.Sprintf("line %d: %s", line, text)
		if key := strings.Join(decode.Key(), "."); key != "" {
			text = fmt.Sprintf("line %d: key %q: %s", line, key, strings.TrimPrefix(decode.Error(), "toml: "))
		}
	}
	return &fserror.Error{Op: "configuration", Path: name, Kind: fserror.InvalidArgument, Message: text + " (its keys are the global options of leasefs --help)"}
}
