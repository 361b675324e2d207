package manual

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
)

// program returns a program with one command.
func program() (program, sub *cobra.Command) {
	run := func(*cobra.Command, []string) {}
	program = &cobra.Command{Use: "prog", Short: "Do things", Long: "prog does things."}
	sub = &cobra.Command{Use: "do THING", Short: "Do a thing", Example: "  prog do this\n  prog do that", Run: run}
	sub.Flags().DurationP("every", "e", time.Second, "time | between two")
	sub.Flags().String("name", "", "`NAME` of the thing")
	sub.Flags().Bool("fast", false, "do it fast")
	sub.Flags().Int("secret", 1, "")
	sub.Flags().Int("most", 0, "most things")
	_ = sub.Flags().MarkHidden("secret")
	program.AddCommand(sub, &cobra.Command{Use: "hidden", Hidden: true, Run: run})
	return program, sub
}

func TestSection(t *testing.T) {
	p, _ := program()
	got, err := Section(p)
	want := "## prog\n\nDo things.\n\nprog does things.\n\n```text\nprog\n```\n\n### prog do\n\nDo a thing.\n\n```text\nprog do THING\n```\n\nExamples:\n\n" +
		"```text\nprog do this\nprog do that\n```\n\n| Flag | Default | Meaning |\n|---|---|---|\n| `-e, --every duration` | `1s` | time \\| between two |\n" +
		"| `--fast` |  | do it fast |\n| `--most int` |  | most things |\n| `--name NAME` |  | NAME of the thing |\n\n"
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
}

// TestDescription: what a long description begins with is said once, and its lists stay as they are.
func TestDescription(t *testing.T) {
	p, _ := program()
	p.Long = "Do things.\n\nOr:\n  more\n  less"
	got, err := Section(p)
	if want := "## prog\n\n```text\nDo things.\n\nOr:\n  more\n  less\n```\n\n```text\nprog\n```\n"; err != nil || !strings.HasPrefix(got, want) {
		t.Errorf("%v: %q", err, got)
	}
}

// TestUndescribed: what has no description is an error, never a gap in the page.
func TestUndescribed(t *testing.T) {
	p, sub := program()
	sub.Flags().String("mystery", "", "")
	if _, err := Section(p); err == nil || !strings.Contains(err.Error(), "--mystery") {
		t.Errorf("a flag: %v", err)
	}
	p, sub = program()
	sub.Short = ""
	if _, err := Section(p); err == nil || !strings.Contains(err.Error(), "prog do") {
		t.Errorf("a command: %v", err)
	}
}

func TestReplace(t *testing.T) {
	const before = "# Page\n\nText.\n\n## a\n\nold\n\n## ab\n\nother\n"
	got, err := Replace(before, "a", "## a\n\nnew\n\n")
	if want := "# Page\n\nText.\n\n## a\n\nnew\n\n## ab\n\nother\n"; err != nil || got != want {
		t.Errorf("%q, %v", got, err)
	}
	if again, err := Replace(got, "a", "## a\n\nnew\n\n"); err != nil || again != got {
		t.Errorf("the second time %q, %v", again, err)
	}
	got, err = Replace(before, "ab", "## ab\n\nnew\n")
	if want := "# Page\n\nText.\n\n## a\n\nold\n\n## ab\n\nnew\n"; err != nil || got != want {
		t.Errorf("the last %q, %v", got, err)
	}
	for _, wrong := range []string{"b", "Page"} {
		if got, err := Replace(before, wrong, "## "+wrong+"\n"); err == nil {
			t.Errorf("%s: %q", wrong, got)
		}
	}
	if got, err := Replace(before, "a", "## ab\n"); err == nil {
		t.Errorf("another program's section: %q", got)
	}
}
