package argv

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// optionFlags are the words of -o that stand for flags. Those of the library's
// configuration are there for /etc/fstab, which has room for nothing else.
var optionFlags = map[string]string{
	"allow_other": "allow-other", "root_squash": "root-squash", "groups": "groups", "busy": "busy", "subdir": "subdir",
	"as": "user", "client": "client", "timeout": "timeout", "config": "config",
	"block_cache": "block-cache", "block_cache_size": "block-cache-size", "token_file": "token-file", "login": "login",
	"kerberos": "kerberos", "kerberos_keytab": "kerberos-keytab", "kerberos_principal": "kerberos-principal", "kerberos_server": "kerberos-server",
	"tls": "tls", "tls_ca": "tls-ca", "tls_cert": "tls-cert", "tls_key": "tls-key", "tls_server_name": "tls-server-name",
}

// plain are words that are for mount(8) itself, or say what is so anyway.
var plain = map[string]bool{
	"rw": true, "defaults": true, "auto": true, "noauto": true, "user": true, "users": true, "nouser": true, "owner": true, "nofail": true,
	"_netdev": true, "default_permissions": true, "atime": true, "noatime": true, "relatime": true, "norelatime": true,
	"strictatime": true, "nostrictatime": true, "lazytime": true, "nolazytime": true, "diratime": true, "nodiratime": true,
	"async": true, "sync": true, "dirsync": true, "mand": true, "nomand": true, "iversion": true, "noiversion": true, "silent": true, "loud": true,
}

// meaningless tells whether a word of -o changes nothing here.
func meaningless(word string) bool {
	return plain[word] || strings.HasPrefix(word, "x-") || strings.HasPrefix(word, "comment=") ||
		strings.HasPrefix(word, "fsname=") || strings.HasPrefix(word, "subtype=")
}

// MountWords are the words of -o that mean something to mount.
func MountWords(options string) []string { return slices.DeleteFunc(optionWords(options), meaningless) }

func optionWords(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == ',' })
}

// Mount makes a command line of mount of what mount(8) and its helpers call
// this program with: SOURCE MOUNTPOINT -o OPTIONS (it is mount.TYPE then, or SOURCE
// has a colon or a slash), in which OPTIONS has what else are flags. A command line of
// mount itself gets the flags out of -o, too. Any other is returned as it is.
func Mount(commands []*cli.Command, program string, args []string) []string {
	helper := strings.HasPrefix(filepath.Base(program), "mount.")
	if !helper && len(args) >= 2 && filepath.IsAbs(args[1]) && !strings.HasPrefix(args[0], "-") {
		helper = strings.ContainsAny(args[0], ":/") // a device, and no command, nor one that is mistyped
	}
	if !helper && (len(args) == 0 || First(commands, args) != "mount") {
		return args
	}
	var out, kernel, last []string
	if i := slices.Index(args, "--"); i >= 0 { // what follows is no flag
		args, last = args[:i], args[i:]
	}
	operands := 0
	if helper {
		out = append(out, "mount", "--daemon")
	}
	for len(args) > 0 {
		arg := args[0]
		args = args[1:]
		value, ok := "", false
		switch {
		case (arg == "-o" || arg == "--options") && len(args) > 0:
			value, ok = args[0], true
			args = args[1:]
		case strings.HasPrefix(arg, "-o") && len(arg) > 2:
			value, ok = arg[2:], true
		case strings.HasPrefix(arg, "--options="):
			value, ok = strings.TrimPrefix(arg, "--options="), true
		}
		switch {
		case ok:
			flags, rest := splitOptions(value)
			out, kernel = append(out, flags...), append(kernel, rest...)
		case helper && arg == "-t" && len(args) > 0: // the type, which is known
			args = args[1:]
		case helper && (arg == "-n" || arg == "-s" || arg == "-v" || arg == "-f"): // of mount(8)
		case helper && operands == 0 && !strings.HasPrefix(arg, "-"):
			operands++
			out = append(out, sourceFlags(arg)...)
		default:
			out = append(out, arg)
		}
	}
	if len(kernel) > 0 {
		out = append(out, "--options="+strings.Join(kernel, ","))
	}
	return append(out, last...)
}

// splitOptions takes the flags out of the words of -o.
func splitOptions(value string) (flags, rest []string) {
	for _, word := range optionWords(value) {
		name, v, has := strings.Cut(word, "=")
		switch flag, ok := optionFlags[name]; {
		case !ok:
			rest = append(rest, word)
		case has:
			flags = append(flags, "--"+flag+"="+v)
		default:
			flags = append(flags, "--"+flag)
		}
	}
	return flags, rest
}

// sourceFlags says what a device such as nn1:8020,nn2:8020/logs means.
func sourceFlags(source string) []string {
	source = strings.TrimPrefix(source, "leasefs#")
	hosts, path, below := strings.Cut(source, "/")
	var flags []string
	if hosts != "" && hosts != "none" && hosts != "leasefs" {
		flags = append(flags, "--namenode="+hosts)
	}
	if below {
		flags = append(flags, "--subdir=/"+path)
	}
	return flags
}
