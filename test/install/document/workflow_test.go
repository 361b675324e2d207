package document

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// TestWorkflows: the hosted workflows run scripts and targets that are there, by actions of one version.
func TestWorkflows(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, ".github/workflows/*.yaml"))
	if err != nil || len(files) < 2 {
		t.Fatalf("%q, %v", files, err)
	}
	has, ran := targets(t), 0
	for _, file := range files {
		var workflow struct {
			Jobs map[string]struct {
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
		for _, job := range workflow.Jobs {
			for _, s := range job.Steps {
				if _, version, _ := strings.Cut(s.Uses, "@v"); s.Uses != "" && strings.Count(version, ".") != 2 {
					t.Errorf("%s: %s is not one version", file, s.Uses)
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
