// Package wrong tries wrong values in all flags of a program, for the tests of its package main.
package wrong

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gshare-dev/gshare/cmd/internal/cli"
)

// Program is a program whose flags Try tries.
type Program struct {
	Root func() *cobra.Command

	// Lines has the arguments and flags with which a command gets as far as its work, by the command's path without the program's name.
	// Commands that need none may be missing.
	Lines map[string][]string

	// ParserOnly limits the values to those that the parser of the command line refuses, for programs that begin work with any others.
	ParserOnly bool

	// Taken has flags for which a value of a kind is right, as "command --flag kind", and why.
	Taken map[string]string
}

// value is a wrong value of a flag. kind says what is wrong with it.
type value struct{ kind, text string }

// unparsed are values that are of no flag of a type: the parser of the command line refuses them.
var unparsed = map[string][]value{
	"bool":     {{"word", "maybe"}},
	"int":      {{"empty", ""}, {"word", "many"}, {"unit", "10%"}, {"fraction", "1.5"}, {"NaN", "NaN"}, {"huge", "99999999999999999999"}},
	"float64":  {{"empty", ""}, {"word", "much"}, {"unit", "10%"}, {"huge", "1e999"}},
	"duration": {{"empty", ""}, {"word", "soon"}, {"no unit", "10"}, {"unit", "3 days"}, {"huge", "99999999999h"}},
}

// meaningless are values that a parser takes and a command has to refuse.
var meaningless = map[string][]value{
	"int":      {{"negative", "-7"}},
	"float64":  {{"negative", "-7.5"}, {"not a number", "NaN"}, {"infinite", "+Inf"}},
	"duration": {{"negative", "-7s"}},
	"string":   {{"file", "/nonexistent/file"}, {"folder", "/proc/self"}},
}

// contents are files of nothing that a command reads.
var contents = map[string]string{
	"list": "[1, 2]\n", "number": "3\n", "syntax": "a: [\n", "repeated": "a: 1\na: 2\n", "unknown": "nosuch: 1\n", "binary": "\x00\x01\xff", "empty": "", "text": "a text\n",
}

// fileFlag matches the usage of flags that name a file to read.
var fileFlag = regexp.MustCompile(`(?i)\bfiles?\b`)

// Go matches what a message for users of a program has only if an error was passed on that Go made for programmers.
var Go = regexp.MustCompile(`strconv\.|(^|[^.])\b(json|yaml): |\btime: (missing|invalid|unknown)|unmarshal|invalid syntax|\bmain\.|\*?\b[a-z]\w*\.[A-Z]\w+\b( value| type|$)|goroutine|` +
	`runtime error|0xc0|%!|<nil>|context canceled|ParseInt|ParseFloat|net/url|parse "`)

// typeOf returns the type under which the tables have the values of a flag.
func typeOf(f *pflag.Flag) string {
	switch t := f.Value.Type(); {
	case strings.HasPrefix(t, "int"), strings.HasPrefix(t, "uint"):
		return "int"
	case t == "stringSlice", t == "stringArray":
		return "string"
	default:
		return t
	}
}

// Try runs each command of the program with wrong values in each of its flags. It demands the exit code 2, a message that names the flag and has
// nothing of Go, and no panic. The commands run with a context that has ended, so that those that do not refuse a value begin no work.
func (p Program) Try(t *testing.T) {
	tried, unused, folder := 0, map[string]bool{}, t.TempDir()
	var files []value
	for kind, text := range contents {
		path := filepath.Join(folder, kind)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		files = append(files, value{kind, path})
	}
	for key := range p.Taken {
		unused[key] = true
	}
	each(p.Root(), func(cmd *cobra.Command) {
		_, path, _ := strings.Cut(cmd.CommandPath(), " ")
		line := slices.Concat(strings.Fields(path), p.Lines[path])
		kinds := []map[string][]value{unparsed, meaningless}
		if p.ParserOnly {
			kinds = kinds[:1]
		} else if err := p.run(line); err != nil && cli.ExitCode(err) == 2 {
			t.Errorf("%v is refused by itself: %v", line, err)
			return
		}
		flags := slices.Concat(flagsOf(cmd.Flags()), flagsOf(cmd.InheritedFlags()))
		for _, f := range flags {
			var values []value
			for _, of := range kinds {
				values = append(values, of[typeOf(f)]...)
			}
			written := strings.TrimSpace(path + " --" + f.Name + " contents") // in Taken: a file that it writes, or reads later
			delete(unused, written)
			if p.Taken[written] == "" && typeOf(f) == "string" && !p.ParserOnly {
				values = append(values, files...)
			}
			for _, v := range values {
				if typeOf(f) == "string" && !fileFlag.MatchString(f.Usage) || v.text == "" && f.Value.Type() == "intSlice" {
					continue
				}
				key := strings.TrimSpace(path + " --" + f.Name + " " + v.kind)
				_, taken := p.Taken[key]
				delete(unused, key)
				tried++
				t.Run(key, func(t *testing.T) {
					end := slices.Index(append(line, "--"), "--")
					err := p.run(slices.Insert(slices.Clone(line), end, "--"+f.Name+"="+v.text))
					if why := judge(err, f.Name, v.text, taken); why != "" {
						t.Errorf("--%s=%s: %s", f.Name, v.text, why)
					}
				})
			}
		}
	})
	for key := range unused {
		t.Errorf("%q is no flag and kind of value that are tried", key)
	}
	if tried == 0 {
		t.Error("no values are tried")
	}
	t.Logf("%d wrong values", tried)
}

// judge returns what is wrong with the error of a command that got a wrong value, or "".
func judge(err error, flag, value string, taken bool) string {
	switch {
	case err == nil && taken:
		return ""
	case err == nil:
		return "accepted"
	case errors.Is(err, errPanic):
		return err.Error()
	case taken:
		if cli.ExitCode(err) == 2 {
			return fmt.Sprintf("refused: %v", err)
		}
		return ""
	case cli.ExitCode(err) != 2:
		return fmt.Sprintf("exit code %d instead of 2 for %v", cli.ExitCode(err), err)
	case !strings.Contains(err.Error(), "--"+flag) && (value == "" || !strings.Contains(err.Error(), value)):
		return fmt.Sprintf("the flag is not named in: %v", err)
	case Go.MatchString(err.Error()):
		return fmt.Sprintf("%q, which is Go, in: %v", Go.FindString(err.Error()), err)
	}
	return ""
}

var errPanic = errors.New("panic")

func (p Program) run(args []string) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: %v", errPanic, r)
		}
	}()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	cmd := p.Root()
	cmd.SetArgs(args)
	cmd.SetIn(&bytes.Buffer{})
	cmd.SetOut(io.Discard)
	cmd.SetErr(io.Discard)
	return cli.Execute(ctx, cmd)
}

// each calls do for each command that does something.
func each(cmd *cobra.Command, do func(*cobra.Command)) {
	if cmd.Runnable() {
		do(cmd)
	}
	for _, sub := range cmd.Commands() {
		each(sub, do)
	}
}

func flagsOf(set *pflag.FlagSet) (all []*pflag.Flag) {
	set.VisitAll(func(f *pflag.Flag) { all = append(all, f) })
	return all
}
