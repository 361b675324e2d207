package document

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

func TestParse(t *testing.T) {
	got := parse("a.md", "Run `make x`:\n```sh\nkubectl get pods # `all`\n```\nand\n```\npicture\n```\n")
	want := []Block{{"a.md", "sh", "kubectl get pods # `all`\n"}, {"a.md", "", "picture\n"}, {"a.md", "inline", "make x"}}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

func TestCommandsOfABlock(t *testing.T) {
	for name, test := range map[string]struct{ language, text, want, wantErr string }{
		"two lines":     {"sh", "kubectl get pods\nmake all # a word\n", "kubectl get pods|make all", ""},
		"quotes":        {"sh", `kubectl get pod -o jsonpath='{.a\.b}' "x y"`, `kubectl get pod -o jsonpath={.a\.b} x y`, ""},
		"a long line":   {"sh", "kubectl get \\\n  pods", "kubectl get pods", ""},
		"a pipe":        {"sh", "kubectl get pods | kubectl apply -f -", "kubectl get pods|kubectl apply -f -", ""},
		"in another":    {"sh", "kubectl get $(make x)", "", "unexpected command substitution"},
		"plugin":        {"sh", "kubectl gshare map", "gshare map", ""},
		"unknown":       {"sh", "kubectI get pods", "", "no test knows kubectI"},
		"not shell":     {"sh", "if then", "", "a.md"},
		"transcript":    {"", "$ gshare ps\nRUN NAME\n$ gshare run -- x &\n", "gshare ps|gshare run -- x", ""},
		"another mark":  {"bash", "kubectl get pods", "", "marked as sh, not as bash"},
		"picture":       {"", "┌─┐ kubectl\n", "", ""},
		"unmarked":      {"", "make demo  # go\n", "", "not marked as sh"},
		"inline":        {"inline", "make demo", "make demo", ""},
		"inline, words": {"inline", "gshare/mem: 1", "", ""},
		"objects":       {"yaml", "make: x", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			commands, err := Block{"a.md", test.language, test.text}.commands()
			var got []string
			for _, c := range commands {
				got = append(got, strings.Join(c.Words, " "))
			}
			if (err == nil) != (test.wantErr == "") || err != nil && !strings.Contains(err.Error(), test.wantErr) {
				t.Errorf("%v", err)
			}
			if strings.Join(got, "|") != test.want {
				t.Errorf("%q", got)
			}
		})
	}
}

// TestTry is the negative control of all tests of commands: a command that the program would not accept is found.
func TestTry(t *testing.T) {
	for words, wantErr := range map[string]string{
		"list":               "",
		"list --all":         "",
		"list -n x":          "",
		"list --al":          "unknown flag: --al",
		"list -x":            "unknown shorthand flag: 'x'",
		"list --all=perhaps": "invalid argument",
		"list one":           "unknown command",
		"lst":                "unknown command",
		"group":              "",
		"group make":         "",
		"group mke":          "has no command mke",
	} {
		t.Run(words, func(t *testing.T) {
			root := &cobra.Command{Use: "program"}
			list := &cobra.Command{Use: "list", Args: cobra.NoArgs, Run: func(*cobra.Command, []string) { t.Error("run") }}
			list.Flags().Bool("all", false, "")
			list.Flags().StringP("name", "n", "", "")
			group := &cobra.Command{Use: "group"}
			group.AddCommand(&cobra.Command{Use: "make", Run: func(*cobra.Command, []string) { t.Error("run") }})
			root.AddCommand(list, group)
			err := Command{Words: strings.Fields("program " + words)}.Check(root)
			if (err == nil) != (wantErr == "") || err != nil && !strings.Contains(err.Error(), wantErr) {
				t.Errorf("%v, want %q", err, wantErr)
			}
		})
	}
}
