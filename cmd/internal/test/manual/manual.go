// Package manual describes the commands of a program in Markdown, and checks docs/cli.md against that.
package manual

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Section returns the Markdown section of a program: its description, flags and examples, and those of its commands. It returns an error if a
// command or a flag has no description.
func Section(program *cobra.Command) (string, error) {
	var s section
	s.add(program)
	return s.text.String(), s.err
}

// section is the section of a program while it is being written.
type section struct {
	text strings.Builder
	err  error
}

// addGroups writes a table of a command's subcommands for each of its groups.
func (s *section) addGroups(cmd *cobra.Command) {
	for _, g := range cmd.Groups() {
		fmt.Fprintf(&s.text, "\n| %s | What it does |\n|---|---|\n", strings.TrimSuffix(g.Title, ":"))
		for _, sub := range cmd.Commands() {
			if sub.GroupID == g.ID {
				fmt.Fprintf(&s.text, "| [`%s`](#%s) | %s |\n", sub.Name(), strings.ReplaceAll(sub.CommandPath(), " ", "-"), cell(sub.Short))
			}
		}
	}
}

func (s *section) add(cmd *cobra.Command) {
	if cmd.Short == "" {
		s.err = errors.Join(s.err, fmt.Errorf("%s has no description", cmd.CommandPath()))
	}
	heading := "###"
	if !cmd.HasParent() {
		heading = "##"
	}
	fmt.Fprintf(&s.text, "%s %s\n", heading, cmd.CommandPath())
	short, long := strings.TrimSuffix(cmd.Short, ".")+".", strings.TrimSpace(cmd.Long)
	if !strings.HasPrefix(long, short) {
		fmt.Fprintf(&s.text, "\n%s\n", short)
	}
	switch {
	case strings.Contains(long, "\n  "): // a list or an example, whose line breaks matter
		fmt.Fprintf(&s.text, "\n```text\n%s\n```\n", long)
	case long != "":
		fmt.Fprintf(&s.text, "\n%s\n", long)
	}
	fmt.Fprintf(&s.text, "\n```text\n%s\n```\n", strings.TrimSuffix(cmd.UseLine(), " [flags]"))
	if cmd.Example != "" {
		fmt.Fprintf(&s.text, "\nExamples:\n\n```text\n%s\n```\n", strings.ReplaceAll(strings.Trim(cmd.Example, "\n")[2:], "\n  ", "\n"))
	}
	s.addGroups(cmd)
	s.addFlags(cmd)
	s.text.WriteString("\n")
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() && sub.Name() != "help" && sub.Name() != "completion" {
			s.add(sub)
		}
	}
}

func (s *section) addFlags(cmd *cobra.Command) {
	empty := true
	cmd.NonInheritedFlags().VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" || f.Name == "version" {
			return
		}
		if f.Usage == "" {
			s.err = errors.Join(s.err, fmt.Errorf("%s: flag --%s has no description", cmd.CommandPath(), f.Name))
		}
		if empty {
			s.text.WriteString("\n| Flag | Default | Meaning |\n|---|---|---|\n")
			empty = false
		}
		_, usage := pflag.UnquoteUsage(f)
		fmt.Fprintf(&s.text, "| `%s` | %s | %s |\n", flagName(f), standard(f), cell(usage))
	})
}

func flagName(f *pflag.Flag) string {
	kind, _ := pflag.UnquoteUsage(f)
	name := "--" + f.Name
	if f.Shorthand != "" {
		name = "-" + f.Shorthand + ", " + name
	}
	return strings.TrimSpace(name + " " + kind)
}

// standard returns the default of a flag, or an empty string if the default only means that the flag is not given.
func standard(f *pflag.Flag) string {
	switch f.DefValue {
	case "", "[]", "false", "0s":
		return ""
	case "0":
		if f.Value.Type() != "string" {
			return ""
		}
	}
	return "`" + cell(f.DefValue) + "`"
}

// cell returns a text in the form of a table cell.
func cell(text string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(text), " "), "|", `\|`)
}
