package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/leasefs/leasefs/cmd/leasefs/argv"
	"github.com/leasefs/leasefs/cmd/leasefs/gateway"
	"github.com/leasefs/leasefs/cmd/leasefs/oversee"
	"github.com/leasefs/leasefs/cmd/leasefs/prove"
	"github.com/leasefs/leasefs/cmd/leasefs/runner"
	"github.com/leasefs/leasefs/cmd/leasefs/screen"
	"github.com/leasefs/leasefs/cmd/leasefs/traces"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode"
	"github.com/leasefs/leasefs/namenode/reign"
)

func namenodeCommand(p *program) *cli.Command {
	return &cli.Command{
		Name:      "namenode",
		Usage:     "serve a namespace",
		UsageText: "leasefs namenode --data DIR [options]\n\nExample:\n  leasefs namenode --data /var/lib/leasefs --listen 0.0.0.0:8020 --http 0.0.0.0:8021 \\\n    --tls-cert nn.pem --tls-key nn.key --tls-client-ca ca.pem",
		Description: "Serves the namespace in DIR, which is made when new, and prints a line \"ready\" with its\n" +
			"addresses (the first is the one for --namenode) once it answers. With --zookeeper the namespace\n" +
			"is one that leasefs admin format has made. SIGTERM ends it cleanly. The\n" +
			"HTTP address serves blocks, a web page at /, /metrics, /healthz, /readyz, /activez. With --tls-cert\n" +
			"and --tls-key both are served with TLS; with --tls-client-ca clients need a certificate that names\n" +
			"their user. Where nothing is asked of clients, --listen has to be a loopback address,\n" +
			"or --insecure-trust-clients given.\n" +
			"With --hdfs or --webhdfs Hadoop's clients are served in the same process (leasefs gateway, docs/HADOOP.md).",
		Flags: slices.Concat([]cli.Flag{
			&cli.StringFlag{Name: "data", Usage: "the `DIR` that holds the namespace", EnvVars: []string{"LEASEFS_DATA"}},
			&cli.StringFlag{Name: "listen", Usage: "the `ADDR` for clients; port 0 takes a free one", Value: namenode.DefaultListen},
			&cli.StringFlag{Name: "http", Usage: "the `ADDR` for blocks and pages; port 0 takes a free one", Value: namenode.DefaultHTTP},
			&cli.StringFlag{Name: "advertise-http", Usage: "the `HOST:PORT` by which clients reach --http", DefaultText: "--http, or this host's name if that is all addresses"},
			&cli.StringFlag{Name: "blocks", Usage: "where blocks are: a `URL` such as file:///mnt/disk2 or s3://bucket/prefix?endpoint=https://s3.example:9000", DefaultText: "DIR/blocks"},
			takeOverFlag(), supergroupFlag(),
		}, zookeeperFlags(
			"`HOSTS` of the ZooKeeper ensemble, HOST:PORT with commas between: this is one of several namenodes",
			"with --zookeeper: the `NAME` under which the namenodes meet",
		), []cli.Flag{
			&cli.DurationFlag{Name: "session-timeout", Usage: "with --zookeeper: another namenode takes over after this `LONG` without a sign of life", Value: namenode.DefaultSessionTimeout},
			&cli.StringFlag{Name: "advertise", Usage: "with --zookeeper: the `HOST:PORT` by which clients reach --listen", DefaultText: "--listen, or this host's name if that is all addresses"},
			&cli.DurationFlag{Name: "soft-limit", Usage: "after this `LONG` without a renewal another client may take a file; to lower it, end all namenodes for as long as the old one", Value: namenode.DefaultSoftLimit},
			&cli.DurationFlag{Name: "hard-limit", Usage: "after this `LONG` without a renewal a file is closed", Value: namenode.DefaultHardLimit},
			&cli.DurationFlag{Name: "min-lease-ttl", Usage: "granted leases live at least this `LONG`, and with --zookeeper locks, too", DefaultText: "1s; with --zookeeper three session time-outs, which outlive a failover"},
			&cli.IntFlag{Name: "reap-rate", Usage: "free the memory and blocks of `N` files of ended granted leases a second; leases end at once", Value: namenode.DefaultReapRate},
			&cli.DurationFlag{Name: "delete-after", Usage: "delete nothing from a block store that others may have for this `LONG` after becoming active: they can object", Value: namenode.DefaultDeleteAfter},
			&cli.DurationFlag{Name: "cache-term", Usage: "a change waits at most this `LONG` for a reader that is gone; 0: readers may not cache", Value: namenode.DefaultCacheTerm},
			&cli.StringFlag{Name: "tls-client-ca", Usage: "PEM `FILE` of the authorities that sign clients; demands certificates", EnvVars: []string{"LEASEFS_TLS_CLIENT_CA"}},
			&cli.StringFlag{Name: "tls-client-crl", Usage: "PEM `FILE` of the certificates that those authorities have revoked", EnvVars: []string{"LEASEFS_TLS_CLIENT_CRL"}},
			&cli.StringFlag{Name: "tokens", Usage: "`FILE` of the tokens that prove who clients are, see leasefs admin token", EnvVars: []string{"LEASEFS_TOKENS"}},
		}, prove.IssuerFlags(), []cli.Flag{
			&cli.StringFlag{Name: "proxies", Usage: "`FILE` of rules: who, proven, may act for whom, from where, as a gateway or a mount does", EnvVars: []string{"LEASEFS_PROXIES"}},
			&cli.StringFlag{Name: "kerberos-rules", Usage: "`FILE` that says which Kerberos principals are which users", DefaultText: "NAME@REALM of the namenode's realm is NAME", EnvVars: []string{"LEASEFS_KERBEROS_RULES"}},
			&cli.BoolFlag{Name: "delegation-tokens", Usage: "give delegation tokens (leasefs token get) to who proves who he is, and take them for a proof", EnvVars: []string{"LEASEFS_DELEGATION_TOKENS"}},
			&cli.BoolFlag{Name: "insecure-trust-clients", Usage: "believe every client who it says it is: whoever reaches --listen can act as any user"},
			logLevelFlag("info"),
			&cli.BoolFlag{Name: "pprof", Usage: "serve /debug/pprof on the HTTP address"},
		}, oversee.Flags(), gateway.BesideFlags()),
		Action: p.action(operands{}, serve),
	}
}

// zookeeperFlags say where the namenodes of a namespace meet; the usage of the
// first two is the command's own.
func zookeeperFlags(hosts, name string) []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "zookeeper", Usage: hosts},
		&cli.StringFlag{Name: "namespace", Usage: name},
		&cli.StringFlag{Name: "zookeeper-auth", Usage: "`USER:PASSWORD` for ZooKeeper (digest); better in the environment", EnvVars: []string{"LEASEFS_ZOOKEEPER_AUTH"}},
		&cli.StringFlag{Name: "zookeeper-auth-also", Usage: "a second `USER:PASSWORD`, while the password is being changed; better in the environment", EnvVars: []string{"LEASEFS_ZOOKEEPER_AUTH_ALSO"}},
		&cli.BoolFlag{Name: "zookeeper-tls", Usage: "connect to ZooKeeper with TLS; implied by the next ones"},
		&cli.StringFlag{Name: "zookeeper-tls-ca", Usage: "PEM `FILE` of the authorities that sign ZooKeeper's servers", DefaultText: "the system's"},
		&cli.StringFlag{Name: "zookeeper-tls-cert", Usage: "PEM `FILE` of the certificate shown to ZooKeeper"},
		&cli.StringFlag{Name: "zookeeper-tls-key", Usage: "PEM `FILE` of its key"},
	}
}

// offlineFlags are those of commands that speak to ZooKeeper and to no namenode.
func offlineFlags(hosts, name string, own ...cli.Flag) []cli.Flag {
	return slices.Concat(zookeeperFlags(hosts, name), own, []cli.Flag{
		&cli.DurationFlag{Name: "session-timeout", Usage: "give up when ZooKeeper does not answer for twice this `LONG`", Value: namenode.DefaultSessionTimeout},
		logLevelFlag("warn"),
	})
}

func takeOverFlag() cli.Flag {
	return &cli.StringFlag{Name: "take-over", Usage: "take over the block store of another incarnation of the namespace: the `INCARNATION` that it is of, from the refusal; it must have ended for good"}
}

func supergroupFlag() cli.Flag {
	return &cli.StringFlag{Name: "supergroup", Usage: "of a new namespace: members of the `GROUP` are superusers", DefaultText: "the primary group of whoever makes it"}
}

func logLevelFlag(level string) cli.Flag {
	return &cli.StringFlag{Name: "log-level", Usage: "`LEVEL` of what is logged on standard error: debug, info, warn, error", Value: level}
}

func serve(e *invocation) (err error) {
	cfg, err := e.namenodeConfig()
	if err != nil {
		return err
	}
	sent, err := traces.Open(e.ctx, e.op, e.flags.String("traces"), version, true, func(err error) { cfg.Logger.Warn(err.Error()) })
	if err != nil {
		return err
	}
	defer sent.Close()
	cfg.Tracer = sent.Tracer()
	var hadoop *gateway.Gateway
	defer func() { err = cmp.Or(err, hadoop.Close()) }()
	for again := false; ; again = true {
		s, err := namenode.Start(e.ctx, cfg)
		switch {
		case err != nil && again && e.ctx.Err() != nil: // asked to end meanwhile
			return nil
		case err != nil && again && !errors.Is(err, fserror.Damaged) && !errors.Is(err, fserror.Exists) && fserror.ReasonOf(err) != fserror.ReasonNewer: // Exists: its store was taken over
			cfg.Logger.Error("could not restart; trying again", "cause", err)
			if e.pause(failedPause) != nil {
				return nil
			}
			continue
		case err != nil:
			return e.fail(err, "")
		case again: // it was told once
			hadoop.Calls(s)
		default:
			if hadoop, err = gateway.Beside(e.ctx, e.flags, e.clientConfig, cfg.Logger, s); err == nil {
				err = e.ready(s, hadoop)
			}
			if err != nil {
				return errors.Join(e.fail(err, ""), hadoop.Close(), s.Close())
			}
		}
		select {
		case <-e.ctx.Done(): // asked to end: that is success
			cfg.Logger.Info("ending, by a signal", "signal", endingSignal(e.ctx), "role", s.Role())
			err := cmp.Or(hadoop.Close(), s.Close())
			cfg.Logger.Info("ended")
			return e.fail(err, "")
		case <-hadoop.Done():
			return e.fail(errors.Join(fmt.Errorf("cannot serve Hadoop's clients any more: %w", hadoop.Err()), s.Close()), "")
		case <-s.Done():
		}
		err = s.Err()
		// The next one has the same addresses, ports that were free included.
		cfg.Listen, cfg.HTTP = s.Addr(), s.HTTPAddr()
		if cfg.Pages != "" {
			cfg.Pages = s.PagesAddr()
		}
		hadoop.Calls(nil)
		cerr := s.Close() // the error that ended it is the one to tell
		switch {
		case err == nil:
			return e.fail(errors.Join(errors.New("ended by itself"), cerr), "")
		case cfg.HA == nil || !reign.Restartable(err):
			return e.fail(err, "")
		}
		was := "was a standby"
		if s.Reigned() {
			was = "not active any more"
		}
		cfg.Logger.Warn(was+"; starting again as a standby", "cause", err)
		if err := e.pause(restartPause); err != nil {
			return nil
		}
	}
}

// endingSignal names the signal that ended the context.
func endingSignal(ctx context.Context) string {
	var i runner.Interrupted
	if errors.As(context.Cause(ctx), &i) {
		return i.Signal.String()
	}
	return "none"
}

// restartPause is how long a namenode that was deposed waits before it joins
// again.
const restartPause = 200 * time.Millisecond

// failedPause is how long it waits when that fails: the block store may be out
// of reach, or its port taken.
const failedPause = 2 * time.Second

// ready tells that the namenode answers, and where.
func (p *program) ready(s *namenode.Server, hadoop *gateway.Gateway) error {
	fields, more := map[string]any{"ready": true, "address": s.Addr(), "http": s.HTTPAddr()}, ""
	if hadoop != nil {
		hadoop.AddTo(fields)
		more = " hadoop " + hadoop.String()
	}
	return cmp.Or(p.Result(fields, "ready %s http %s%s\n", s.Addr(), s.HTTPAddr(), more), p.Flush())
}

// leastCacheTerm is the shortest cache term but none.
const leastCacheTerm = 100 * time.Millisecond

func (e *invocation) namenodeConfig() (namenode.Config, error) {
	cfg := namenode.Config{
		Data: e.flags.String("data"), Listen: e.flags.String("listen"), HTTP: e.flags.String("http"),
		AdvertiseHTTP: e.flags.String("advertise-http"), Pprof: e.flags.Bool("pprof"), Version: version,
		LeaseTimes: namenode.LeaseTimes{
			SoftLimit: e.flags.Duration("soft-limit"), HardLimit: e.flags.Duration("hard-limit"), MinLeaseTTL: e.flags.Duration("min-lease-ttl"),
			ReapRate: e.flags.Int("reap-rate"), CacheTerm: e.flags.Duration("cache-term"),
		},
		Upkeep: namenode.Upkeep{DeleteAfter: e.flags.Duration("delete-after")}, Supergroup: e.flags.String("supergroup"),
	}
	if cfg.CacheTerm == 0 {
		cfg.CacheTerm = -1 // off; to the library 0 means the default
	}
	for _, d := range []struct {
		flag  string
		least time.Duration
	}{{"soft-limit", leastLock}, {"min-lease-ttl", leastGrant}, {"delete-after", time.Millisecond}} {
		if err := e.atLeast(d.flag, d.least); err != nil {
			return cfg, err
		}
	}
	switch {
	case cfg.Data == "":
		return cfg, argv.Usagef(e.op, "needs --data DIR")
	case cfg.HardLimit < cfg.SoftLimit:
		return cfg, argv.Usagef(e.op, "--hard-limit %s is below --soft-limit %s", cfg.HardLimit, cfg.SoftLimit)
	case cfg.CacheTerm > 0 && cfg.CacheTerm < leastCacheTerm:
		return cfg, argv.Usagef(e.op, "--cache-term: %s is too short; at least %s, or 0 for no caching", cfg.CacheTerm, leastCacheTerm)
	case cfg.ReapRate < 1:
		return cfg, argv.Usagef(e.op, "--reap-rate: %d removes none; at least 1", cfg.ReapRate)
	}
	var err error
	if cfg.HA, err = e.ensembleAndStore(); err != nil {
		return cfg, err
	}
	cfg.Blocks, cfg.Advertise, cfg.TakeOver = e.flags.String("blocks"), e.flags.String("advertise"), e.flags.String("take-over")
	if cfg.Logger, err = e.logger(); err != nil {
		return cfg, err
	}
	return cfg, cmp.Or(prove.Namenode(e.op, e.flags, &cfg), oversee.Namenode(e.op, e.flags, e.parseSize, &cfg))
}

// ensembleAndStore is ensemble for those who need --blocks with it.
func (c *commandLine) ensembleAndStore() (*namenode.HA, error) {
	ha, err := c.ensemble()
	if ha != nil && c.flags.String("blocks") == "" {
		return nil, argv.Usagef(c.op, "--zookeeper needs --blocks: a store that all namenodes reach, s3://BUCKET/PREFIX?endpoint=URL or file:///SHARED/DIR")
	}
	return ha, err
}

// ensemble reads the flags of several namenodes; nil without --zookeeper.
func (c *commandLine) ensemble() (*namenode.HA, error) {
	if c.flags.String("zookeeper") == "" {
		for _, name := range []string{"namespace", "zookeeper-auth", "zookeeper-auth-also", "session-timeout", "zookeeper-tls", "zookeeper-tls-ca", "zookeeper-tls-cert", "zookeeper-tls-key"} {
			if c.flags.IsSet(name) {
				return nil, argv.Usagef(c.op, "--%s needs --zookeeper", name)
			}
		}
		return nil, nil
	}
	ha := &namenode.HA{Name: c.flags.String("namespace"), SessionTimeout: c.flags.Duration("session-timeout")}
	for a := range strings.SplitSeq(c.flags.String("zookeeper"), ",") {
		if a = strings.TrimSpace(a); a == "" {
			return nil, argv.Usagef(c.op, "--zookeeper: an address in the list is empty")
		}
		ha.ZooKeeper = append(ha.ZooKeeper, a)
	}
	if ha.Name == "" {
		return nil, argv.Usagef(c.op, "--zookeeper needs --namespace NAME: the name under which the namenodes meet")
	}
	var err error
	if ha.User, ha.Password, err = c.login("zookeeper-auth"); err != nil {
		return nil, err
	}
	if ha.AlsoUser, ha.AlsoPassword, err = c.login("zookeeper-auth-also"); err != nil {
		return nil, err
	}
	if ha.User == "" && ha.AlsoUser != "" {
		return nil, argv.Usagef(c.op, "--zookeeper-auth-also needs --zookeeper-auth")
	}
	if ha.TLS, err = prove.DialTLS(c.op, c.flags, "zookeeper-tls", nil); err != nil {
		return nil, err
	}
	return ha, fserror.With(ha.Check(), c.op, "") // to the library 0 means a default
}

// login reads a flag of a user and a password; both are empty without it.
func (c *commandLine) login(flag string) (user, password string, err error) {
	text := c.flags.String(flag)
	if text == "" {
		return "", "", nil
	}
	user, password, _ = strings.Cut(text, ":")
	if user == "" || password == "" {
		return "", "", argv.Usagef(c.op, "--%s is USER:PASSWORD", flag)
	}
	return user, password, nil
}

func (e *invocation) logger() (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(e.flags.String("log-level"))); err != nil {
		return nil, argv.Usagef(e.op, "--log-level: %q is none of debug, info, warn, error", e.flags.String("log-level"))
	}
	opts := &slog.HandlerOptions{Level: level}
	var h slog.Handler = slog.NewTextHandler(e.Stderr, opts)
	if e.JSON {
		h = slog.NewJSONHandler(e.Stderr, opts)
	}
	return slog.New(screen.WithHints(h)), nil
}
