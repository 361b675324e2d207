package install_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// message is the message of a gshare program in a row of trouble.md, without the parts that vary.
var message = regexp.MustCompile("(?m)^\\| (?:container does not start|pod stays Pending|pod is refused or Pending): `([^`…]+)")

// TestMessages: users can find in docs/trouble.md what they see, such as the reason of an event. Each message there is the
// beginning of a string in the programs.
func TestMessages(t *testing.T) {
	text, err := os.ReadFile(root + "docs/trouble.md")
	if err != nil {
		t.Fatal(err)
	}
	programs := sources(t)
	found := message.FindAllStringSubmatch(string(text), -1)
	for _, m := range found {
		if said := strings.TrimSpace(m[1]); !strings.Contains(programs, `"`+said) && !strings.Contains(programs, `"%d `+said) {
			t.Errorf("no program says %q", said)
		}
	}
	if len(found) < 6 {
		t.Errorf("only %d messages", len(found))
	}
}

// sources returns the source code of the programs that decide on and enforce shares.
func sources(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, folder := range []string{"vgpu", "node", "deviceplugin"} {
		err := filepath.WalkDir(root+folder, func(name string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
				return err
			}
			text, err := os.ReadFile(name)
			all.Write(text)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all.String()
}
