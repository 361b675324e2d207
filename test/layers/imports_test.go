package layers_test

import (
	"fmt"
	"strconv"
	"strings"
)

// ring is the distance of a package from the centre. Imports may point to the same ring or to a smaller one.
type ring int

const (
	rules     ring = iota // decisions: standard library and gonum, no I/O, no clock
	contracts             // how decisions are represented in Kubernetes objects, files and frames
	adapters              // Kubernetes, kubelet, sockets, NVML, HTTP
	wiring                // commands, tools and tests: everything
)

func (r ring) String() string { return [...]string{"rule", "contract", "adapter", "wiring"}[r] }

// rings maps folders to rings; the longest matching path decides. A new top-level folder needs an entry.
var rings = map[string]ring{
	"vgpu": rules, "serving/rules": rules, "serving/api": contracts, "lab": rules, "lab/audit": adapters, "lab/dataset": adapters, "lab/trace": adapters,
	"vgpu/api": contracts, "vgpu/kube": contracts, "manifests": contracts, "kind": contracts, "hook": contracts, "python": contracts,
	"plugins": adapters, "deviceplugin": adapters, "draplugin": adapters, "serving": adapters, "node": adapters,
	"cmd": wiring, "hack": wiring, "test": wiring,
}

func ringOf(folder string) (ring, bool) {
	for ; folder != "."; folder = parent(folder) {
		if r, ok := rings[folder]; ok {
			return r, true
		}
	}
	return 0, false
}

func parent(folder string) string {
	if i := strings.LastIndexByte(folder, '/'); i >= 0 {
		return folder[:i]
	}
	return "."
}

// Packages, including everything below them.
var (
	sharing     = []string{"vgpu", "plugins", "deviceplugin", "draplugin", "node", "hook"}
	noRules     = []string{"C", "log", "net", "os", "syscall", "testing", "unsafe"}
	noContracts = []string{"k8s.io/kubernetes", "k8s.io/client-go", "k8s.io/kube-scheduler"}
)

// checkImports checks the imports of one file against its ring. Tests may also import anything from outside the repository, helpers
// below test/, and the published data.
func checkImports(s source) []string {
	var found []string
	own, ok := ringOf(s.folder())
	if !ok {
		return []string{s.path + ": the folder belongs to no ring (see rings in test/layers)"}
	}
	for _, spec := range s.file.Imports {
		name, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			continue // cannot fail: the parser has checked the file
		}
		if why := forbidden(s, own, name); why != "" {
			found = append(found, fmt.Sprintf("%s: a %s package imports %s: %s", s.path, own, name, why))
		}
	}
	return found
}

func forbidden(s source, own ring, name string) string {
	if folder, ours := strings.CutPrefix(name, module); ours {
		other, ok := ringOf(folder)
		switch {
		case within(folder, "lab", "test") && !s.isTest() && !within(s.path, "lab", "test", "cmd/gshare-lab"):
			return "only tests and gshare-lab may import the laboratory or a fake"
		case !ok:
			return "it belongs to no ring"
		case s.isTest() && within(folder, "test", "lab/dataset", "lab/trace"):
			return ""
		case s.isTest():
			// tests may compare what must not be shipped together
		case within(s.path, "plugins") && within(folder, "node"), within(s.path, "node") && within(folder, "plugins"):
			return "scheduler and node meet in objects only"
		case within(s.path, sharing...) && within(folder, "serving"):
			return "sharing does not know serving"
		}
		if other > own {
			return "the arrow points up, to a " + other.String() + " package"
		}
		return ""
	}
	if s.isTest() {
		return ""
	}
	if within(name, "k8s.io/kubernetes") && !within(s.path, "cmd") && !within(s.path, "test") {
		return "only cmd and tests may"
	}
	standard := !strings.Contains(strings.SplitN(name, "/", 2)[0], ".")
	switch {
	case own == rules && standard && within(name, noRules...):
		return "a rule does no I/O"
	case own == rules && !standard && !within(name, "gonum.org/v1/gonum"):
		return "a rule stands on the standard library and gonum"
	case own == contracts && within(name, noContracts...):
		return "a contract talks to nobody"
	}
	return ""
}

func within(name string, folders ...string) bool {
	for _, folder := range folders {
		if name == folder || strings.HasPrefix(name, folder+"/") {
			return true
		}
	}
	return false
}
