package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/cmd/leasefs/argv"
	"github.com/leasefs/leasefs/cmd/leasefs/login"
	"github.com/leasefs/leasefs/cmd/leasefs/prove"
	"github.com/leasefs/leasefs/cmd/leasefs/screen"
	"github.com/leasefs/leasefs/cmd/leasefs/traces"
	"github.com/leasefs/leasefs/internal/filemode"
	"github.com/leasefs/leasefs/internal/fserror"
)

// globalFlags are accepted by every command, before and after it. Flags beat
// environment beats file.
func globalFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "namenode", Usage: "`HOST:PORT` of the namenode; several with commas between", Value: client.DefaultNamenode, EnvVars: []string{"LEASEFS_NAMENODE"}},
		&cli.StringFlag{Name: "user", Usage: "act as the user `NAME`", DefaultText: "the login name", EnvVars: []string{"LEASEFS_USER"}},
		&cli.StringFlag{Name: "client", Usage: "a stable client `NAME`: a process that comes back under it gets its files at once", DefaultText: "host, pid and a random part", EnvVars: []string{"LEASEFS_CLIENT"}},
		&cli.BoolFlag{Name: "json", Usage: "print one JSON object a line, errors too", EnvVars: []string{"LEASEFS_JSON"}},
		&cli.DurationFlag{Name: "timeout", Usage: "how `LONG` a call is tried again while no namenode answers", DefaultText: "1m, put and get 2m; at most 2m", EnvVars: []string{"LEASEFS_TIMEOUT"}},
		&cli.BoolFlag{Name: "quiet", Aliases: []string{"q"}, Usage: "no progress bar, no summary, no notes of what is waited for", EnvVars: []string{"LEASEFS_QUIET"}},
		&cli.StringFlag{Name: "block-cache", Usage: "keep blocks that are read in `DIR` of this machine (made before, mode 0700, this user's)", DefaultText: "nowhere", EnvVars: []string{"LEASEFS_BLOCK_CACHE"}},
		&cli.StringFlag{Name: "block-cache-size", Usage: "how many `BYTES`, such as 20G, these may take on its disk", DefaultText: "1G", EnvVars: []string{"LEASEFS_BLOCK_CACHE_SIZE"}},
		&cli.StringFlag{Name: "config", Usage: "a TOML `FILE` that sets any of these by name", EnvVars: []string{"LEASEFS_CONFIG"}},
		&cli.BoolFlag{Name: "tls", Usage: "connect with TLS; implied by the other TLS flags", EnvVars: []string{"LEASEFS_TLS"}},
		&cli.StringFlag{Name: "tls-ca", Usage: "PEM `FILE` of the authorities that sign namenodes", DefaultText: "the system's", EnvVars: []string{"LEASEFS_TLS_CA"}},
		&cli.StringFlag{Name: "tls-cert", Usage: "PEM `FILE` of the own certificate", EnvVars: []string{"LEASEFS_TLS_CERT"}},
		&cli.StringFlag{Name: "tls-key", Usage: "PEM `FILE` of its key", EnvVars: []string{"LEASEFS_TLS_KEY"}},
		&cli.StringFlag{Name: "tls-server-name", Usage: "the `NAME` that the namenode's certificate must have", DefaultText: "the host", EnvVars: []string{"LEASEFS_TLS_SERVER_NAME"}},
		&cli.StringFlag{Name: "token-file", Usage: "`FILE` with a token that proves who --user is; of mode 600", EnvVars: []string{"LEASEFS_TOKEN_FILE"}},
		&cli.StringFlag{Name: "login", Usage: "`FILE` of a login, see leasefs login", DefaultText: "one for these namenodes, if there is one", EnvVars: []string{"LEASEFS_LOGIN"}},
		&cli.BoolFlag{Name: "kerberos", Usage: "prove by the tickets of kinit who --user is; implied by the other flags of Kerberos; --token-file beats it", EnvVars: []string{"LEASEFS_KERBEROS"}},
		&cli.StringFlag{Name: "kerberos-keytab", Usage: "prove by the keys in `FILE`; of a namenode: what it checks tickets with", EnvVars: []string{"LEASEFS_KERBEROS_KEYTAB"}},
		&cli.StringFlag{Name: "kerberos-principal", Usage: "the own `PRINCIPAL`, NAME@REALM; of a namenode leasefs/HOST@REALM", EnvVars: []string{"LEASEFS_KERBEROS_PRINCIPAL"}},
		&cli.StringFlag{Name: "kerberos-server", Usage: "the `PRINCIPAL` of a namenode, _HOST being its host", DefaultText: "leasefs/_HOST", EnvVars: []string{"LEASEFS_KERBEROS_SERVER"}},
		traces.Flag(),
	}
}

// clientConfig is what the global flags say to the library.
func (e *invocation) clientConfig() (client.Config, error) {
	cfg := client.Config{
		User:    e.flags.String("user"),
		Client:  e.flags.String("client"),
		Timeout: e.flags.Duration("timeout"),
		Proof:   client.Proof{TokenFile: e.flags.String("token-file"), Login: e.flags.String("login"), Authorities: e.flags.String("tls-ca")},
		OnWait:  e.waits,
		Umask:   filemode.Umask(),
	}
	if err := e.blockCache(&cfg); err != nil {
		return cfg, err
	}
	for a := range strings.SplitSeq(e.flags.String("namenode"), ",") {
		a = strings.TrimSpace(a)
		if err := checkAddress(a); err != "" {
			return cfg, argv.Usagef(e.op, "--namenode: %s", err)
		}
		cfg.Namenodes = append(cfg.Namenodes, a)
	}
	if err := e.atLeast("timeout", time.Millisecond); err != nil {
		return cfg, err
	}
	if cfg.Timeout > client.MaxTimeout {
		return cfg, argv.Usagef(e.op, "--timeout: %s is too long; at most %s, so that a repeated call happens once", cfg.Timeout, client.MaxTimeout)
	}
	var err error
	if cfg.Kerberos, err = prove.Kerberos(e.op, e.flags); err != nil {
		return cfg, err
	}
	if cfg.TLS, err = e.clientTLS(); err == nil && e.op != "login" && e.op != "logout" {
		login.Use(&cfg)
	}
	return cfg, err
}

// readsBlocks are the commands that use a block cache. Others need none, so that a folder
// that is gone is in nobody's way.
var readsBlocks = map[string]bool{"append": true, "bench": true, "cat": true, "cp": true, "get": true, "head": true, "mount": true, "tail": true}

// blockCache reads --block-cache and --block-cache-size.
func (e *invocation) blockCache(cfg *client.Config) (err error) {
	if size := e.flags.String("block-cache-size"); size != "" {
		if cfg.BlockCacheSize, err = e.parseSize("--block-cache-size", size); err != nil {
			return err
		}
		if cfg.BlockCacheSize < client.MinBlockCacheSize {
			return argv.Usagef(e.op, "--block-cache-size: %s is too small; at least 16M, or no --block-cache at all", size)
		}
	}
	if cfg.BlockCache = e.flags.String("block-cache"); !readsBlocks[e.op] {
		cfg.BlockCache, cfg.BlockCacheSize = "", 0
	}
	return nil
}

// unusable makes wrong use of what is wrong with the folder of --block-cache: it is no
// name of the namespace.
func (e *invocation) unusable(err error) error {
	if fserror.ReasonOf(err) != fserror.ReasonBlockCache {
		return err
	}
	return argv.Usagef(e.op, "%s", err)
}

// connect fills e.fs; change, if not nil, adapts the configuration first.
func (e *invocation) connect(change func(*client.Config)) error {
	cfg, err := e.clientConfig()
	if err != nil {
		return err
	}
	if change != nil {
		change(&cfg)
	}
	e.fs, err = client.New(e.ctx, cfg)
	if err != nil && e.ctx.Err() != nil {
		return context.Cause(e.ctx)
	}
	return e.unusable(err)
}

// waits tells a person what the command waits for, if notes are wanted. It is
// called by several goroutines, by one at a time.
func (e *invocation) waits(w client.Waiting) {
	if e.Quiet || e.silent.Load() {
		return
	}
	what := e.op
	if w.Path != "" {
		what += " " + w.Path
	}
	until := "; trying until it works"
	if w.Limit > 0 {
		until = fmt.Sprintf("; waiting up to %s (--timeout)", fserror.Round(w.Limit))
	}
	if screen.IsTerminal(e.Stderr) && !e.JSON {
		fmt.Fprint(e.Stderr, "\r\x1b[K") // over a progress bar
	}
	e.Note("%s", screen.OneLine(what+": "+screen.WithReason(w.Cause)+until))
}

// copyTimeout is how long put and get try again by default: long enough for a
// namenode to be restarted.
const copyTimeout = 2 * time.Minute
