package document

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// pinned matches an action that is pinned to a commit.
var pinned = regexp.MustCompile(`^[a-z-]+/[a-z-]+@[0-9a-f]{40}$`)

// TestWorkflows: the hosted workflows run scripts and targets that exist, pin their actions to commits, and declare their
// permissions.
func TestWorkflows(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, ".github/workflows/*.yaml"))
	if err != nil || len(files) < 2 {
		t.Fatalf("%q, %v", files, err)
	}
	has, ran := targets(t), 0
	for _, file := range files {
		var workflow struct {
			Permissions map[string]string
			Jobs        map[string]struct {
				Steps []struct{ Uses, Run string }
			}
		}
		text, err := os.ReadFile(file)
		if err == nil {
			err = yaml.Unmarshal(text, &workflow)
		}
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if len(workflow.Permissions) != 1 || workflow.Permissions["contents"] == "" {
			t.Errorf("%s: permissions %v, want those to contents and no others", file, workflow.Permissions)
		}
		for _, job := range workflow.Jobs {
			for _, s := range job.Steps {
				if s.Uses != "" && !pinned.MatchString(s.Uses) {
					t.Errorf("%s: %s is not one commit: whoever has the action's repository could give its tag to another", file, s.Uses)
				}
				if strings.Contains(s.Run, "${{") || strings.Contains(s.Run, "make") && strings.Contains(s.Run, "$GITHUB_") {
					t.Errorf("%s: %q runs what is in the name of a branch or tag; give it in the environment", file, s.Run)
				}
				words := strings.Fields(s.Run)
				for i, word := range words {
					switch {
					case strings.HasPrefix(word, "hack/"), strings.HasPrefix(word, ".ci/"):
						ran++
						if info, err := os.Stat(filepath.Join(root, word)); err != nil || info.Mode()&0o111 == 0 {
							t.Errorf("%s: %s: %v, or it is no program", file, word, err)
						}
					case word == "make":
						ran++
						if i+1 == len(words) || has[words[i+1]] == "" {
							t.Errorf("%s: %s: no such target", file, s.Run)
						}
					}
				}
			}
		}
	}
	if ran < 3 {
		t.Errorf("only %d scripts and targets", ran)
	}
}
