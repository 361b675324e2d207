// Package output writes the answer of a command as a table for people, or as JSON or YAML for programs.
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

// Format is a flag of the formats: -o.
type Format struct{ name string }

// AddTo adds the flag to a command, with its completion.
func (f *Format) AddTo(cmd *cobra.Command) {
	f.name = formats[0]
	cmd.Flags().VarP(f, "output", "o", "json, yaml or table")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp)) // the flag is there
}

// String implements pflag.Value.
func (f *Format) String() string { return f.name }

// Type implements pflag.Value.
func (f *Format) Type() string { return "format" }

// Set implements pflag.Value.
func (f *Format) Set(name string) error {
	for _, known := range formats {
		if name == known {
			f.name = name
			return nil
		}
	}
	return fmt.Errorf("%q is none of json, yaml, table", name)
}

// Table says that the answer is for people.
func (f *Format) Table() bool { return f.name == formats[0] }

// Write writes the value for programs, or calls table. YAML has the names and the order that JSON has.
func (f *Format) Write(w io.Writer, value any, table func(io.Writer) error) error {
	if f.Table() {
		return table(w)
	}
	text, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return err
	}
	if f.name == "yaml" {
		text, err = yaml.JSONToYAML(text)
	} else {
		text = append(text, '\n')
	}
	if err != nil {
		return err
	}
	_, err = w.Write(text)
	return err
}

// Terminal says how wide a terminal is; false where w is none, so that a pipe gets neither colours nor a width.
func Terminal(w io.Writer) (width int, ok bool) {
	file, isFile := w.(*os.File)
	if !isFile || !term.IsTerminal(int(file.Fd())) {
		return 0, false
	}
	width, _, err := term.GetSize(int(file.Fd()))
	return width, err == nil
}

// Color says whether to write colours: on a terminal, unless NO_COLOR says otherwise (no-color.org).
func Color(w io.Writer) bool {
	_, ok := Terminal(w)
	return ok && os.Getenv("NO_COLOR") == ""
}
