package main

import (
	"errors"
	"log/slog"
	"net/url"

	"github.com/urfave/cli/v2"

	"github.com/leasefs/leasefs/namenode"
)

func (p *program) namenodeCommand() *cli.Command {
	return &cli.Command{
		Name:      "namenode",
		Usage:     "serve a namespace",
		UsageText: "leasefs namenode --data DIR [options]\n\nExample:\n  leasefs namenode --data /var/lib/leasefs --listen 0.0.0.0:8020 --http 0.0.0.0:8021",
		Description: "Serves the namespace in DIR, which is made when new, and prints a line \"ready\" with its\n" +
			"addresses (the first is the one for --namenode) once it answers. SIGTERM ends it cleanly. The\n" +
			"HTTP address serves blocks, /metrics, /healthz and /readyz. With --tls-cert and --tls-key both\n" +
			"are served with TLS; with --tls-client-ca clients need a certificate that names their user.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "data", Usage: "the `DIR` that holds the namespace", EnvVars: []string{"LEASEFS_DATA"}},
			&cli.StringFlag{Name: "listen", Usage: "the `ADDR` for clients; port 0 takes a free one", Value: namenode.DefaultListen},
			&cli.StringFlag{Name: "http", Usage: "the `ADDR` for blocks and pages; port 0 takes a free one", Value: namenode.DefaultHTTP},
			&cli.StringFlag{Name: "advertise-http", Usage: "the `HOST:PORT` by which clients reach --http", DefaultText: "--http, or this host's name if that is all addresses"},
			&cli.StringFlag{Name: "blocks", Usage: "where blocks are: a `URL` such as file:///mnt/disk2", DefaultText: "DIR/blocks"},
			&cli.DurationFlag{Name: "soft-limit", Usage: "after so `LONG` without a renewal another client may take a file", Value: namenode.DefaultSoftLimit},
			&cli.DurationFlag{Name: "hard-limit", Usage: "after so `LONG` without a renewal a file is closed", Value: namenode.DefaultHardLimit},
			&cli.DurationFlag{Name: "min-lease-ttl", Usage: "granted leases live at least so `LONG`", Value: namenode.DefaultMinLeaseTTL},
			&cli.IntFlag{Name: "reap-rate", Usage: "end `N` granted leases, or delete N of their files, a second", Value: namenode.DefaultReapRate},
			&cli.DurationFlag{Name: "cache-term", Usage: "a change waits at most so `LONG` for a reader that is gone; 0: readers may not cache", Value: namenode.DefaultCacheTerm},
			&cli.StringFlag{Name: "tls-client-ca", Usage: "PEM `FILE` of the authorities that sign clients; demands certificates"},
			&cli.StringFlag{Name: "log-level", Usage: "`LEVEL` of what is logged on standard error: debug, info, warn, error", Value: "info"},
			&cli.BoolFlag{Name: "pprof", Usage: "serve /debug/pprof on the HTTP address"},
		},
		Action: p.action(operands{}, serve),
	}
}

func serve(e *env) error {
	cfg, err := e.namenodeConfig()
	if err != nil {
		return err
	}
	s, err := namenode.Start(e.ctx, cfg)
	if err != nil {
		return e.fail(err, "")
	}
	if err := e.ready(s); err != nil {
		return errors.Join(err, s.Close())
	}
	select {
	case <-e.ctx.Done(): // asked to end: that is success
		return e.fail(s.Close(), "")
	case <-s.Done():
		err := s.Err()
		_ = s.Close() // the error that ended it is the one to tell
		if err == nil {
			err = errors.New("ended by itself")
		}
		return e.fail(err, "")
	}
}

// ready tells that the namenode answers, and where.
func (e *env) ready(s *namenode.Server) error {
	if e.json {
		if err := e.printJSON(map[string]any{"ready": true, "address": s.Addr(), "http": s.HTTPAddr()}); err != nil {
			return err
		}
	} else {
		e.printf("ready %s http %s\n", s.Addr(), s.HTTPAddr())
	}
	return e.flush()
}

func (e *env) namenodeConfig() (namenode.Config, error) {
	cfg := namenode.Config{
		Data: e.flags.String("data"), Listen: e.flags.String("listen"), HTTP: e.flags.String("http"),
		AdvertiseHTTP: e.flags.String("advertise-http"), Pprof: e.flags.Bool("pprof"), Version: version,
		SoftLimit: e.flags.Duration("soft-limit"), HardLimit: e.flags.Duration("hard-limit"),
		MinLeaseTTL: e.flags.Duration("min-lease-ttl"), ReapRate: e.flags.Int("reap-rate"), CacheTerm: e.flags.Duration("cache-term"),
		RequireCert: e.flags.String("tls-client-ca") != "",
	}
	switch {
	case cfg.Data == "":
		return cfg, usagef(e.op, "needs --data DIR")
	case cfg.HardLimit < cfg.SoftLimit:
		return cfg, usagef(e.op, "--hard-limit %s is below --soft-limit %s", cfg.HardLimit, cfg.SoftLimit)
	}
	var err error
	if cfg.BlocksDir, err = e.blocksDir(); err != nil {
		return cfg, err
	}
	if cfg.Logger, err = e.logger(); err != nil {
		return cfg, err
	}
	cfg.TLS, err = e.serverTLS(e.flags.String("tls-client-ca"))
	return cfg, err
}

// blocksDir reads --blocks.
func (e *env) blocksDir() (string, error) {
	s := e.flags.String("blocks")
	if s == "" {
		return "", nil
	}
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "file" || u.Host != "" || u.Path == "" {
		return "", usagef(e.op, "--blocks: %q is not a URL of the form file:///DIR", s)
	}
	return u.Path, nil
}

func (e *env) logger() (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(e.flags.String("log-level"))); err != nil {
		return nil, usagef(e.op, "--log-level: %q is none of debug, info, warn, error", e.flags.String("log-level"))
	}
	opts := &slog.HandlerOptions{Level: level}
	if e.json {
		return slog.New(slog.NewJSONHandler(e.stderr, opts)), nil
	}
	return slog.New(slog.NewTextHandler(e.stderr, opts)), nil
}
