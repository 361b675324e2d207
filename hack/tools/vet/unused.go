package main

import (
	"go/token"

	"golang.org/x/tools/go/analysis"
	checker "honnef.co/go/tools/unused"
)

// unused reports what staticcheck's U1000 finds. Go vet checks a package together with the tests inside it, so what only these use is used.
var unused = &analysis.Analyzer{
	Name:     "unused",
	Doc:      "report unused code",
	Requires: []*analysis.Analyzer{checker.Analyzer.Analyzer},
	Run:      reportUnused,
}

func reportUnused(pass *analysis.Pass) (any, error) {
	result := pass.ResultOf[checker.Analyzer.Analyzer].(checker.Result)
	used := map[token.Position]bool{} // an object of several instances of a generic function is used if one of them is
	for _, o := range result.Used {
		used[o.Position] = true
	}
	files := map[string]*token.File{}
	for _, f := range pass.Files {
		file := pass.Fset.File(f.FileStart)
		files[file.Name()] = file
	}
	for _, o := range result.Unused {
		file := files[o.Position.Filename]
		if file == nil || used[o.Position] {
			continue
		}
		pass.Reportf(file.Pos(o.Position.Offset), "%s %s is unused (U1000)", o.Kind, o.Name)
	}
	return nil, nil
}
