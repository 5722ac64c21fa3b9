package main

import (
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"github.com/leasefs/leasefs/cmd/leasefs/manual"
)

// The manual page has all commands and flags, and no line that man would take for a macro.
func TestManualPage(t *testing.T) {
	app := testApp(t)
	page := manual.Page(app)
	plain := strings.NewReplacer(`\-`, "-", `\(aq`, "'").Replace(page)
	var commands func(above string, list []*cli.Command)
	commands = func(above string, list []*cli.Command) {
		for _, c := range list {
			name := above + " " + c.Name
			_, of, ok := strings.Cut(plain, ".SS \""+name+"\"\n")
			of, _, _ = strings.Cut(of, "\n.SS ")
			if !ok {
				t.Errorf("the page lacks %s", name)
			}
			for _, f := range c.VisibleFlags() {
				if flag := f.Names()[0]; flag != "help" && !strings.Contains(of, "-"+flag) {
					t.Errorf("the page lacks --%s of %s", flag, name)
				}
			}
			commands(name, c.Subcommands)
		}
	}
	commands("leasefs", app.VisibleCommands())
	for line := range strings.Lines(page) {
		word, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		if strings.HasPrefix(word, ".") && !strings.Contains(" .TH .SH .SS .TP .PP .nf .fi ", " "+word+" ") || strings.HasPrefix(word, "'") {
			t.Errorf("a macro %q", line)
		}
	}
}
