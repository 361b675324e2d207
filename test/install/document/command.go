package document

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/syntax"
)

// Command is a command of a document.
type Command struct {
	File    string
	Words   []string // the first is the program
	Mention bool     // in a sentence: it may leave arguments out
}

func (c Command) String() string { return c.File + ": " + strings.Join(c.Words, " ") }

// programs are those that the documents use. Each is checked by a test of this repository, but for the last ones: they are not at
// hand, and nothing is known of their flags.
var programs = []string{
	"gshare",               // cmd/gshare
	"gshare-node",          // cmd/gshare-node
	"kubectl",              // test/install
	"make", "go", "docker", // test/install
	"helm", // test/helm
	"kind", "nvidia-ctk", "curl",
}

// Commands returns the commands of all documents whose program has this name. In a block of shell every command has to be of a program
// that is known here: no example goes unseen.
func Commands(root, program string) (of []Command, err error) {
	blocks, err := Blocks(root)
	if err != nil {
		return nil, err
	}
	for _, b := range blocks {
		commands, err := b.commands()
		if err != nil {
			return nil, err
		}
		for _, c := range commands {
			if c.Words[0] == program {
				of = append(of, c)
			}
		}
	}
	if len(of) == 0 {
		return nil, fmt.Errorf("no document has a command of %s", program)
	}
	return of, nil
}

var (
	typed = regexp.MustCompile(`(?m)^\$ (.*)$`) // in a transcript, beside what was answered
	begin = regexp.MustCompile(`(?m)^\S+`)
)

func (b Block) commands() ([]Command, error) {
	switch b.Language {
	case "sh":
		return b.shell(b.Text)
	case "inline":
		if known(begin.FindString(b.Text)) {
			return b.shell(b.Text)
		}
	case "":
		return b.transcript()
	}
	return nil, nil
}

// transcript returns what was typed. A block that looks like shell has to say so, or nobody would look at it.
func (b Block) transcript() (all []Command, err error) {
	for _, m := range typed.FindAllStringSubmatch(b.Text, -1) {
		commands, err := b.shell(m[1])
		if err != nil {
			return nil, err
		}
		all = append(all, commands...)
	}
	for _, word := range begin.FindAllString(b.Text, -1) {
		if known(word) {
			return nil, fmt.Errorf("%s: a block with a line that begins with %q is not marked as sh", b.File, word)
		}
	}
	return all, nil
}

func known(program string) bool { return slices.Contains(programs, program) }

// shell reads commands as bash does.
func (b Block) shell(text string) (all []Command, err error) {
	file, err := syntax.NewParser().Parse(strings.NewReader(text), b.File)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", b.File, err)
	}
	syntax.Walk(file, func(node syntax.Node) bool {
		if call, ok := node.(*syntax.CallExpr); ok && len(call.Args) > 0 && err == nil {
			var c Command
			c, err = b.call(call)
			all = append(all, c)
		}
		return true
	})
	return all, err
}

func (b Block) call(call *syntax.CallExpr) (Command, error) {
	words, err := expand.Fields(nil, call.Args...)
	if err != nil {
		return Command{}, fmt.Errorf("%s: %w", b.File, err)
	}
	c := Command{File: b.File, Words: words, Mention: b.Language == "inline"}.plugin()
	if !known(c.Words[0]) {
		return Command{}, fmt.Errorf("%v: no test knows %s", c, c.Words[0])
	}
	return c, nil
}

// plugin is gshare under the name that kubectl gives it.
func (c Command) plugin() Command {
	if c.Words[0] == "kubectl" && len(c.Words) > 1 && c.Words[1] == "gshare" {
		c.Words = c.Words[1:]
	}
	return c
}

// Try returns why a program would not take the command: it has no such command, flag or argument. It runs nothing.
func (c Command) Try(program *cobra.Command) error {
	cmd, rest, err := program.Find(c.Words[1:])
	if err != nil {
		return err
	}
	if err := cmd.ParseFlags(rest); err != nil {
		return err
	}
	args := cmd.Flags().Args()
	if cmd.HasSubCommands() && len(args) > 0 {
		return fmt.Errorf("%s has no command %s", cmd.CommandPath(), args[0])
	}
	if c.Mention {
		return nil
	}
	return cmd.ValidateArgs(args)
}
