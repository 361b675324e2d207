package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strconv"
	"strings"
)

// mutation is one small change of one source file: the bytes from start to end are replaced by text.
type mutation struct {
	pack       *pack
	file       string // relative to the root of the module
	function   string // the function or method that contains it, or "var" for a declaration of the package
	line       int
	start, end int
	text       string
	combines   bool   // it lies in a function that can be replaced by a call of a mutated copy
	before     string // the smallest statement or expression around the change, on one line
	after      string
}

func (m mutation) String() string {
	return fmt.Sprintf("%s:%d %s: %s -> %s", m.file, m.line, m.function, m.before, m.after)
}

// id returns the identifier of the mutation in equivalent.txt: String without the line number, which any edit of the file above it changes.
func (m mutation) id() string {
	return fmt.Sprintf("%s %s: %s -> %s", m.file, m.function, m.before, m.after)
}

// mutations returns every mutation of a Go file, in the order of the source.
func mutations(file string, source []byte) ([]mutation, error) {
	fset := token.NewFileSet()
	parsed, err := parser.ParseFile(fset, file, source, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	f := &finder{fset: fset, source: source, file: file}
	for _, d := range parsed.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			f.function, f.results = functionName(d), [][]string{resultTypes(d.Type)}
			f.combines = d.Type.TypeParams == nil && d.Name.Name != "init"
			if d.Body != nil && d.Name.Name != "String" {
				ast.Inspect(d.Body, f.visit)
			}
		case *ast.GenDecl:
			if d.Tok == token.CONST || d.Tok == token.VAR {
				f.function, f.results, f.combines = "var", nil, false
				ast.Inspect(d, f.visit)
			}
		}
	}
	return f.found, nil
}

func readMutations(file string) ([]mutation, error) {
	source, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return mutations(file, source)
}

// finder collects the mutations of one file while it walks the syntax tree.
type finder struct {
	fset     *token.FileSet
	source   []byte
	file     string
	function string
	combines bool
	results  [][]string // result types of the enclosing functions, innermost last
	within   []ast.Node // the path to the current node
	found    []mutation
}

// operators lists what each operator is replaced by: the operator that differs at the boundary, and the opposite.
var operators = map[token.Token][]token.Token{
	token.LSS: {token.LEQ, token.GEQ}, token.LEQ: {token.LSS, token.GTR},
	token.GTR: {token.GEQ, token.LEQ}, token.GEQ: {token.GTR, token.LSS},
	token.EQL: {token.NEQ}, token.NEQ: {token.EQL},
	token.LAND: {token.LOR}, token.LOR: {token.LAND},
	token.ADD: {token.SUB}, token.SUB: {token.ADD}, token.MUL: {token.QUO}, token.QUO: {token.MUL}, token.REM: {token.MUL},
	token.ADD_ASSIGN: {token.SUB_ASSIGN}, token.SUB_ASSIGN: {token.ADD_ASSIGN},
	token.MUL_ASSIGN: {token.QUO_ASSIGN}, token.QUO_ASSIGN: {token.MUL_ASSIGN},
	token.INC: {token.DEC}, token.DEC: {token.INC},
}

func (f *finder) visit(n ast.Node) bool {
	if n == nil {
		last := len(f.within) - 1
		if _, ok := f.within[last].(*ast.FuncLit); ok {
			f.results = f.results[:len(f.results)-1]
		}
		f.within = f.within[:last]
		return true
	}
	f.within = append(f.within, n)
	switch n := n.(type) {
	case *ast.FuncLit:
		f.results = append(f.results, resultTypes(n.Type))
	case *ast.BinaryExpr:
		f.operator(n, n.OpPos, n.Op)
	case *ast.IncDecStmt:
		f.operator(n, n.TokPos, n.Tok)
		f.remove(n)
	case *ast.AssignStmt:
		f.operator(n, n.TokPos, n.Tok)
		if n.Tok != token.DEFINE {
			f.remove(n)
		}
	case *ast.ExprStmt, *ast.DeferStmt, *ast.SendStmt:
		f.remove(n)
	case *ast.BranchStmt:
		if n.Tok == token.BREAK || n.Tok == token.CONTINUE {
			f.remove(n)
		}
	case *ast.IfStmt:
		f.negate(n.Cond)
	case *ast.CallExpr:
		if isVerbosity(n) || isInfinity(n) {
			f.within = f.within[:len(f.within)-1]
			return false
		}
	case *ast.BasicLit:
		f.constant(n)
	case *ast.ReturnStmt:
		f.returned(n)
	}
	return true
}

func (f *finder) operator(n ast.Node, at token.Pos, op token.Token) {
	for _, other := range operators[op] {
		f.add(n, at, at+token.Pos(len(op.String())), other.String())
	}
}

// negate negates a condition, except a comparison, which a change of its operator negates already.
func (f *finder) negate(condition ast.Expr) {
	if b, ok := condition.(*ast.BinaryExpr); ok && b.Op != token.LAND && b.Op != token.LOR {
		return
	}
	f.add(condition, condition.Pos(), condition.End(), "!("+f.text(condition)+")")
}

// remove removes a statement. It leaves log messages alone: no rule depends on what they say.
func (f *finder) remove(n ast.Node) {
	if parent := len(f.within) - 2; parent >= 0 {
		switch f.within[parent].(type) {
		case *ast.BlockStmt, *ast.CaseClause, *ast.CommClause:
			if !isLog(n) {
				f.add(n, n.Pos(), n.End(), "{}")
			}
		}
	}
}

func isLog(n ast.Node) bool {
	s, ok := n.(*ast.ExprStmt)
	if !ok {
		return false
	}
	call, ok := s.X.(*ast.CallExpr)
	if !ok {
		return false
	}
	name, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	switch name.Sel.Name {
	case "Debug", "Info", "Warn", "Error", "InfoContext", "WarnContext", "ErrorContext", "InfoS", "ErrorS":
		return true
	}
	return false
}

// isVerbosity reports whether a call selects a logger's verbosity, as logger.V(2) does.
func isVerbosity(call *ast.CallExpr) bool {
	name, ok := call.Fun.(*ast.SelectorExpr)
	return ok && name.Sel.Name == "V" && len(call.Args) == 1
}

// isInfinity reports whether a call is one of math.Inf. Only the sign of its argument matters, so changing that by one means nothing.
func isInfinity(call *ast.CallExpr) bool {
	name, ok := call.Fun.(*ast.SelectorExpr)
	return ok && name.Sel.Name == "Inf"
}

// constant changes a number by one in each direction.
func (f *finder) constant(n *ast.BasicLit) {
	switch n.Kind {
	case token.INT:
		if v, err := strconv.ParseInt(n.Value, 10, 64); err == nil {
			f.add(n, n.Pos(), n.End(), strconv.FormatInt(v+1, 10))
			f.add(n, n.Pos(), n.End(), strconv.FormatInt(v-1, 10))
		}
	case token.FLOAT:
		if v, err := strconv.ParseFloat(n.Value, 64); err == nil {
			f.add(n, n.Pos(), n.End(), strconv.FormatFloat(v+1, 'f', -1, 64))
			f.add(n, n.Pos(), n.End(), strconv.FormatFloat(v-1, 'f', -1, 64))
		}
	}
}

// returned replaces each result of a return statement: an error by nil, a number by 0, and a truth value by its opposite.
func (f *finder) returned(n *ast.ReturnStmt) {
	if len(f.results) == 0 {
		return
	}
	types := f.results[len(f.results)-1]
	if len(types) != len(n.Results) {
		return
	}
	for i, r := range n.Results {
		old, zero := f.text(r), ""
		switch types[i] {
		case "error":
			zero = "nil"
		case "bool":
			if b, ok := r.(*ast.BinaryExpr); !ok || b.Op == token.LAND || b.Op == token.LOR {
				zero = "!(" + old + ")"
			}
		case "int", "int32", "int64", "uint64", "float64", "time.Duration":
			if _, ok := r.(*ast.BasicLit); !ok {
				zero = "0"
			}
		}
		if zero != "" && zero != old {
			f.add(n, r.Pos(), r.End(), zero)
		}
	}
}

// add records that the bytes from start to end, which lie within the node, are replaced by text.
func (f *finder) add(n ast.Node, start, end token.Pos, text string) {
	around := n
	if _, ok := n.(*ast.BasicLit); ok && len(f.within) > 1 {
		around = f.within[len(f.within)-2]
	}
	from, to := f.offset(around.Pos()), f.offset(around.End())
	m := mutation{
		file: f.file, function: f.function, line: f.fset.Position(start).Line, start: f.offset(start), end: f.offset(end), text: text,
		combines: f.combines,
	}
	m.before = oneLine(string(f.source[from:to]))
	m.after = oneLine(string(f.source[from:m.start]) + text + string(f.source[m.end:to]))
	if m.after == "{}" {
		m.after = "removed"
	}
	f.found = append(f.found, m)
}

func (f *finder) offset(p token.Pos) int { return f.fset.Position(p).Offset }

func (f *finder) text(n ast.Node) string {
	return string(f.source[f.offset(n.Pos()):f.offset(n.End())])
}

// oneLine joins the lines of a piece of source.
func oneLine(source string) string { return strings.Join(strings.Fields(source), " ") }

func functionName(d *ast.FuncDecl) string {
	if d.Recv == nil || len(d.Recv.List) == 0 {
		return d.Name.Name
	}
	t := d.Recv.List[0].Type
	if star, ok := t.(*ast.StarExpr); ok {
		t = star.X
	}
	if generic, ok := t.(*ast.IndexExpr); ok {
		t = generic.X
	}
	if name, ok := t.(*ast.Ident); ok {
		return name.Name + "." + d.Name.Name
	}
	return d.Name.Name
}

// resultTypes returns the types of a function's results as they are written, one for each result.
func resultTypes(t *ast.FuncType) []string {
	if t.Results == nil {
		return nil
	}
	var types []string
	for _, field := range t.Results.List {
		name := ""
		switch t := field.Type.(type) {
		case *ast.Ident:
			name = t.Name
		case *ast.SelectorExpr:
			if x, ok := t.X.(*ast.Ident); ok {
				name = x.Name + "." + t.Sel.Name
			}
		}
		for range max(1, len(field.Names)) {
			types = append(types, name)
		}
	}
	return types
}
