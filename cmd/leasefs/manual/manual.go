// Package manual makes the page for man(1) of the tree of commands.
package manual

import (
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"
)

// Page returns the page of a program in section 1, in the language of man(7). It has the
// texts that --help shows.
func Page(app *cli.App) string {
	p := new(page)
	p.macro("TH", strings.ToUpper(app.Name), "1", "", app.Name+" "+app.Version)
	p.macro("SH", "NAME")
	p.text(app.Name + " - " + app.Usage)
	p.macro("SH", "SYNOPSIS")
	p.verbatim(app.UsageText)
	p.macro("SH", "DESCRIPTION")
	p.text(app.Description)
	p.macro("SH", "GLOBAL OPTIONS")
	p.flags(app.VisibleFlags())
	p.macro("SH", "COMMANDS")
	p.commands(app.Name, app.VisibleCommands())
	p.macro("SH", "EXIT STATUS")
	p.text("0 if it was done, 2 after wrong use, 3 if something is not there, 4 if it is there already, 5 if another holds it, 6 if it can be tried again, " +
		"7 if a lease was lost, 8 without permission, 9 if no namenode answers, 10 if data is damaged, 11 if a compare does not hold, 1 after any other failure; " +
		"128 + n if signal n ended it. lock and register: the command's, or 100 + one of these if they failed themselves.")
	return p.String()
}

type page struct{ strings.Builder }

// macro writes a line that says how what follows is set.
func (p *page) macro(name string, args ...string) {
	p.WriteString("." + name)
	for _, a := range args {
		fmt.Fprintf(p, " \"%s\"", strings.ReplaceAll(escaped(a), `"`, `\(dq`))
	}
	p.WriteString("\n")
}

// escaped is a text in which nothing has a meaning for man.
func escaped(s string) string {
	return strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "`", `\(ga`, "^", `\(ha`, "~", `\(ti`).Replace(s)
}

// text writes a paragraph.
func (p *page) text(s string) {
	for line := range strings.SplitSeq(strings.TrimSpace(s), "\n") {
		p.line(strings.TrimSpace(line))
	}
}

// line writes a line of text, be it one that would begin with a macro.
func (p *page) line(s string) {
	s = escaped(s)
	if strings.HasPrefix(s, ".") {
		s = `\&` + s
	}
	p.WriteString(s + "\n")
}

// verbatim writes a text as its lines are.
func (p *page) verbatim(s string) {
	p.macro("nf")
	for line := range strings.SplitSeq(s, "\n") {
		p.line(strings.TrimPrefix(line, "  "))
	}
	p.macro("fi")
}

func (p *page) commands(above string, list []*cli.Command) {
	for _, c := range list {
		name := above + " " + c.Name
		p.macro("SS", name)
		p.text(strings.ToUpper(c.Usage[:1]) + c.Usage[1:] + ".")
		p.macro("PP")
		p.verbatim(c.UsageText)
		p.macro("PP")
		p.text(c.Description)
		p.flags(c.VisibleFlags())
		p.commands(name, c.Subcommands)
	}
}

// flags writes a list of flags; --help is one of all commands.
func (p *page) flags(list []cli.Flag) {
	for _, f := range list {
		names, usage, _ := strings.Cut(f.String(), "\t")
		if f.Names()[0] == "help" {
			continue
		}
		p.macro("TP")
		p.line(names)
		p.line(strings.TrimSpace(usage))
	}
}
