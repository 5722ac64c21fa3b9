package gateway

import (
	"crypto/sha256"
	"net"
	"os"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/leasefs/leasefs/cmd/leasefs/argv"
	"github.com/leasefs/leasefs/gateway/auth"
	"github.com/leasefs/leasefs/gateway/hdfs"
	"github.com/leasefs/leasefs/gateway/hdfs/files"
	"github.com/leasefs/leasefs/gateway/webhdfs"
	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/proof"
)

// Command is the command, with the flags that follow its own, and what it does.
func Command(action cli.ActionFunc, more ...cli.Flag) *cli.Command {
	return &cli.Command{
		Name:      "gateway",
		Usage:     "serve the namespace to Hadoop's clients, by hdfs:// and WebHDFS",
		UsageText: "leasefs gateway [options]\n\nExample:\n  leasefs gateway --hdfs 127.0.0.1:9000 --webhdfs 127.0.0.1:9870 &\n  hadoop fs -ls hdfs://127.0.0.1:9000/",
		Description: "Serves the namespace to unchanged clients of HDFS, and prints a line \"ready\" with its addresses:\n" +
			"WebHDFS, the protocols of hdfs://, or both. Only what is open is kept in a gateway, so several can run\n" +
			"side by side. SIGTERM ends it cleanly: requests under way have ten seconds to finish. A client says\n" +
			"who it is, and nobody checks that, unless --clients-keytab has it prove that by Kerberos. What clients\n" +
			"see and how to set them up: docs/HADOOP.md.",
		Flags:  append(flags(), more...),
		Action: action,
	}
}

// flags are the command's.
func flags() []cli.Flag {
	return append([]cli.Flag{
		&cli.StringFlag{Name: "webhdfs", Usage: "the `ADDR` for clients of WebHDFS; port 0 takes a free one", DefaultText: webhdfs.DefaultListen + ", without --hdfs"},
		&cli.StringFlag{Name: "hdfs", Usage: "the `ADDR` for calls of hdfs:// clients, as a NameNode's", DefaultText: "not served"},
		&cli.StringFlag{Name: "data", Usage: "the `ADDR` for bytes of hdfs:// clients, as a DataNode's", Value: hdfs.DefaultData},
		&cli.StringFlag{Name: "advertise", Usage: "the `HOST:PORT` by which clients reach this gateway (hdfs:// uses the host)", DefaultText: "what they call it"},
		&cli.StringFlag{Name: "pages", Usage: "serve /metrics, /healthz and /readyz at `ADDR`", DefaultText: "not served"},
		&cli.BoolFlag{Name: "insecure-trust-clients", Usage: "serve other machines, too, and believe who they say they are"},
	}, common()...)
}

// BesideFlags are those of a namenode with a gateway in its process.
func BesideFlags() []cli.Flag {
	return append([]cli.Flag{
		&cli.StringFlag{Name: "webhdfs", Usage: "serve clients of WebHDFS at `ADDR`, too, see leasefs gateway", DefaultText: "not served"},
		&cli.StringFlag{Name: "hdfs", Usage: "serve calls of hdfs:// clients at `ADDR`, too, as a NameNode", DefaultText: "not served"},
		&cli.StringFlag{Name: "hdfs-data", Usage: "with --hdfs: the `ADDR` for bytes, as a DataNode's", Value: hdfs.DefaultData},
		&cli.StringFlag{Name: "hdfs-advertise", Usage: "the `HOST:PORT` by which clients of --webhdfs and --hdfs reach this machine (hdfs:// uses the host)", DefaultText: "what they call it"},
	}, common()...)
}

// common are the flags of both.
func common() []cli.Flag {
	return []cli.Flag{
		&cli.StringSliceFlag{Name: "alias", Usage: "serve requests to the host `NAME`, too, as that of a load balancer (WebHDFS)"},
		&cli.GenericFlag{Name: "doas", Value: new(rules), Usage: "let the user NAME act for others: `RULE` is NAME [users=NAME,...] [from=ADDR,...]"},
		&cli.IntFlag{Name: "streams", Usage: "read and write at most `N` files at once by WebHDFS", Value: webhdfs.DefaultStreams},
		&cli.IntFlag{Name: "open", Usage: "have at most `N` files open for write by hdfs://", Value: files.DefaultOpen},
		&cli.BoolFlag{Name: "hdfs-pair", Usage: "hdfs:// clients know another gateway: send them there while no namenode answers this one"},
		&cli.DurationFlag{Name: "idle", Usage: "end what a client of HDFS reads or writes when it is silent for this `LONG`", Value: webhdfs.DefaultIdle},
		&cli.StringFlag{Name: "clients-keytab", Usage: "clients of HDFS have to prove by Kerberos who they are: `FILE` with the keys of --clients-principal, and of HTTP/HOST for WebHDFS", EnvVars: []string{"LEASEFS_CLIENTS_KEYTAB"}},
		&cli.StringFlag{Name: "clients-principal", Usage: "the `PRINCIPAL` that clients of hdfs:// know it by, such as nn/HOST@REALM", EnvVars: []string{"LEASEFS_CLIENTS_PRINCIPAL"}},
		&cli.StringFlag{Name: "clients-rules", Usage: "`FILE` that says which Kerberos principals are which users", DefaultText: "NAME@REALM of --clients-principal's realm is NAME", EnvVars: []string{"LEASEFS_CLIENTS_RULES"}},
		&cli.StringFlag{Name: "rpc-protection", Usage: "the least `HOW` to protect calls of hdfs:// with Kerberos: authentication, integrity, privacy", Value: "authentication"},
		&cli.DurationFlag{Name: "token-life", Usage: "with --clients-keytab: delegation tokens are good for this `LONG`", Value: auth.DefaultLife},
		&cli.StringFlag{Name: "key", Usage: "`FILE` of a secret that signs tokens: gateways with the same take each other's", DefaultText: "one is made at the start", EnvVars: []string{"LEASEFS_GATEWAY_KEY"}},
		&cli.StringFlag{Name: "web-cert", Usage: "serve WebHDFS with TLS (swebhdfs://): PEM `FILE` of the certificate", EnvVars: []string{"LEASEFS_WEB_CERT"}},
		&cli.StringFlag{Name: "web-key", Usage: "PEM `FILE` of its key", EnvVars: []string{"LEASEFS_WEB_KEY"}},
	}
}

// rules are the values of a flag that is given once for each, and in which commas mean nothing.
type rules []string

// Set implements cli.Generic.
func (r *rules) Set(rule string) error {
	*r = append(*r, rule)
	return nil
}

// String implements cli.Generic.
func (r *rules) String() string { return strings.Join(*r, "; ") }

// doas are those who may act for others.
func doas(flags *cli.Context) []string {
	if r, ok := flags.Generic("doas").(*rules); ok {
		return *r
	}
	return nil
}

// leastKey is how many bytes a file of a secret has.
const leastKey = 32

// readKey is the secret in a file; empty without one.
func readKey(name string) ([]byte, error) {
	if name == "" {
		return nil, nil
	}
	f, err := proof.Open(clock.System{}, func(contents [][]byte) ([]byte, error) {
		info, err := os.Stat(name)
		switch {
		case err != nil:
			return nil, fserror.New(fserror.InvalidArgument, "read key", name, "%v", err)
		case info.Mode().IsRegular() && info.Mode().Perm()&0o077 != 0:
			return nil, fserror.New(fserror.Permission, "read key", name, "others may read it: make a new one, and set the mode of its file to 600 before it is in there")
		case len(contents[0]) < leastKey:
			return nil, fserror.New(fserror.InvalidArgument, "read key", name, "it has %d bytes, and a secret needs %d at least: head -c 32 /dev/urandom", len(contents[0]), leastKey)
		}
		sum := sha256.Sum256(contents[0])
		return sum[:], nil
	}, name)
	if err != nil {
		return nil, err
	}
	return f.Get(), nil
}

// guard is nil if clients prove nothing.
func guard(op string, flags *cli.Context, calls, web bool, key []byte) (*auth.Guard, error) {
	keytab, principal := flags.String("clients-keytab"), flags.String("clients-principal")
	switch {
	case keytab == "" && principal == "":
		for _, name := range []string{"clients-rules", "rpc-protection", "token-life"} {
			if flags.IsSet(name) {
				return nil, argv.Usagef(op, "--%s needs --clients-keytab", name)
			}
		}
		return nil, nil
	case keytab == "" || principal == "":
		return nil, argv.Usagef(op, "Kerberos needs --clients-keytab and --clients-principal")
	}
	return auth.New(clock.System{}, auth.Config{
		Keytab: keytab, Principal: principal, Rules: flags.String("clients-rules"), Calls: calls, Web: web,
		Protection: flags.String("rpc-protection"), Key: key, Life: flags.Duration("token-life"),
	})
}

// hostOf is the host of HOST:PORT; empty stays so.
func hostOf(advertise string) (string, error) {
	if advertise == "" {
		return "", nil
	}
	host, _, err := net.SplitHostPort(advertise)
	if err != nil || host == "" {
		return "", fserror.New(fserror.InvalidArgument, "hdfs", advertise, "the address for clients is no HOST:PORT")
	}
	return host, nil
}
