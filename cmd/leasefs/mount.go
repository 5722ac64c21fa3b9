package main

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/cmd/leasefs/argv"
	"github.com/leasefs/leasefs/cmd/leasefs/screen"
	"github.com/leasefs/leasefs/fuse"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fspath"
)

func mountCommand(p *program) *cli.Command {
	return &cli.Command{
		Name:      "mount",
		Usage:     "mount the namespace as a folder of this machine",
		UsageText: "leasefs mount [options] MOUNTPOINT\n\nExample:\n  leasefs mount --allow-other --subdir /logs /mnt/logs",
		Description: "Mounts the namespace, prints a line \"ready\" with the mount point, and serves it until it is\n" +
			"unmounted (fusermount3 -u MOUNTPOINT) or SIGTERM comes: then files are flushed and it is\n" +
			"unmounted, after ten seconds also from under processes that use it. With --allow-other each call is\n" +
			"made for the user who asks, and the namenode's --proxies may have to say that the mount's user may\n" +
			"act for others (not where clients are trusted, nor for a superuser's mount). A file that is open for\n" +
			"write is held: other hosts get EBUSY (or wait). What programs can rely on: docs/POSIX.md.\n" +
			"In /etc/fstab the device is HOST:PORT[,HOST:PORT][/PATH] and the type fuse.leasefs. With\n" +
			"-o uid=N,gid=N everything shows these numbers as its owner and group. Global options can be given\n" +
			"in -o too: as=NAME (--user), client=, timeout=, config=, block_cache=, block_cache_size=, tls, tls_ca=,\n" +
			"tls_cert=, tls_key=, tls_server_name=, token_file=, login=, kerberos, kerberos_keytab=,\n" +
			"kerberos_principal= and kerberos_server=.",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "allow-other", Usage: "let other users of this machine in, too"},
			&cli.StringFlag{Name: "root-squash", Usage: "with --allow-other: give root of this machine the rights of others only: `yes|no`", DefaultText: "yes, unless the mount's user has root's name"},
			&cli.StringFlag{Name: "groups", Usage: "with --allow-other: whose word counts for the groups of who calls: `namenode|process`; the namenode may not take the process's", Value: "namenode"},
			&cli.StringFlag{Name: "busy", Usage: "opening for write what another host holds: `error|wait`; a signal ends waiting", Value: "error"},
			&cli.StringFlag{Name: "subdir", Usage: "mount only what is below `PATH`", Value: "/"},
			&cli.BoolFlag{Name: "daemon", Usage: "continue in the background once it is mounted; log to syslog"},
			&cli.StringFlag{Name: "options", Aliases: []string{"o"}, Usage: "`OPTIONS` as of mount(8), with commas between; the flags can be given so, too"},
		},
		Action: p.action(operands{min: 1, max: 1, names: "MOUNTPOINT", local: true}, mount),
	}
}

// unmountGrace is how long after a signal it is waited for processes that use
// the mount.
const unmountGrace = 10 * time.Second

func mount(e *invocation) error {
	o, err := e.mountOptions()
	if err != nil {
		return err
	}
	cfg, err := e.clientConfig()
	if err != nil {
		return err
	}
	if !e.flags.IsSet("timeout") {
		cfg.Timeout = client.MaxTimeout // programs cannot try again
	}
	if e.flags.Bool("daemon") && !isDaemon() {
		return e.daemonize()
	}
	if cfg.Logger, err = e.mountLogger(); err != nil {
		return e.fail(err, "")
	}
	dir := e.args[0]
	m, err := fuse.Mount(e.ctx, cfg, dir, o)
	if err != nil {
		if e.ctx.Err() != nil {
			return context.Cause(e.ctx)
		}
		if uerr := e.unusable(err); uerr != err { //nolint:errorlint // is it another one?
			return uerr
		}
		return e.fail(err, dir)
	}
	if err := e.mounted(dir); err != nil {
		return errors.Join(err, e.unmount(m))
	}
	select {
	case <-e.ctx.Done(): // asked to end: that is success
		return e.fail(e.unmount(m), dir)
	case <-m.Ended():
		return e.fail(m.Wait(), dir)
	}
}

func (e *invocation) unmount(m *fuse.Mounted) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(e.ctx), unmountGrace)
	defer cancel()
	return m.Unmount(ctx)
}

// mounted tells that the mount can be used.
func (e *invocation) mounted(dir string) error {
	if isDaemon() {
		return becomeDaemon()
	}
	return cmp.Or(e.Result(map[string]any{"ready": true, "mountpoint": dir}, "ready %s\n", dir), e.Flush())
}

// kernelOption are the words that the kernel is told.
var kernelOption = map[string]bool{"nosuid": true, "suid": true, "nodev": true, "dev": true, "noexec": true, "exec": true}

// mountSource is what df shows as the device.
func mountSource(namenodes, subdir string) string {
	if subdir == "/" {
		return namenodes
	}
	return namenodes + subdir
}

func (c *commandLine) mountOptions() (fuse.Options, error) {
	o := fuse.Options{AllowOther: c.flags.Bool("allow-other"), Source: mountSource(c.flags.String("namenode"), c.flags.String("subdir"))}
	switch c.flags.String("busy") {
	case "error":
	case "wait":
		o.Wait = true
	default:
		return o, argv.Usagef(c.op, "--busy is error or wait, not %q", c.flags.String("busy"))
	}
	if err := c.callers(&o); err != nil {
		return o, err
	}
	var err error
	if o.Root, err = fspath.Clean(c.flags.String("subdir")); err != nil {
		return o, argv.Usagef(c.op, "--subdir: %s", err)
	}
	for _, word := range argv.MountWords(c.flags.String("options")) {
		switch name, value, _ := strings.Cut(word, "="); {
		case name == "uid":
			o.UID, err = idOption(value)
		case name == "gid":
			o.GID, err = idOption(value)
		case word == "ro":
			o.ReadOnly = true
		case kernelOption[word]:
			o.KernelOptions = append(o.KernelOptions, word)
		default:
			return o, argv.Usagef(c.op, "-o: unknown option %q", word)
		}
		if err != nil {
			return o, argv.Usagef(c.op, "-o: %q is no number of a user or group", word)
		}
	}
	return o, nil
}

// callers reads for whom calls are made.
func (c *commandLine) callers(o *fuse.Options) error {
	switch v := c.flags.String("root-squash"); v {
	case "":
	case "yes", "no":
		squash := v == "yes"
		o.RootSquash = &squash
	default:
		return argv.Usagef(c.op, "--root-squash is yes or no, not %q", v)
	}
	switch v := c.flags.String("groups"); v {
	case "namenode":
	case "process":
		o.ProcessGroups = true
	default:
		return argv.Usagef(c.op, "--groups is namenode or process, not %q", v)
	}
	if !o.AllowOther && (o.RootSquash != nil || o.ProcessGroups) {
		return argv.Usagef(c.op, "--root-squash and --groups need --allow-other: else the mount's user makes all calls")
	}
	return nil
}

func idOption(value string) (*uint32, error) {
	n, err := strconv.ParseUint(value, 10, 32)
	id := uint32(n) //nolint:gosec // 32 bits
	return &id, err
}

// mountLogger logs on standard error, or to the system's log as a daemon.
func (e *invocation) mountLogger() (*slog.Logger, error) {
	options := &slog.HandlerOptions{Level: slog.LevelWarn}
	if isDaemon() {
		return daemonLogger(options), nil
	}
	if e.Stderr == nil {
		return nil, fserror.New(fserror.Internal, e.op, "", "there is no standard error")
	}
	return slog.New(screen.WithHints(slog.NewTextHandler(e.Stderr, options))), nil
}
