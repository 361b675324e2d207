// Package document reads the examples in the documentation: objects, queries, and commands as a user would type them.
package document

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
)

// Block is one example in the documentation: a fenced code block, or code in a line of text, whose Language is "inline".
type Block struct{ File, Language, Text string }

var (
	fence  = regexp.MustCompile("(?ms)^```([a-z]*)\n(.*?)^```$")
	inline = regexp.MustCompile("`([^`\n]+)`")
)

// Blocks returns the code examples of all documents in a checkout.
func Blocks(root string) (all []Block, err error) {
	files, err := filepath.Glob(filepath.Join(root, "docs/*.md"))
	if err != nil || len(files) < 5 {
		return nil, fmt.Errorf("%d documents, %w", len(files), err)
	}
	for _, name := range []string{"README.md", "manifests/README.md", "kind/README.md"} {
		files = append(files, filepath.Join(root, name))
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		name, err := filepath.Rel(root, file)
		if err != nil {
			return nil, err
		}
		all = append(all, parse(name, string(text))...)
	}
	return all, nil
}

func parse(name, text string) (all []Block) {
	for _, m := range fence.FindAllStringSubmatch(text, -1) {
		all = append(all, Block{name, m[1], m[2]})
	}
	for _, m := range inline.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		all = append(all, Block{name, "inline", m[1]})
	}
	return all
}
