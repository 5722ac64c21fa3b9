package argv

import (
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// Script is what completes commands and flags in a shell; empty if the shell is none
// of bash, zsh and fish.
func Script(shell string, g Grammar) string {
	script, ok := map[string]func([]completion) string{"bash": bashScript, "zsh": zshScript, "fish": fishScript}[shell]
	if !ok {
		return ""
	}
	return script(completions(g))
}

// completion is what may follow one command.
type completion struct {
	path     string // "", "lease", "lease ls", …
	commands []*cli.Command
	flags    []cli.Flag
}

// completions lists every command; the first is the program itself.
func completions(g Grammar) []completion {
	help := &cli.BoolFlag{Name: "help", Usage: "show help"}
	list := []completion{{"", g.Commands, append(slices.Clone(g.Global), help, &cli.BoolFlag{Name: "version", Usage: "print the version"})}}
	var walk func(prefix string, commands []*cli.Command)
	walk = func(prefix string, commands []*cli.Command) {
		for _, c := range commands {
			path := strings.TrimSpace(prefix + " " + c.Name)
			list = append(list, completion{path, c.Subcommands, append(append([]cli.Flag{}, c.Flags...), append(g.Global, help)...)})
			walk(path, c.Subcommands)
		}
	}
	walk("", g.Commands)
	return list
}

// words are the commands and long flags that may come next.
func (c completion) words() string {
	words := Names(c.commands)
	for _, f := range c.flags {
		words = append(words, Dashed(f.Names()[0]))
	}
	return strings.Join(words, " ")
}

func bashScript(list []completion) string {
	var b strings.Builder
	b.WriteString("# bash completion of leasefs\n_leasefs() {\n  local cur=${COMP_WORDS[COMP_CWORD]} path='' word words i\n")
	b.WriteString("  for ((i = 1; i < COMP_CWORD; i++)); do\n    word=${COMP_WORDS[i]}\n    case \"${path:+$path }$word\" in\n")
	b.WriteString(casePaths(list))
	b.WriteString("    esac\n  done\n  case $path in\n")
	for _, c := range list {
		fmt.Fprintf(&b, "    %s) words=%s ;;\n", shellQuote(c.path), shellQuote(c.words()))
	}
	b.WriteString("  esac\n  COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n}\ncomplete -o default -F _leasefs leasefs\n")
	return b.String()
}

// casePaths is a shell pattern of all commands that sets path to the match.
func casePaths(list []completion) string {
	var quoted []string
	for _, c := range list[1:] {
		quoted = append(quoted, shellQuote(c.path))
	}
	return "      " + strings.Join(quoted, " | ") + ") path=\"${path:+$path }$word\" ;;\n"
}

func zshScript(list []completion) string {
	var b strings.Builder
	b.WriteString("#compdef leasefs\n# zsh completion of leasefs\n_leasefs() {\n  local path_='' word i\n  local -a words_\n")
	b.WriteString("  for ((i = 2; i < CURRENT; i++)); do\n    word=${words[i]}\n    case \"${path_:+$path_ }$word\" in\n")
	b.WriteString(strings.NewReplacer("path=", "path_=", "${path:+$path }", "${path_:+$path_ }").Replace(casePaths(list)))
	b.WriteString("    esac\n  done\n  case $path_ in\n")
	for _, c := range list {
		fmt.Fprintf(&b, "    %s) words_=(%s) ;;\n", shellQuote(c.path), strings.Join(zshWords(c), " "))
	}
	b.WriteString("  esac\n  _describe command words_\n  _files\n}\ncompdef _leasefs leasefs\n")
	return b.String()
}

func zshWords(c completion) []string {
	var words []string
	for _, sub := range c.commands {
		words = append(words, shellQuote(sub.Name+":"+strings.ReplaceAll(sub.Usage, ":", `\:`)))
	}
	for _, f := range c.flags {
		words = append(words, shellQuote(Dashed(f.Names()[0])+":"+strings.ReplaceAll(flagUsage(f), ":", `\:`)))
	}
	return words
}

func fishScript(list []completion) string {
	var b strings.Builder
	b.WriteString("# fish completion of leasefs\nfunction __leasefs_path\n  set -l path ''\n  for word in (commandline -opc)[2..-1]\n    switch (string trim -- \"$path $word\")\n      case")
	for _, c := range list[1:] {
		b.WriteString(" " + shellQuote(c.path))
	}
	b.WriteString("\n        set path (string trim -- \"$path $word\")\n    end\n  end\n  echo $path\nend\n")
	for _, c := range list {
		when := `"test (__leasefs_path) = '` + c.path + `'"`
		for _, sub := range c.commands {
			fmt.Fprintf(&b, "complete -c leasefs -f -n %s -a %s -d %s\n", when, sub.Name, shellQuote(sub.Usage))
		}
		for _, f := range c.flags {
			if name := f.Names()[0]; len(name) > 1 {
				fmt.Fprintf(&b, "complete -c leasefs -n %s -l %s -d %s\n", when, name, shellQuote(flagUsage(f)))
			}
		}
	}
	return b.String()
}

func flagUsage(f cli.Flag) string {
	if d, ok := f.(cli.DocGenerationFlag); ok {
		return strings.ReplaceAll(d.GetUsage(), "`", "")
	}
	return ""
}

// shellQuote quotes for bash, zsh and fish alike: our texts hold no backslash
// before a quote.
func shellQuote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
