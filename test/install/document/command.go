// Package document reads the examples in the documentation: objects, queries, and commands as a user would type them.
package document

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/syntax"
)

// Command is a command line in an example of the documentation.
type Command struct {
	File    string
	Words   []string // the first is the program
	Mention bool     // occurs within a sentence, so arguments may be missing
}

func (c Command) String() string { return c.File + ": " + strings.Join(c.Words, " ") }

// knownPrograms lists the programs that the documentation uses, in addition to scripts. Tests
// check the flags of all but the last ones, which may be missing where the tests run.
var knownPrograms = []string{
	"gshare",       // cmd/gshare
	"gshare-node",  // cmd/gshare-node
	"gshare-model", // cmd/gshare-model
	"gshare-lab",   // cmd/gshare-lab
	"kubectl",      // test/install
	"helm",         // test/helm
	"make", "go", "docker",
	"kind", "nvidia-ctk", "curl", "ctr", "python3", "tar", "systemctl", "rm",
}

// Commands returns the documented commands of the program with this name. It returns an error if a shell example has a command of an
// unknown program, so that no example goes unchecked.
func Commands(root, program string) ([]Command, error) {
	return commandsWhere(root, program, func(name string) bool { return name == program })
}

// Scripts returns the documented commands that run a script of the repository.
func Scripts(root string) ([]Command, error) { return commandsWhere(root, "a script", isScript) }

func commandsWhere(root, what string, isWanted func(program string) bool) (of []Command, err error) {
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
			if isWanted(c.Words[0]) {
				of = append(of, c)
			}
		}
	}
	if len(of) == 0 {
		return nil, fmt.Errorf("no document has a command of %s", what)
	}
	return of, nil
}

var (
	typed = regexp.MustCompile(`(?m)^\$ (.*)$`) // in a transcript
	begin = regexp.MustCompile(`(?m)^\S+`)
)

func (b Block) commands() ([]Command, error) {
	switch b.Language {
	case "sh":
		return b.parseShell(b.Text)
	case "inline":
		if isKnown(begin.FindString(b.Text)) {
			return b.parseShell(b.Text)
		}
	case "":
		return b.parseTranscript()
	case "bash", "shell", "console":
		return nil, fmt.Errorf("%s: commands are marked as sh, not as %s, so that they are checked", b.File, b.Language)
	}
	return nil, nil
}

// parseTranscript returns the commands typed in a transcript, which follow "$ ". It returns an error if another line begins with a known
// program, since such a block must be marked as sh.
func (b Block) parseTranscript() (all []Command, err error) {
	for _, m := range typed.FindAllStringSubmatch(b.Text, -1) {
		commands, err := b.parseShell(m[1])
		if err != nil {
			return nil, err
		}
		all = append(all, commands...)
	}
	for _, word := range begin.FindAllString(b.Text, -1) {
		if isKnown(word) {
			return nil, fmt.Errorf("%s: a block with a line that begins with %q is not marked as sh", b.File, word)
		}
	}
	return all, nil
}

func isKnown(program string) bool {
	return slices.Contains(knownPrograms, program) || isScript(program)
}

// isScript reports whether a word is the path of a script. A name without a folder is not, since it only names a file.
func isScript(program string) bool {
	return strings.Contains(program, "/") && strings.HasSuffix(program, ".sh")
}

// parseShell parses the text as bash does and returns its commands.
func (b Block) parseShell(text string) (all []Command, err error) {
	file, err := syntax.NewParser().Parse(strings.NewReader(text), b.File)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", b.File, err)
	}
	syntax.Walk(file, func(node syntax.Node) bool {
		if call, ok := node.(*syntax.CallExpr); ok && len(call.Args) > 0 && err == nil {
			var c Command
			c, err = b.parseCall(call)
			all = append(all, c)
		}
		return true
	})
	return all, err
}

func (b Block) parseCall(parseCall *syntax.CallExpr) (Command, error) {
	words, err := expand.Fields(nil, parseCall.Args...)
	if err != nil {
		return Command{}, fmt.Errorf("%s: %w", b.File, err)
	}
	c := Command{File: b.File, Words: words, Mention: b.Language == "inline"}.withoutKubectl()
	if !isKnown(c.Words[0]) {
		return Command{}, fmt.Errorf("%v: no test knows %s", c, c.Words[0])
	}
	return c, nil
}

// withoutKubectl returns the command gshare that is equivalent to a command "kubectl gshare", and other commands unchanged.
func (c Command) withoutKubectl() Command {
	if c.Words[0] == "kubectl" && len(c.Words) > 1 && c.Words[1] == "gshare" {
		c.Words = c.Words[1:]
	}
	return c
}

// Check returns an error if the program would not accept the command, because it has no such command, flag or argument. It runs nothing.
func (c Command) Check(program *cobra.Command) error {
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

// Block is one example in the documentation: a fenced code block, or code within a line of text, whose Language is "inline".
type Block struct{ File, Language, Text string }

var (
	fence  = regexp.MustCompile("(?ms)^```([a-z]*)\n(.*?)^```$")
	inline = regexp.MustCompile("`([^`\n]+)`")
)

// Blocks returns the code examples of all documents in a checkout: the pages of docs, and README.md, CONTRIBUTING.md and SECURITY.md of any
// folder.
func Blocks(root string) (all []Block, err error) {
	files, err := documents(root)
	if err != nil || len(files) < 20 {
		return nil, fmt.Errorf("%d documents, %w", len(files), err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		name, err := filepath.Rel(root, file)
		if err != nil {
			return nil, err
		}
		all = append(all, parse(name, string(text))...)
	}
	return all, nil
}

// Pages returns the files of the documentation's pages, without the decision records.
func Pages(root string) (all []string, err error) {
	for _, pattern := range []string{"docs/*.md", "docs/papers/*.md"} {
		pages, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			return nil, err
		}
		all = append(all, pages...)
	}
	return all, nil
}

func documents(root string) (files []string, err error) {
	pages, err := Pages(root)
	if err != nil {
		return nil, err
	}
	err = filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
		switch name := filepath.Base(file); {
		case err != nil:
			return err
		case entry.IsDir() && file != root && (strings.HasPrefix(name, ".") || name == "bin"):
			return filepath.SkipDir
		case slices.Contains([]string{"README.md", "CONTRIBUTING.md", "SECURITY.md"}, name) && !slices.Contains(pages, file):
			files = append(files, file)
		}
		return nil
	})
	return append(pages, files...), err
}

func parse(name, text string) (all []Block) {
	for _, m := range fence.FindAllStringSubmatch(text, -1) {
		all = append(all, Block{name, m[1], m[2]})
	}
	for _, m := range inline.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		all = append(all, Block{name, "inline", m[1]})
	}
	return all
}
