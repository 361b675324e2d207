package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// nameKind is a kind of name, such as a label, that gshare defines for Kubernetes objects.
type nameKind struct {
	kind, title string
	fields      []string // required in the comment of a constant
}

var nameKinds = []nameKind{
	{"resource", "Resources", []string{"object", "written by", "values", "default", "example"}},
	{"annotation", "Annotations", []string{"object", "written by", "values", "default", "example"}},
	{"label", "Labels", []string{"object", "written by", "values", "default", "example"}},
	{"taint", "Taints", []string{"object", "written by", "values"}},
	{"condition", "Conditions", []string{"object", "written by", "values"}},
	{"CDI", "In CDI files", []string{"object", "written by", "values"}},
}

var (
	ownName = regexp.MustCompile(`^((serving\.)?gshare\.dev/[a-z][a-z-]*|gshare/[a-z][a-z-]*)$`)

	// mentioned finds names in manifests and pages. It does not match API versions, which have a digit after the name.
	mentioned = regexp.MustCompile(`(?:^|[^a-z0-9.-])((?:serving\.)?gshare\.dev/[a-z]+(?:-[a-z]+)*)(?:[^a-z0-9]|$)`)
)

// namesPage returns docs/annotations.md: the names that gshare reads from and writes to Kubernetes objects.
func namesPage(root string) (string, error) {
	source, err := readSource(root)
	if err != nil {
		return "", err
	}
	slo, err := nameOfManifest(root, "manifests/admission/slo.yaml")
	if err != nil {
		return "", err
	}
	names, err := source.names(slo)
	if err != nil {
		return "", err
	}
	if err := checkMentioned(root, names); err != nil {
		return "", err
	}
	return namesText(names), nil
}

// names returns the documented names, sorted. It returns an error for a name that lacks the required comment or is not a constant.
func (s sourceText) names(more ...entry) (names []entry, err error) {
	for _, l := range s.literals {
		if ownName.MatchString(l.name) {
			return nil, fmt.Errorf("%s: %q is a text and no constant with a comment", l.where, l.name)
		}
	}
	for _, c := range append(s.constants, more...) {
		kind := c.field("kind")
		at := slices.IndexFunc(nameKinds, func(k nameKind) bool { return k.kind == kind })
		switch mustBe := ownName.MatchString(c.name) || strings.HasPrefix(c.constant, "Condition"); {
		case at >= 0:
			err = errors.Join(err, c.require(nameKinds[at].fields))
			names = append(names, c)
		case mustBe:
			err = errors.Join(err, fmt.Errorf("%s: the comment of %s (%s) does not say what kind of name it is", c.where, c.constant, c.name))
		}
	}
	slices.SortStableFunc(names, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.field("object"), b.field("object")))
	})
	return names, err
}

func namesText(names []entry) string {
	var page strings.Builder
	page.WriteString("# Annotations, labels and conditions\n\nWritten from the source by `make reference`. Everything that gshare reads and writes on objects of " +
		"Kubernetes, beside the objects of its own kinds, which `kubectl explain gpufunction` describes. The values of annotations are texts: quote numbers. " +
		"How to use them: [use.md](use.md).\n")
	for _, k := range nameKinds {
		of := slices.Clone(names)
		of = slices.DeleteFunc(of, func(n entry) bool { return n.field("kind") != k.kind })
		fmt.Fprintf(&page, "\n## %s\n\n| Name | On | Written by | Meaning |\n|---|---|---|---|\n", k.title)
		for _, n := range of {
			page.WriteString(row("`"+n.name+"`", n.field("object"), n.field("written by"), meaning(n)))
		}
	}
	return page.String()
}

// meaning returns the text of a name, with its values, default and example.
func meaning(n entry) string {
	text := withoutSubject(n) + " Values: " + n.field("values") + "."
	if d := n.field("default"); d != "" {
		text += " Default: " + d + "."
	}
	if e := n.field("example"); e != "" {
		text += " Example: `" + e + "`"
	}
	return text
}

// withoutSubject returns the text of an entry without the name at its beginning, which the table has in a column of its own: "LabelX is the
// name." becomes "The name."
func withoutSubject(n entry) string {
	rest, found := strings.CutPrefix(n.text, "`"+n.name+"` ")
	if !found {
		return n.text
	}
	for _, verb := range []string{"is ", "says that "} {
		rest = strings.TrimPrefix(rest, verb)
	}
	return strings.ToUpper(rest[:1]) + rest[1:]
}

// nameOfManifest returns the name that the comment at the head of a manifest documents. No constant has that name.
func nameOfManifest(root, file string) (entry, error) {
	text, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		return entry{}, err
	}
	var comment strings.Builder
	for line := range strings.Lines(string(text)) {
		said, isComment := strings.CutPrefix(line, "#")
		if !isComment {
			break
		}
		comment.WriteString(strings.TrimPrefix(said, " "))
	}
	e := entry{where: file}
	e.text, e.fields = readComment(comment.String())
	e.name = e.fields["name"]
	e.constant = e.name
	if e.name == "" {
		return entry{}, fmt.Errorf("%s describes no name", file)
	}
	return e, nil
}

// checkMentioned returns an error if a manifest or a page of docs mentions a name that does not exist.
func checkMentioned(root string, names []entry) error {
	var wrong error
	check := func(file string) error {
		text, err := os.ReadFile(file)
		for _, m := range mentioned.FindAllStringSubmatch(string(text), -1) {
			if !slices.ContainsFunc(names, func(n entry) bool { return n.name == m[1] }) {
				wrong = errors.Join(wrong, fmt.Errorf("%s: nothing in the source is named %s", file, m[1]))
			}
		}
		return err
	}
	pages, err := filepath.Glob(filepath.Join(root, "docs/*.md"))
	if err != nil {
		return err
	}
	for _, file := range append(pages, filepath.Join(root, "README.md")) {
		if err := check(file); err != nil {
			return err
		}
	}
	err = filepath.WalkDir(filepath.Join(root, "manifests"), func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(name, ".yaml") {
			return err
		}
		return check(name)
	})
	return errors.Join(err, wrong)
}
