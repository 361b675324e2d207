// Package output writes the result of a command as a table, JSON or YAML.
package output

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"sigs.k8s.io/yaml"
)

var formats = []string{"table", "json", "yaml"}

// Format is the value of the flag --output: table, json or yaml.
type Format struct{ name string }

// AddTo adds the flag --output and its shell completion to a command. The default is table.
func (f *Format) AddTo(cmd *cobra.Command) {
	f.name = formats[0]
	cmd.Flags().VarP(f, "output", "o", "output format: json, yaml or table")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp)) // fails only for an unknown flag
}

// String implements pflag.Value.
func (f *Format) String() string { return f.name }

// Type implements pflag.Value.
func (f *Format) Type() string { return "format" }

// Set implements pflag.Value; it rejects unknown formats.
func (f *Format) Set(name string) error {
	for _, known := range formats {
		if name == known {
			f.name = name
			return nil
		}
	}
	return fmt.Errorf("unknown format %q: must be json, yaml or table", name)
}

// Table reports whether the format is table.
func (f *Format) Table() bool { return f.name == formats[0] }

// Write writes the value as JSON or YAML or, for the format table, calls table. YAML has the same field names and order as JSON.
func (f *Format) Write(w io.Writer, value any, table func(io.Writer) error) error {
	if f.Table() {
		return table(w)
	}
	text, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return err
	}
	text = escaped(text)
	if f.name == "yaml" {
		text, err = yaml.JSONToYAML(text) // which refuses most of what is escaped
	} else {
		text = append(text, '\n')
	}
	if err != nil {
		return err
	}
	_, err = w.Write(text)
	return err
}

// Terminal returns the width of the terminal that w writes to. It reports false if w is no terminal.
func Terminal(w io.Writer) (width int, ok bool) {
	file, isFile := w.(*os.File)
	if !isFile || !term.IsTerminal(int(file.Fd())) {
		return 0, false
	}
	width, _, err := term.GetSize(int(file.Fd()))
	return width, err == nil
}

// Color reports whether output to w is to be coloured: it is a terminal and NO_COLOR is not set (no-color.org).
func Color(w io.Writer) bool {
	_, ok := Terminal(w)
	return ok && os.Getenv("NO_COLOR") == ""
}
