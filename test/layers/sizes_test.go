package layers_test

import (
	"fmt"
	"go/ast"
	"strings"
	"testing"
)

const (
	maxMethods = 25
	maxFields  = 15
)

// typeSize counts what a type declares.
type typeSize struct {
	comment         string
	methods, fields int
}

// checkSizes requires that the comment of a type with many methods (or fields) contains the word "methods" (or "fields"), with the
// reason why there are so many.
func checkSizes(sources []source) []string {
	types := map[string]*typeSize{} // by folder and name
	sizeOf := func(s source, name string) *typeSize {
		key := s.folder() + "." + name
		if types[key] == nil {
			types[key] = &typeSize{}
		}
		return types[key]
	}
	for _, s := range sources {
		if s.isTest() {
			continue
		}
		for _, declaration := range s.file.Decls {
			switch d := declaration.(type) {
			case *ast.FuncDecl:
				if d.Recv != nil {
					sizeOf(s, receiver(d.Recv.List[0].Type)).methods++
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					if named, ok := spec.(*ast.TypeSpec); ok {
						size := sizeOf(s, named.Name.Name)
						size.comment = d.Doc.Text() + named.Doc.Text()
						if structure, ok := named.Type.(*ast.StructType); ok {
							size.fields = structure.Fields.NumFields()
						}
					}
				}
			}
		}
	}
	var found []string
	for name, size := range types {
		if size.methods > maxMethods && !strings.Contains(size.comment, "method") {
			found = append(found, fmt.Sprintf("%s: %d methods, more than %d: split it, or say in its comment why it has so many methods",
				name, size.methods, maxMethods))
		}
		if size.fields > maxFields && !strings.Contains(size.comment, "fields") {
			found = append(found, fmt.Sprintf("%s: %d fields, more than %d: split it, or say in its comment why it has so many fields",
				name, size.fields, maxFields))
		}
	}
	return found
}

// receiver returns the name of the type of a method's receiver.
func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}

func TestSizes(t *testing.T) {
	methods := func(from, to int) (text string) {
		for i := from; i < to; i++ {
			text += fmt.Sprintf("func (t *T) m%d() {}\n", i)
		}
		return text
	}
	fields := func(n int) string { return "struct { E; a" + strings.Repeat(", a", n-2) + " int }\n" }
	for name, test := range map[string]struct {
		files map[string]string
		want  string
	}{
		"few":                  {map[string]string{"a/a.go": "type T " + fields(maxFields) + methods(0, maxMethods)}, ""},
		"many methods":         {map[string]string{"a/a.go": "type T int\n" + methods(0, 20), "a/b.go": methods(20, maxMethods+1)}, "26 methods"},
		"many fields":          {map[string]string{"a/a.go": "// T has all.\ntype T " + fields(maxFields+1)}, "16 fields"},
		"many fields, group":   {map[string]string{"a/a.go": "type (\n\t// T has all.\n\tT " + fields(maxFields+1) + ")"}, "16 fields"},
		"a reason":             {map[string]string{"a/a.go": "// T has many methods, one for each x.\ntype T int\n" + methods(0, 40)}, ""},
		"a reason for another": {map[string]string{"a/a.go": "// T has many methods.\ntype T " + fields(maxFields+1)}, "16 fields"},
		"generic type":         {map[string]string{"a/a.go": "type T[X any] int\n" + strings.ReplaceAll(methods(0, 30), "*T", "T[X]")}, "30 methods"},
		"other packages":       {map[string]string{"a/a.go": "type T int\n" + methods(0, 20), "b/a.go": "type T int\n" + methods(0, 20)}, ""},
		"test":                 {map[string]string{"a/a_test.go": "type T int\n" + methods(0, 40)}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var sources []source
			for file, content := range test.files {
				sources = append(sources, parse(t, file, "package a\n"+content))
			}
			expect(t, checkSizes(sources), test.want)
		})
	}
}
