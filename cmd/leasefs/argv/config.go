package argv

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/urfave/cli/v2"

	"github.com/leasefs/leasefs/internal/fserror"
)

// fileConfig is the TOML file: the global flags by name. A nil pointer means that
// the file does not set the flag.
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
	BlockCache    *string `toml:"block-cache"`
	CacheSize     *string `toml:"block-cache-size"`
	TokenFile     *string `toml:"token-file"`
	Login         *string `toml:"login"`
	Kerberos      *bool   `toml:"kerberos"`
	Keytab        *string `toml:"kerberos-keytab"`
	Principal     *string `toml:"kerberos-principal"`
	Server        *string `toml:"kerberos-server"`
	Traces        *string `toml:"traces"`
}

// values are the settings in the file, as text by flag.
func (f *fileConfig) values() (map[string]string, error) {
	v := make(map[string]string)
	for name, s := range map[string]*string{
		"user": f.User, "client": f.Client, "tls-ca": f.TLSCA,
		"tls-cert": f.TLSCert, "tls-key": f.TLSKey, "tls-server-name": f.TLSServerName, "token-file": f.TokenFile, "login": f.Login,
		"block-cache": f.BlockCache, "block-cache-size": f.CacheSize,
		"kerberos-keytab": f.Keytab, "kerberos-principal": f.Principal, "kerberos-server": f.Server, "traces": f.Traces,
	} {
		if s != nil {
			v[name] = *s
		}
	}
	for name, b := range map[string]*bool{"json": f.JSON, "quiet": f.Quiet, "tls": f.TLS, "kerberos": f.Kerberos} {
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

// ParseConfig reads the file of --config: the settings in it, as text by flag. ConfigError
// makes its errors readable.
func ParseConfig(raw []byte) (map[string]string, error) {
	var f fileConfig
	if err := toml.NewDecoder(bytes.NewReader(raw)).DisallowUnknownFields().Decode(&f); err != nil {
		return nil, err
	}
	return f.values()
}

// ConfigError names the file, the line and the key.
func ConfigError(name string, flags []cli.Flag, err error) error {
	var strict *toml.StrictMissingError
	var decode *toml.DecodeError
	text := strings.TrimPrefix(err.Error(), "toml: ")
	switch {
	case errors.As(err, &strict) && len(strict.Errors) > 0:
		first := strict.Errors[0]
		line, _ := first.Position()
		key := strings.Join(first.Key(), ".")
		text = fmt.Sprintf("line %d: unknown key %q%s", line, key, Suggest(key, FlagNames(flags)))
	case errors.As(err, &decode):
		line, _ := decode.Position()
		text = fmt.Sprintf("line %d: %s", line, text)
		if key := strings.Join(decode.Key(), "."); key != "" {
			text = fmt.Sprintf("line %d: key %q: %s", line, key, strings.TrimPrefix(decode.Error(), "toml: "))
		}
	}
	return &fserror.Error{Op: "configuration", Path: name, Kind: fserror.InvalidArgument, Message: text + " (its keys are the global options of leasefs --help)"}
}
