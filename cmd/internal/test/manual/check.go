package manual

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// WriteVariable is the environment variable that makes Check write the section instead of comparing it. make reference sets it.
const WriteVariable = "GSHARE_WRITE_REFERENCE"

// page is the path of docs/cli.md from the package of a program, in which its tests run.
const page = "../../docs/cli.md"

// Check fails the test unless the section of a program in docs/cli.md matches its flags and commands.
func Check(t *testing.T, program *cobra.Command) {
	t.Helper()
	want, err := Section(program)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	changed, err := Replace(string(text), program.Name(), want)
	switch {
	case err != nil:
		t.Fatal(err)
	case changed == string(text):
	case os.Getenv(WriteVariable) == "":
		t.Errorf("docs/cli.md differs from the commands of %s: %s\nTo write it: %s=1 go test ./cmd/%[1]s -run '^%[4]s$'", program.Name(), difference(string(text), changed), WriteVariable, t.Name())
	default:
		if err := os.WriteFile(page, []byte(changed), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// difference describes the first line in which the page differs from what it should be.
func difference(page, want string) string {
	lines := strings.Split(page, "\n")
	for i, line := range strings.Split(want, "\n") {
		if i >= len(lines) || lines[i] != line {
			return fmt.Sprintf("line %d should be %q", i+1, line)
		}
	}
	return "it has lines at its end that should not be there"
}

// Replace returns the page with the section of a program replaced. It returns an error if the page has no such section.
func Replace(page, program, section string) (string, error) {
	const heading = "\n## "
	before, rest, found := strings.Cut(page, heading+program+"\n")
	if !found {
		return "", fmt.Errorf("docs/cli.md has no line %q", strings.TrimSpace(heading)+" "+program)
	}
	if !strings.HasPrefix(section, strings.TrimPrefix(heading, "\n")+program+"\n") {
		return "", errors.New("the section is another program's")
	}
	_, after, found := strings.Cut(rest, heading)
	if found {
		after = heading + after
	}
	return before + "\n" + strings.TrimSpace(section) + "\n" + after, nil
}
