package document

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

const root = "../../.."

func commands(t *testing.T, program string) []Command {
	t.Helper()
	all, err := Commands(root, program)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// targets returns the recipes of the Makefile's targets, by name. It requires a line of help for each target.
func targets(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^([a-z0-9-]+):.* ## .*\n\t(.*)$`).FindAllStringSubmatch(read(t, "Makefile"), -1) {
		found[m[1]] = m[2]
	}
	if len(found) < 30 {
		t.Fatalf("only %d targets", len(found))
	}
	return found
}

// TestMake: every target named in the documentation exists in the Makefile.
func TestMake(t *testing.T) {
	has := targets(t)
	for _, c := range commands(t, "make") {
		for _, word := range c.Words[1:] {
			if _, ok := has[word]; !ok && !strings.Contains(word, "=") { // a variable
				t.Errorf("%v: no target %s", c, word)
			}
		}
	}
}

// TestTargets: make accepts every target in a dry run, and the help lists it.
func TestTargets(t *testing.T) {
	make, err := exec.LookPath("make")
	if err != nil {
		t.Skip("make is not installed")
	}
	help, err := exec.Command(make, "-C", root, "help").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, help)
	}
	for target := range targets(t) {
		if !bytes.Contains(help, []byte("  "+target+" ")) {
			t.Errorf("the help lacks %s", target)
		}
		if out, err := exec.Command(make, "-C", root, "-n", target).CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", target, err, out)
		}
	}
	if exec.Command(make, "-C", root, "-n", "demoo").Run() == nil {
		t.Error("a target that does not exist passes")
	}
}

// TestScripts: the scripts named in the Makefile and the documentation exist, bash can parse them, and they know the modes with which they are
// called.
func TestScripts(t *testing.T) {
	all, err := Scripts(root)
	if err != nil {
		t.Fatal(err)
	}
	for target, recipe := range targets(t) {
		for _, m := range regexp.MustCompile(`([\w./-]+\.sh)( [a-z]+)?`).FindAllStringSubmatch(recipe, -1) {
			all = append(all, Command{File: "Makefile: " + target, Words: strings.Fields(m[0])})
		}
	}
	mode := regexp.MustCompile(`^[a-z]+$`)
	for _, c := range all {
		folder := root
		if strings.HasPrefix(c.Words[0], "./") {
			folder = filepath.Join(root, filepath.Dir(c.File))
		}
		script := filepath.Join(folder, c.Words[0])
		info, err := os.Stat(script)
		if err != nil || info.Mode()&0o111 == 0 {
			t.Errorf("%v: no program %s (%v)", c, script, err)
			continue
		}
		if out, err := exec.Command("bash", "-n", script).CombinedOutput(); err != nil {
			t.Errorf("%v: %v: %s", c, err, out)
		}
		text, err := os.ReadFile(script)
		if err != nil {
			t.Fatal(err)
		}
		if len(c.Words) > 1 && mode.MatchString(c.Words[1]) && !regexp.MustCompile(`\b`+c.Words[1]+`\b`).Match(text) && !strings.HasSuffix(script, "lab.sh") {
			t.Errorf("%v: the script does not know %s", c, c.Words[1])
		}
	}
	if len(all) < 20 {
		t.Errorf("only %d commands", len(all))
	}
}

// goFlags are the flags of the go command that the documentation uses.
var goFlags = map[string][]string{
	"build": {"-o"},
	"clean": {"-testcache"},
	"run":   {},
	"test":  {"-run", "-race", "-json", "-count=1", "-timeout", "-v", "-full", "-rewrite"},
}

// TestGo: the go command accepts the documented commands, and the packages and tests that they name exist.
func TestGo(t *testing.T) {
	for _, c := range commands(t, "go") {
		if err := checkGo(c.Words); err != nil {
			t.Errorf("%v: %v", c, err)
		}
	}
	for _, wrong := range []string{"go tset ./vgpu", "go test -rum X ./vgpu/share", "go test ./vgpu/nowhere", "go test -run TestNothing ./vgpu/share"} {
		if checkGo(strings.Fields(wrong)) == nil {
			t.Errorf("%s passes", wrong)
		}
	}
}

func checkGo(words []string) error {
	if len(words) < 2 {
		return nil
	}
	flags, ok := goFlags[words[1]]
	if !ok {
		return fmt.Errorf("go %s is not known", words[1])
	}
	tests := ""
	for i, word := range words[2:] {
		switch {
		case strings.HasPrefix(word, "./"):
			if err := checkPackage(word, tests); err != nil || words[1] == "run" {
				return err // the rest are arguments of the program
			}
		case strings.HasPrefix(word, "-") && !slices.Contains(flags, word):
			return fmt.Errorf("flag %s is not known", word)
		case word == "-run":
			tests = words[2:][i+1]
		}
	}
	return nil
}

// checkPackage returns an error if a package does not exist, or none of its tests matches the pattern.
func checkPackage(word, tests string) error {
	if below, all := strings.CutSuffix(word, "/..."); all {
		_, err := os.Stat(filepath.Join(root, below))
		return err
	}
	files, _ := filepath.Glob(filepath.Join(root, word, "*.go"))
	if len(files) == 0 {
		return fmt.Errorf("no package %s", word)
	}
	wanted, err := regexp.Compile(tests)
	if err != nil {
		return err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)`).FindAllSubmatch(text, -1) {
			if wanted.Match(m[1]) {
				return nil
			}
		}
	}
	if tests == "" {
		return nil
	}
	return fmt.Errorf("no test of %s matches %s", word, tests)
}

// TestDocker: the Dockerfile has the stages that the documented commands build.
func TestDocker(t *testing.T) {
	dockerfile := read(t, "Dockerfile")
	for _, c := range commands(t, "docker") {
		cmd, stage := &cobra.Command{Use: "docker"}, ""
		build := &cobra.Command{Use: "build", Args: cobra.ExactArgs(1), Run: func(*cobra.Command, []string) {}}
		build.Flags().StringVar(&stage, "target", "", "")
		build.Flags().StringP("tag", "t", "", "")
		build.Flags().StringArray("build-arg", nil, "")
		cmd.AddCommand(build)
		if err := c.Check(cmd); err != nil || !strings.Contains(dockerfile, fmt.Sprintf(" AS %s\n", stage)) {
			t.Errorf("%v: %v, or no stage %q", c, err, stage)
		}
	}
}
