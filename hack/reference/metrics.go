package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// metric is what the source says about a Prometheus metric.
type metric struct {
	name, kind, help string
	labels           []string
}

// exporter is a program, or a part of one, with the folders of the packages that define its metrics.
type exporter struct {
	title, text string
	folders     []string
}

var exporters = []exporter{
	{"gshare-scheduler", "At `/metrics` of the scheduler, with those of kube-scheduler.", []string{"plugins/sharing"}},
	{"gshare-node: the node", "At `/metrics` of the agent. A slice is a GPU or a MIG instance, a grant a container with a share.", []string{"node/agent"}},
	{"gshare-node: shares", "At `/metrics` of the agent. Those of a share have one series for each vGPU of a container; `gshare_node_grant_info` has the pod of each " +
		"container.", []string{"node/tokenserver/metrics"}},
	{"gshare-node: runs", "At `/metrics` of an agent of one machine (`gshare-node --standalone`).", []string{"node/standalone"}},
	{"gshare-node: simulated devices", "Only with `simulatedKernels`.", []string{"node/gpu/simulation"}},
	{"gshare-node: the proxy", "At `/metrics` of the proxy, the container that stays registered with the kubelet while the agent is replaced.", []string{"deviceplugin"}},
	{"gshare-gateway", "At `/metrics` of the gateway.", []string{"serving/gateway"}},
	{"gshare-controller and gshare serve", "At `/metrics` of the program.", []string{"serving/fleet"}},
	{"gshare-controller", "At `/metrics` of the controller, beside those of the table above.", []string{"serving/controller"}},
	{"gshare-descheduler", "At `/metrics` of the descheduler, beside its own: `descheduler_pods_evicted_total` with `strategy=\"GPURebalance\"` counts evictions.",
		[]string{"cmd/gshare-descheduler/internal/rebalancing"}},
	{"gshare-model", "At `/metrics` of the server.", []string{"cmd/gshare-model/internal/server"}},
}

// sources are the folders with the code of all programs.
var sources = []string{"cmd", "deviceplugin", "draplugin", "node", "plugins", "serving", "vgpu"}

func metricsPage(root string) (string, error) {
	found, err := findMetrics(root)
	if err != nil {
		return "", err
	}
	var page strings.Builder
	page.WriteString("# Metrics\n\nWritten from the source by `make reference`. Where they are served, to whom, and dashboard and alerts: [operate.md](operate.md).\n")
	for _, e := range exporters {
		var all []metric
		for _, folder := range e.folders {
			if len(found[folder]) == 0 {
				return "", fmt.Errorf("%s defines none", folder)
			}
			all = append(all, found[folder]...)
			delete(found, folder)
		}
		slices.SortFunc(all, func(a, b metric) int { return cmp.Compare(a.name, b.name) })
		fmt.Fprintf(&page, "\n## %s\n\n%s\n\n| Metric | Type | Labels | Meaning |\n|---|---|---|---|\n", e.title, e.text)
		for _, m := range all {
			page.WriteString(row("`"+m.name+"`", m.kind, strings.Join(m.labels, ", "), m.help))
		}
	}
	for folder := range found {
		return "", fmt.Errorf("%s defines metrics and is of no exporter", folder)
	}
	return page.String(), nil
}

// findMetrics returns the metrics that are defined in each folder of the repository, by its path.
func findMetrics(root string) (map[string][]metric, error) {
	found := map[string][]metric{}
	for _, source := range sources {
		err := filepath.WalkDir(filepath.Join(root, source), func(name string, entry fs.DirEntry, err error) error {
			if err != nil || !entry.IsDir() {
				return err
			}
			metrics, err := metricsOf(name)
			if len(metrics) > 0 {
				folder, _ := filepath.Rel(root, name) // cannot fail: name is below root
				found[filepath.ToSlash(folder)] = metrics
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}

// metricsOf returns the metrics that the package in a folder defines.
func metricsOf(folder string) ([]metric, error) {
	names, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		return nil, err
	}
	p := metricsPackage{helpers: map[string]helper{}, lists: map[string][]string{}}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			return nil, err
		}
		p.files = append(p.files, file)
	}
	p.readHelpers()
	for _, file := range p.files {
		ast.Inspect(file, p.visit)
	}
	return p.found, p.err
}

// helper is a function in the package that creates a metric's description from its first two parameters, name and help.
type helper struct {
	prefix string // put before the name
	labels []string
}

// metricsPackage reads the definitions of metrics from a parsed package.
type metricsPackage struct {
	files   []*ast.File
	helpers map[string]helper
	lists   map[string][]string // lists of labels in variables of the package
	found   []metric
	err     error
}

// readHelpers finds the lists of labels, and the helpers. It looks twice, because one helper may call another.
func (p *metricsPackage) readHelpers() {
	for range 2 {
		for _, file := range p.files {
			for _, d := range file.Decls {
				switch d := d.(type) {
				case *ast.GenDecl:
					p.readLists(d)
				case *ast.FuncDecl:
					p.readHelper(d)
				}
			}
		}
	}
}

func (p *metricsPackage) readLists(d *ast.GenDecl) {
	for _, spec := range d.Specs {
		v, ok := spec.(*ast.ValueSpec)
		for i := 0; ok && i < len(v.Values) && len(v.Values) == len(v.Names); i++ {
			if list, ok := v.Values[i].(*ast.CompositeLit); ok {
				if labels, ok := p.strings(list.Elts); ok {
					p.lists[v.Names[i].Name] = labels
				}
			}
		}
	}
}

func (p *metricsPackage) readHelper(f *ast.FuncDecl) {
	ast.Inspect(f, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || f.Recv != nil || len(call.Args) < 2 {
			return true
		}
		inner, known := p.helpers[called(call)]
		if !known && called(call) != "NewDesc" {
			return true
		}
		prefix, ofParameter := prefixOfName(call.Args[0])
		if ofParameter {
			labels, _ := p.strings(call.Args[2:])
			p.helpers[f.Name.Name] = helper{inner.prefix + prefix, append(slices.Clone(inner.labels), labels...)}
		}
		return true
	})
}

// prefixOfName returns what comes before the parameter name in an expression: nothing in name, and prefix in "prefix"+name.
func prefixOfName(e ast.Expr) (prefix string, ofParameter bool) {
	if sum, ok := e.(*ast.BinaryExpr); ok {
		text, isText := literal(sum.X)
		_, isName := sum.Y.(*ast.Ident)
		return text, isText && isName
	}
	_, isName := e.(*ast.Ident)
	return "", isName
}

// visit adds the metric that a call or a composite literal defines.
func (p *metricsPackage) visit(n ast.Node) bool {
	call, ok := n.(*ast.CallExpr)
	if !ok || len(call.Args) == 0 {
		return true
	}
	if m, ok := p.ofOptions(call); ok {
		p.add(m)
		return true
	}
	h, known := p.helpers[called(call)]
	if !known && called(call) != "NewDesc" || len(call.Args) < 2 {
		return true
	}
	name, isText := literal(call.Args[0])
	help, _ := literal(call.Args[1])
	if !isText {
		return true // in a helper
	}
	m := metric{name: h.prefix + name, help: help, kind: "gauge", labels: h.labels}
	if strings.HasSuffix(name, "_total") {
		m.kind = "counter"
	}
	if known {
		own, _ := p.strings(call.Args[2:])
		m.labels = append(slices.Clone(h.labels), own...)
	} else if m.labels, ok = p.labels(call.Args[2]); !ok {
		p.err = fmt.Errorf("%s: its labels cannot be read", name)
	}
	p.add(m)
	return true
}

// ofOptions returns the metric that a call such as NewCounterVec(CounterOpts{Name: ..., Help: ...}, labels) defines.
func (p *metricsPackage) ofOptions(call *ast.CallExpr) (m metric, ok bool) {
	options := call.Args[0]
	if address, isAddress := options.(*ast.UnaryExpr); isAddress {
		options = address.X
	}
	literalOptions, isLiteral := options.(*ast.CompositeLit)
	if !isLiteral {
		return m, false
	}
	kind, isOptions := strings.CutSuffix(typeName(literalOptions.Type), "Opts")
	if !isOptions || !slices.Contains([]string{"Counter", "Gauge", "Histogram", "Summary"}, kind) {
		return m, false
	}
	m.kind = strings.ToLower(kind)
	for _, e := range literalOptions.Elts {
		pair, ok := e.(*ast.KeyValueExpr)
		if !ok {
			continue
		}
		switch typeName(pair.Key) {
		case "Name":
			m.name, _ = literal(pair.Value)
		case "Help":
			m.help, _ = literal(pair.Value)
		}
	}
	if strings.HasSuffix(called(call), "Vec") {
		if m.labels, ok = p.labels(call.Args[1]); !ok {
			p.err = fmt.Errorf("%s: its labels cannot be read", m.name)
		}
	}
	return m, true
}

func (p *metricsPackage) add(m metric) {
	if !strings.HasPrefix(m.name, "gshare_") || m.help == "" {
		p.err = fmt.Errorf("%q: name or help is no constant text", m.name)
	}
	p.found = append(p.found, m)
}

// labels returns the labels in an expression: nil, a list, a variable that holds a list, or an append to one of these.
func (p *metricsPackage) labels(e ast.Expr) ([]string, bool) {
	switch e := e.(type) {
	case *ast.Ident:
		list, known := p.lists[e.Name]
		return list, known || e.Name == "nil"
	case *ast.CompositeLit:
		return p.strings(e.Elts)
	case *ast.CallExpr:
		if called(e) == "append" {
			first, known := p.labels(e.Args[0])
			rest, ok := p.strings(e.Args[1:])
			return append(slices.Clone(first), rest...), known && ok
		}
	}
	return nil, false
}

func (p *metricsPackage) strings(all []ast.Expr) (texts []string, ok bool) {
	for _, e := range all {
		text, ok := literal(e)
		if !ok {
			return nil, false
		}
		texts = append(texts, text)
	}
	return texts, true
}

// literal returns the value of a string literal, or of several that are concatenated.
func literal(e ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		return text, err == nil && e.Kind == token.STRING
	case *ast.BinaryExpr:
		left, ok := literal(e.X)
		right, alsoOK := literal(e.Y)
		return left + right, ok && alsoOK
	}
	return "", false
}

// called returns the name of a called function without its package.
func called(call *ast.CallExpr) string { return typeName(call.Fun) }

func typeName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	}
	return ""
}
