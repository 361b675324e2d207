package layers_test

import (
	"fmt"
	"go/ast"
	"path"
	"slices"
	"strconv"
	"strings"
)

// clocks are the functions of package time that read the clock or wait for it. Packages of rules get the time as an argument
// instead.
var clocks = []string{"Now", "Since", "Until", "After", "AfterFunc", "Sleep", "Tick", "NewTimer", "NewTicker"}

// checkCalls finds clocks in packages of rules, and exits outside of commands and tools.
func checkCalls(s source) []string {
	var found []string
	own, _ := ringOf(s.folder())
	mayExit := within(s.path, "cmd", "hack", "test/controlplane")
	names := importNames(s.file)
	visit := func(node ast.Node) bool {
		selector, ok := node.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		receiver, ok := selector.X.(*ast.Ident)
		if !ok {
			return true
		}
		imported, function := names[receiver.Name], selector.Sel.Name
		line := s.fset.Position(selector.Pos()).Line
		if own == rules && !s.isTest() && imported == "time" && slices.Contains(clocks, function) {
			found = append(found, fmt.Sprintf("%s:%d: time.%s: a rule has no clock", s.path, line, function))
		}
		if !mayExit && exits(imported, function) {
			found = append(found, fmt.Sprintf("%s:%d: %s.%s: only cmd and hack may end the process", s.path, line, receiver.Name, function))
		}
		return true
	}
	for _, declaration := range s.file.Decls {
		if function, ok := declaration.(*ast.FuncDecl); ok && s.isTest() && function.Name.Name == "TestMain" {
			continue
		}
		ast.Inspect(declaration, visit)
	}
	return found
}

func exits(imported, function string) bool {
	switch imported {
	case "os":
		return function == "Exit"
	case "log":
		return strings.HasPrefix(function, "Fatal")
	case "k8s.io/klog/v2":
		return strings.HasPrefix(function, "Fatal") || strings.HasPrefix(function, "Exit")
	}
	return false
}

// importNames returns the import paths by the names that the file uses for them.
func importNames(file *ast.File) map[string]string {
	names := map[string]string{}
	for _, spec := range file.Imports {
		name, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			continue // cannot fail: the parser has checked the file
		}
		switch {
		case spec.Name != nil:
			names[spec.Name.Name] = name
		case name == "k8s.io/klog/v2":
			names["klog"] = name
		default:
			names[path.Base(name)] = name
		}
	}
	return names
}
