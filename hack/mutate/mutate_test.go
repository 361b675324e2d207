package main

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
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

// TestTryAll runs the tests of a small module on mutations of it: ones that its test notices, that it cannot notice, that do not compile and
// that never end, in functions, methods and declarations.
func TestTryAll(t *testing.T) {
	files := map[string]string{
		"go.mod": "module example.org/m\n\ngo 1.26\n",
		"m.go": `package m

var first = 1

func Sum(n int, _ string, rest ...int) int {
	s := 0
	for i := first; i <= n; i++ {
		s += i
	}
	if n < 0 {
		s = 7
	}
	for _, r := range rest {
		s += r
	}
	return s
}

func Name() string { return "a" + "b" }

type Counter struct{ n int }

func (c *Counter) Add(int) { c.n += 2 }

func (Counter) Step() int { return 4 / 2 }

func Max[T int | int64](a, b T) T {
	if a > b {
		return a
	}
	return b
}
`,
		"m_test.go": `package m

import "testing"

func TestAll(t *testing.T) {
	c := Counter{}
	c.Add(0)
	if Sum(3, "", 2, 3) != 11 || c.n != c.Step() || Max(3, 2) != 3 {
		t.Error(Sum(3, "", 2, 3), c)
	}
}
`,
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
	found, err := packages[0].mutations()
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]verdict{
		"s += i -> s -= i": noticed, "s = 7 -> s = 8": survived, `"a" + "b" -> "a" - "b"`: invalid, "i++ -> i--": noticed, "s += r -> removed": invalid,
		"s += r -> s -= r": noticed, "first = 1 -> first = 2": noticed, "c.n += 2 -> c.n -= 2": noticed, "4 / 2 -> 4 * 2": noticed,
		"a > b -> a <= b": noticed, "a > b -> a >= b": survived,
	}
	got := map[string]verdict{}
	var all []mutation
	for _, m := range found {
		if want[m.before+" -> "+m.after] != "" {
			all = append(all, m)
		}
	}
	var mu sync.Mutex
	tryAll(context.Background(), all, options{workers: 2, timeout: 15 * time.Second}, func(m mutation, v verdict, _ string) {
		mu.Lock()
		defer mu.Unlock()
		got[m.before+" -> "+m.after] = v
	})
	if !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
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
