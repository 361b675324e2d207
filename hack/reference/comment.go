package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
)

// entry is a constant in the source that users meet, and what its comment says: a text, then an indented block of fields:
//
//	// LabelGPUs selects the nodes on which the agent runs.
//	//
//	//	kind: label
//	//	object: node
type entry struct {
	constant, name string // identifier in Go; its value, or the field "name" of the comment
	text           string
	fields         map[string]string
	where          string // file
	typed          string // the name of the constant's type, if it has one
}

// field returns the value of a field in the comment.
func (e *entry) field(name string) string { return e.fields[name] }

// require returns an error unless the comment has a text, all of the required fields, and no other fields except kind, name and the optional
// ones.
func (e *entry) require(fields []string, optional ...string) error {
	if e.text == "" {
		return fmt.Errorf("%s: %s has no comment", e.where, e.constant)
	}
	known := map[string]bool{"kind": true, "name": true}
	for _, f := range optional {
		known[f] = true
	}
	for _, f := range fields {
		if known[f] = true; e.fields[f] == "" {
			return fmt.Errorf("%s: the comment of %s has no field %q", e.where, e.constant, f)
		}
	}
	for f := range e.fields {
		if !known[f] {
			return fmt.Errorf("%s: the comment of %s has a field %q, which nothing reads", e.where, e.constant, f)
		}
	}
	return nil
}

var fieldLine = regexp.MustCompile(`^\t([a-z][a-z ]*): (.+)$`)

// readComment splits a comment into its text and the fields of its indented block. Lines with deeper indentation continue a field.
func readComment(comment string) (text string, fields map[string]string) {
	fields = map[string]string{}
	var lines []string
	last := ""
	for line := range strings.Lines(comment) {
		line = strings.TrimRight(line, "\n")
		switch m := fieldLine.FindStringSubmatch(line); {
		case m != nil:
			last = m[1]
			fields[last] = m[2]
		case last != "" && strings.HasPrefix(line, "\t "):
			fields[last] += " " + strings.TrimSpace(line)
		default:
			last, lines = "", append(lines, line)
		}
	}
	return strings.TrimSpace(strings.Join(lines, "\n")), fields
}

// sourceText holds what is read from Go files: constants, literals, and calls that record events.
type sourceText struct {
	constants []entry
	literals  []entry // string literals outside of constants

	recorded     []recordedEvent
	eventReasons []string // names of the constants in the variable eventReasons
}

// readSource reads all packages below the source folders, without their tests.
func readSource(root string) (sourceText, error) {
	var all sourceText
	for _, source := range sources {
		err := filepath.WalkDir(filepath.Join(root, source), func(name string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
			if err != nil {
				return err
			}
			short, _ := filepath.Rel(root, name) // cannot fail: name is below root
			all.read(file, filepath.ToSlash(short))
			return nil
		})
		if err != nil {
			return sourceText{}, err
		}
	}
	return all, nil
}

func (s *sourceText) read(file *ast.File, where string) {
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			if e, ok := recordedBy(n, where); ok {
				s.recorded = append(s.recorded, e)
			}
		case *ast.ValueSpec:
			s.readEventReasons(n)
		case *ast.GenDecl:
			if n.Tok == token.CONST {
				s.readConstants(n, where)
			}
			return n.Tok == token.VAR // do not visit literals in constants
		case *ast.Field:
			return n.Tag == nil
		case *ast.BasicLit:
			if text, ok := literal(n); ok {
				s.literals = append(s.literals, entry{name: text, where: where})
			}
		}
		return true
	})
}

func (s *sourceText) readEventReasons(v *ast.ValueSpec) {
	if v.Names[0].Name != "eventReasons" || len(v.Values) != 1 {
		return
	}
	for _, e := range v.Values[0].(*ast.CompositeLit).Elts {
		s.eventReasons = append(s.eventReasons, typeName(e.(*ast.KeyValueExpr).Value))
	}
}

func (s *sourceText) readConstants(d *ast.GenDecl, where string) {
	for _, spec := range d.Specs {
		v, isValue := spec.(*ast.ValueSpec)
		if !isValue || len(v.Names) != 1 || len(v.Values) != 1 {
			continue
		}
		value, isText := literal(v.Values[0])
		if !isText {
			continue
		}
		doc := v.Doc
		if doc == nil && !d.Lparen.IsValid() {
			doc = d.Doc
		}
		e := entry{constant: v.Names[0].Name, name: value, where: where, typed: typeName(v.Type)}
		e.text, e.fields = readComment(doc.Text())
		if other := e.fields["name"]; other != "" {
			e.name = other
		}
		if rest, found := strings.CutPrefix(e.text, e.constant+" "); found {
			e.text = "`" + e.name + "` " + rest
		}
		s.constants = append(s.constants, e)
	}
}
