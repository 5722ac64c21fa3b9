// Package login has what the commands login, logout and whoami take, and what they do.
package login

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/cmd/leasefs/argv"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/login"
)

// Flags are the command's.
func Flags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "issuer", Usage: "log in at the OpenID Connect issuer `URL`", DefaultText: "that of the last login", EnvVars: []string{"LEASEFS_ISSUER"}},
		&cli.StringFlag{Name: "client-id", Usage: "the `ID` that this program has at the issuer", DefaultText: "that of the last login", EnvVars: []string{"LEASEFS_CLIENT_ID"}},
		&cli.StringFlag{Name: "client-secret-file", Usage: "`FILE` with the secret that belongs to it, if there is one"},
		&cli.StringFlag{Name: "issuer-ca", Usage: "PEM `FILE` of the authorities that sign the issuer's certificate", DefaultText: "the system's"},
		&cli.StringSliceFlag{Name: "scope", Usage: "ask for the scope `NAME`, too"},
		&cli.BoolFlag{Name: "access-token", Usage: "show the access token to namenodes, not the ID token"},
		&cli.BoolFlag{Name: "device", Usage: "log in by a code, in a browser on any machine"},
		&cli.BoolFlag{Name: "browser", Usage: "log in by a browser on this machine"},
		&cli.StringFlag{Name: "redirect", Usage: "with a browser: the `HOST:PORT` of this machine that the issuer sends it back to", DefaultText: "a free port of 127.0.0.1"},
	}
}

// File is where the login is that the configuration names, or would be.
func File(cfg *client.Config) (string, error) {
	if cfg.Login != "" {
		return cfg.Login, nil
	}
	dir, err := login.Folder()
	if err != nil {
		return "", err
	}
	return login.FileFor(dir, cfg.Namenodes), nil
}

// Use has the configuration show the login that was made for its namenodes, if it names no
// token and no certificate and there is one.
func Use(cfg *client.Config) {
	if cfg.Login != "" || cfg.TokenFile != "" || cfg.Kerberos != nil || cfg.TLS != nil && len(cfg.TLS.Certificates) > 0 {
		return
	}
	if dir, err := login.Folder(); err == nil {
		cfg.Login = login.Find(dir, cfg.Namenodes)
	}
}

// Begin logs in, asks the namenode who that is, and keeps the login. note is told what a person has
// to do.
func Begin(ctx context.Context, op string, flags *cli.Context, cfg client.Config, note func(format string, args ...any)) (*login.Login, client.Identity, error) {
	var id client.Identity
	file, err := File(&cfg)
	if err != nil {
		return nil, id, err
	}
	o, err := options(op, flags, file)
	if err != nil {
		return nil, id, err
	}
	o.Namenodes = cfg.Namenodes
	d, err := login.NewDraft(file) // before anybody logs in
	if err != nil {
		return nil, id, err
	}
	l, err := get(ctx, flags, o, note)
	if err != nil {
		d.Drop()
		return nil, id, err
	}
	unlock, err := login.Lock(ctx, file) // a renewal of the last login would come after it
	if err != nil {
		d.Drop()
		return nil, id, err
	}
	defer unlock()
	if id, err = ask(ctx, cfg, l); err != nil {
		d.Drop()
		return nil, id, err
	}
	l.User = id.User
	return l, id, d.Keep(l)
}

// ask asks the namenode who the bearer of the token is. It is told so nowhere else.
func ask(ctx context.Context, cfg client.Config, l *login.Login) (client.Identity, error) {
	cfg.Login, cfg.TokenFile, cfg.User = "", "", ""
	cfg.Token = func(context.Context) (string, error) { return l.Token, nil }
	return client.WhoAmI(ctx, cfg)
}

// options are those of the flags, and of the login that there was.
func options(op string, flags *cli.Context, file string) (o login.Options, err error) {
	o = login.Options{Scopes: flags.StringSlice("scope"), Redirect: flags.String("redirect"), Now: time.Now}
	o.Issuer, o.ClientID, o.CA, o.Access = flags.String("issuer"), flags.String("client-id"), flags.String("issuer-ca"), flags.Bool("access-token")
	if last, err := login.Read(file); err == nil && (o.Issuer == "" || o.Issuer == last.Issuer) && (o.ClientID == "" || o.ClientID == last.ClientID) {
		o.Issuer, o.ClientID, o.Secret, o.Access = last.Issuer, last.ClientID, last.Secret, o.Access || last.Access
		if o.CA == "" {
			o.CA = last.CA
		}
	}
	switch {
	case o.Issuer == "" || o.ClientID == "":
		return o, argv.Usagef(op, "needs --issuer URL and --client-id ID, as whoever runs the namenode knows them")
	case flags.Bool("device") && flags.Bool("browser"):
		return o, argv.Usagef(op, "--device and --browser cannot be given together")
	case flags.Bool("device") && o.Redirect != "":
		return o, argv.Usagef(op, "--redirect is for a browser, not for --device")
	}
	if o.CA != "" {
		if o.CA, err = filepath.Abs(o.CA); err != nil {
			return o, err
		}
	}
	if name := flags.String("client-secret-file"); name != "" {
		raw, err := os.ReadFile(name) //nolint:gosec // the user names it
		if err != nil {
			return o, fserror.With(err, op, name)
		}
		o.Secret = strings.TrimSpace(string(raw))
	}
	return o, nil
}

func get(ctx context.Context, flags *cli.Context, o login.Options, note func(string, ...any)) (*login.Login, error) {
	device := flags.Bool("device")
	if !device && !flags.Bool("browser") && o.Redirect == "" && !seesBrowser() {
		var err error
		if device, err = o.HasDevice(ctx); err != nil {
			return nil, err
		}
	}
	if device {
		return login.Device(ctx, o, func(address, code string) {
			note("open %s in a browser on any machine, and enter the code %s", shown(address), shown(code))
		})
	}
	return login.Browser(ctx, o, func(address string) {
		note("log in at %s", shown(address))
		if seesBrowser() {
			_ = exec.CommandContext(ctx, "xdg-open", address).Start() //nolint:gosec // the address is told, too
		}
	})
}

// shown is a text of an issuer without what would drive a terminal.
func shown(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return '?'
		}
		return r
	}, s)
}

// seesBrowser tells whether who sits here sees a browser that begins on this machine.
func seesBrowser() bool {
	return os.Getenv("SSH_CONNECTION") == "" && slices.ContainsFunc([]string{"DISPLAY", "WAYLAND_DISPLAY"}, func(name string) bool { return os.Getenv(name) != "" })
}

// End removes the login, and tells the issuer. told: it could be told. An error after which
// removed is true is about the issuer alone.
func End(ctx context.Context, cfg *client.Config) (l *login.Login, removed, told bool, err error) {
	file, err := File(cfg)
	if err != nil {
		return nil, false, false, err
	}
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		if dir, err := login.Folder(); err == nil && cfg.Login == "" {
			if other := login.Find(dir, cfg.Namenodes); other != "" {
				file = other
			}
		}
	}
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		return nil, false, false, fserror.New(fserror.NotFound, "", "", "there is no login for %s: none is to be ended", strings.Join(cfg.Namenodes, ", "))
	}
	unlock, err := login.Lock(ctx, file)
	if err != nil {
		return nil, false, false, err
	}
	defer unlock()
	l, broken := login.Read(file)
	if err := os.Remove(file); err != nil {
		return nil, false, false, fserror.With(err, "logout", file)
	}
	if broken != nil {
		return nil, true, false, broken
	}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	told, err = l.Revoke(ctx)
	return l, true, told, err
}
