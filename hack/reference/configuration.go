package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
)

// section is a struct whose fields are keys of the agent's configuration file.
type section struct{ file, structure, title, prefix string }

var sections = []section{
	{"config.go", "Configuration", "Keys", ""},
	{"kubernetes.go", "Kubernetes", "Keys below kubernetes", "kubernetes."},
	{"kubernetes.go", "Swap", "Keys below kubernetes.swap", "kubernetes.swap."},
}

const configurationFolder = "vgpu/api/config/node"

func configurationPage(root string) (string, error) {
	var page strings.Builder
	page.WriteString("# Configuration of the node agent\n\nWritten from the source by `make reference`. The file is `node.yaml` of the overlay or chart, and of " +
		"`gshare-node --standalone`; it starts with `apiVersion: gshare.dev/v1alpha1` and `kind: NodeConfiguration`. Unknown keys are refused. Durations are such as `5ms`.\n")
	for _, s := range sections {
		keys, err := keysOf(filepath.Join(root, configurationFolder, s.file), s.structure)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&page, "\n## %s\n\n| Key | Type | Meaning |\n|---|---|---|\n", s.title)
		for _, k := range keys {
			page.WriteString(row("`"+s.prefix+k.name+"`", k.kind, k.text))
		}
	}
	return page.String(), nil
}

// key is a key of a configuration file.
type key struct{ name, field, kind, text string }

// keysOf returns the YAML keys of a struct's fields, with the fields' comments as text. It is an error if a field has none.
func keysOf(file, structure string) ([]key, error) {
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	var keys []key
	for _, f := range fieldsOf(parsed, structure) {
		tag, err := strconv.Unquote(f.Tag.Value)
		if err != nil {
			return nil, err
		}
		name, _, _ := strings.Cut(reflect.StructTag(tag).Get("json"), ",")
		k := key{name: name, field: f.Names[0].Name, kind: kindOf(f.Type), text: f.Doc.Text()}
		switch {
		case name == "apiVersion" || name == "kind":
			continue
		case k.text == "":
			return nil, fmt.Errorf("%s of %s has no comment", k.field, file)
		}
		keys = append(keys, k)
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("%s has no struct %s with keys", file, structure)
	}
	for i := range keys {
		keys[i].text = withKeyNames(keys[i].text, keys)
	}
	return keys, nil
}

// fieldsOf returns the fields of a struct in a file.
func fieldsOf(file *ast.File, structure string) (fields []*ast.Field) {
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.TypeSpec)
		if !ok || spec.Name.Name != structure {
			return true
		}
		if s, ok := spec.Type.(*ast.StructType); ok {
			fields = s.Fields.List
		}
		return false
	})
	return fields
}

// withKeyNames replaces the names of fields in a comment by those of their keys.
func withKeyNames(text string, keys []key) string {
	for _, k := range keys {
		text = regexp.MustCompile(`\b`+k.field+`\b`).ReplaceAllString(text, "`"+k.name+"`")
	}
	return text
}

// kindOf returns what a value of a Go type is in YAML.
func kindOf(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return kindOf(e.X)
	case *ast.ArrayType:
		return "list"
	case *ast.SelectorExpr:
		if e.Sel.Name == "Duration" {
			return "duration"
		}
		return "number"
	case *ast.Ident:
		switch {
		case e.Name == "string":
			return "text"
		case e.Name == "bool":
			return "true, false"
		case ast.IsExported(e.Name): // a struct of the package
			return "section"
		}
	}
	return "number"
}
