package main

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"github.com/leasefs/leasefs/cmd/leasefs/argv"
)

// TestFlagsHaveOptionsAndKeys: each flag by which a mount is configured can be said in -o, for
// /etc/fstab, and each global one in the file of --config.
func TestFlagsHaveOptionsAndKeys(t *testing.T) {
	app := testApp(t)
	i := slices.IndexFunc(app.Commands, func(c *cli.Command) bool { return c.Name == "mount" })
	options := map[string]string{
		"user":     "as",                                                                   // "user" is a word of mount(8)
		"namenode": "", "json": "", "quiet": "", "daemon": "", "options": "", "traces": "", // the device, what is printed, what is so, -o itself, what a mount does not do
	}
	for _, f := range slices.Concat(globalFlags(), app.Commands[i].Flags) {
		name := f.Names()[0]
		option, other := options[name]
		if !other {
			option = strings.ReplaceAll(name, "-", "_")
		}
		_, yes := f.(*cli.BoolFlag)
		word, want := option+"=v", "--"+name+"=v"
		if yes {
			word, want = option, "--"+name
		}
		if got := argv.Mount(app.Commands, "mount.fuse.leasefs", []string{"nn1:8020/logs", "/mnt", "-o", "rw," + word}); option != "" && !slices.Contains(got, want) {
			t.Errorf("-o %s gives %q, without %s", word, got, want)
		}
	}
	for _, f := range globalFlags() {
		name, value := f.Names()[0], `"v"`
		if name == "config" {
			continue
		}
		if _, yes := f.(*cli.BoolFlag); yes {
			value = "true"
		}
		values, err := argv.ParseConfig([]byte(name + " = " + value + "\n"))
		if err != nil || values[name] != strings.Trim(value, `"`) {
			t.Errorf("%s = %s in the file of --config: %q, %v", name, value, values, err)
		}
	}
}

// TestMountDashes: what stands behind -- is no option, and options of the kernel stand before it.
func TestMountDashes(t *testing.T) {
	app := newProgram(os.Stdin, os.Stdout, os.Stderr).app()
	got := argv.Mount(app.Commands, "leasefs", []string{"mount", "-o", "uid=0", "--", "-o"})
	if want := []string{"mount", "--options=uid=0", "--", "-o"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
