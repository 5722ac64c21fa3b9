package main

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/leasefs/leasefs/cmd/leasefs/argv"
	"github.com/leasefs/leasefs/cmd/leasefs/screen"
	"github.com/leasefs/leasefs/internal/fserror"
)

// FuzzConfig: whatever is in the file of --config, it is settings of global
// flags, or an error of one line that names the file.
func FuzzConfig(f *testing.F) {
	for _, seed := range []string{
		"", "user = \"a\"\njson = true\ntimeout = \"1s\"\n", "namenode = [\"a:1\", \"b:2\"]\n", "namenode = [1, [2]]\n", "namenode = {a = 1}\n",
		"[deep]\nuser = 1\n", "[[user]]\n", "user = \"a\nb", "frob = 1\nfrob = 2\n", "\"\\u0000\" = 1\n", "timeout = 1979-05-27T07:32:00Z\n", "\xff\xfe", "tls-ca = '''\n'''\n",
	} {
		f.Add([]byte(seed))
	}
	known := argv.FlagNames(globalFlags())
	f.Fuzz(func(t *testing.T, raw []byte) {
		values, err := argv.ParseConfig(raw)
		if err == nil {
			for name := range values {
				if !slices.Contains(known, name) {
					t.Fatalf("%q is no global flag", name)
				}
			}
			return
		}
		var e *fserror.Error
		if told := argv.ConfigError("c.toml", globalFlags(), err); !errors.As(told, &e) || e.Kind != fserror.InvalidArgument || !strings.Contains(told.Error(), "c.toml") {
			t.Fatalf("%v", told)
		} else if line := screen.OneLine(screen.ErrorText(told)); strings.ContainsAny(line, "\n\r") || !strings.HasSuffix(line, ")") {
			t.Fatalf("%q", line)
		}
	})
}
