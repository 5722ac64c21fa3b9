// Package csi has what the command of that name takes.
package csi

import (
	"context"
	"log/slog"
	"os"
	"os/exec"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/cmd/leasefs/argv"
	"github.com/leasefs/leasefs/gateway/csi"
	"github.com/leasefs/leasefs/internal/fserror"
)

// Command is the command, with the flags that follow its own, and what it does.
func Command(action cli.ActionFunc, more ...cli.Flag) *cli.Command {
	return &cli.Command{
		Name:      "csi",
		Usage:     "give Kubernetes volumes of the namespace (Container Storage Interface)",
		UsageText: "leasefs csi --endpoint unix:///PATH [--controller] [--node-id NAME] [options]\n\nExample:\n  leasefs csi --endpoint unix:///csi/csi.sock --node-id $(hostname)",
		Description: "Serves the Container Storage Interface, and prints a line \"ready\". With --controller it makes and\n" +
			"removes volumes, each a directory below --base. With --node-id it mounts them on this machine, as root,\n" +
			"each by a process of its own, which stays when this one ends. A mount whose process was killed is\n" +
			"made again within seconds. --namenode, TLS and other global options hold for the mounts, too.\n" +
			"docs/KUBERNETES.md has the way to a first volume.",
		Flags: append([]cli.Flag{
			&cli.StringFlag{Name: "endpoint", Usage: "the `SOCKET` to serve at, unix:///PATH", EnvVars: []string{"CSI_ENDPOINT"}},
			&cli.BoolFlag{Name: "controller", Usage: "make and remove volumes"},
			&cli.StringFlag{Name: "base", Usage: "with --controller: the `DIR` of the namespace with the volumes, and nothing else", Value: csi.DefaultBase},
			&cli.StringFlag{Name: "node-id", Usage: "mount volumes on this machine, whose `NAME` for Kubernetes this is"},
			&cli.StringFlag{Name: "state", Usage: "with --node-id: the `DIR` of this machine for what is mounted, and for tokens", Value: csi.DefaultState},
			&cli.StringFlag{Name: "driver-name", Usage: "the `NAME` of the driver, which a StorageClass has as provisioner", Value: csi.DefaultName},
		}, more...),
		Action: action,
	}
}

// Serve serves until the context ends, which is no error. ready is called once it does.
func Serve(ctx context.Context, flags *cli.Context, global []cli.Flag, version string, c client.Config, log *slog.Logger, ready func() error) error {
	program, err := os.Executable()
	if err != nil {
		return fserror.Wrap(fserror.Internal, "csi", "", err)
	}
	for name, needs := range map[string]string{"base": "controller", "state": "node-id"} {
		if flags.IsSet(name) && !flags.IsSet(needs) {
			return argv.Usagef("csi", "--%s needs --%s", name, needs)
		}
	}
	if flags.String("node-id") != "" && os.Geteuid() != 0 {
		return fserror.New(fserror.Permission, "csi", "", "only root mounts volumes for others: run it as root, or without --node-id")
	}
	return csi.Serve(ctx, csi.Config{
		Endpoint: flags.String("endpoint"), Name: flags.String("driver-name"), Version: version,
		Controller: flags.Bool("controller"), Base: flags.String("base"),
		NodeID: flags.String("node-id"), State: flags.String("state"),
		Client: c, Logger: log,
		Command: func(m csi.Mount) *exec.Cmd {
			cmd := exec.Command(program, mountArgs(m)...) //nolint:gosec // ourselves
			cmd.Env = append(os.Environ(), argv.Environment(flags, global)...)
			return cmd
		},
	}, ready)
}

// mountArgs is the command line that mounts a volume.
func mountArgs(m csi.Mount) []string {
	args := []string{"mount", "--allow-other", "--subdir=" + m.Path, "--options=" + strings.Join(m.Options, ",")}
	if m.Wait {
		args = append(args, "--busy=wait")
	}
	if m.User != "" {
		args = append(args, "--user="+m.User)
	}
	if m.TokenFile != "" {
		args = append(args, "--token-file="+m.TokenFile)
	}
	return append(args, "--", m.Dir)
}
