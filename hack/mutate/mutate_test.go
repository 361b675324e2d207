package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestMutations compares the mutations of a small file with a list written by hand.
func TestMutations(t *testing.T) {
	source := `package p

const limit = 3

func (t *T) over(n int) (int, error) {
	log.Info("asked", "n", n)
	if n > limit && t.strict {
		t.count++
		return n, fmt.Errorf("over %d", limit)
	}
	return 2 * n, nil
}
`
	found, err := mutations("p.go", []byte(source))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range found {
		got = append(got, m.String())
	}
	want := []string{
		`p.go:3 var: limit = 3 -> limit = 4`,
		`p.go:3 var: limit = 3 -> limit = 2`,
		`p.go:7 T.over: n > limit && t.strict -> !(n > limit && t.strict)`,
		`p.go:7 T.over: n > limit && t.strict -> n > limit || t.strict`,
		`p.go:7 T.over: n > limit -> n >= limit`,
		`p.go:7 T.over: n > limit -> n <= limit`,
		`p.go:8 T.over: t.count++ -> t.count--`,
		`p.go:8 T.over: t.count++ -> removed`,
		`p.go:9 T.over: return n, fmt.Errorf("over %d", limit) -> return 0, fmt.Errorf("over %d", limit)`,
		`p.go:9 T.over: return n, fmt.Errorf("over %d", limit) -> return n, nil`,
		`p.go:11 T.over: return 2 * n, nil -> return 0, nil`,
		`p.go:11 T.over: 2 * n -> 2 / n`,
		`p.go:11 T.over: 2 * n -> 3 * n`,
		`p.go:11 T.over: 2 * n -> 1 * n`,
	}
	if g, w := strings.Join(got, "\n"), strings.Join(want, "\n"); g != w {
		t.Errorf("got\n%s\nwant\n%s", g, w)
	}
}

// TestTry runs the tests of a small module on mutations of it: one that its test notices, one that it cannot notice, one that does not
// compile and one that never ends.
func TestTry(t *testing.T) {
	files := map[string]string{
		"go.mod":    "module example.org/m\n\ngo 1.26\n",
		"m.go":      "package m\n\nfunc Sum(n int) int {\n\ts := 0\n\tfor i := 1; i <= n; i++ {\n\t\ts += i\n\t}\n\tif n < 0 {\n\t\ts = 7\n\t}\n\treturn s\n}\n\nfunc Name() string { return \"a\" + \"b\" }\n",
		"m_test.go": "package m\n\nimport \"testing\"\n\nfunc TestSum(t *testing.T) {\n\tif Sum(3) != 6 {\n\t\tt.Error(Sum(3))\n\t}\n}\n",
	}
	t.Chdir(t.TempDir())
	for name, text := range files {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	packages, err := listPackages(context.Background(), []string{"./..."})
	if err != nil || len(packages) != 1 {
		t.Fatal(packages, err)
	}
	all, err := packages[0].mutations()
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]verdict{
		"s += i -> s -= i": noticed, "s = 7 -> s = 8": survived, `"a" + "b" -> "a" - "b"`: invalid, "i++ -> i--": noticed,
	}
	for _, m := range all {
		w, ok := want[m.before+" -> "+m.after]
		if !ok {
			continue
		}
		delete(want, m.before+" -> "+m.after)
		if got, why := try(context.Background(), m, 2*time.Second); got != w {
			t.Errorf("%s: %s (%s), want %s", m, got, why, w)
		}
	}
	if len(want) > 0 {
		t.Errorf("not found: %v", want)
	}
	if source, err := os.ReadFile("m.go"); err != nil || string(source) != files["m.go"] {
		t.Error("the source file was changed")
	}
}

// TestEquivalents checks that every mutation listed as equivalent still exists in the tree.
func TestEquivalents(t *testing.T) {
	t.Chdir(filepath.Join("..", ".."))
	known, err := readEquivalents("hack/mutate/equivalent.txt")
	if err != nil {
		t.Fatal(err)
	}
	exist := map[string]map[string]bool{}
	for id := range known {
		file, _, _ := strings.Cut(id, " ")
		if exist[file] == nil {
			exist[file] = map[string]bool{}
			found, err := readMutations(file)
			if err != nil {
				t.Error(err)
			}
			for _, m := range found {
				exist[file][m.id()] = true
			}
		}
		if !exist[file][id] {
			t.Errorf("equivalent.txt lists what is not in the tree any more: %s", id)
		}
	}
}
