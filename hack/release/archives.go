package main

import (
	"debug/buildinfo"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/google/licensecheck"
	"golang.org/x/mod/module"
	"sigs.k8s.io/yaml"
)

// pluginArchive returns the name of the archive with the kubectl plugin for a platform.
func pluginArchive(p platform) string { return "kubectl-gshare_" + p.name() + ".tar.gz" }

// writeArchives writes two archives for each platform: one with the kubectl plugin, and one with what a machine without Kubernetes needs, if
// that was built.
func (r *release) writeArchives(platforms []platform) error {
	for _, p := range platforms {
		plugin := tree{}
		if err := plugin.add(p.executable("kubectl-gshare"), filepath.Join(p.dir, p.executable("gshare")), 0o755); err != nil {
			return err
		}
		if err := r.writeArchive(pluginArchive(p), plugin, p, []string{"gshare"}); err != nil {
			return err
		}
		node := specs[0]
		if !node.possible(p) {
			continue
		}
		machine, programs := tree{}, []string{}
		for at, source := range node.files {
			programs = append(programs, source)
			if err := machine.add(at, filepath.Join(p.dir, source), 0o755); err != nil {
				return err
			}
		}
		if err := machine.addDir("usr/lib/systemd/system", filepath.Join(r.root, "manifests", "systemd")); err != nil {
			return err
		}
		if err := r.writeArchive("gshare_"+r.version+"_"+p.name()+".tar.gz", machine, p, programs); err != nil {
			return err
		}
	}
	return nil
}

// writeArchive writes an archive, with the licences of the programs in it.
func (r *release) writeArchive(name string, content tree, p platform, programs []string) error {
	if err := r.addLicences(content, "usr/share/doc/gshare/licenses", p, programs); err != nil {
		return err
	}
	archive, err := content.tarGzip(r.time)
	if err != nil {
		return err
	}
	return os.WriteFile(r.path(name), archive, 0o644)
}

// writeKrew writes the krew manifest of the kubectl plugin, with the version and the checksum of each archive.
func (r *release) writeKrew(platforms []platform) error {
	text, err := os.ReadFile(filepath.Join(r.root, "manifests", "krew", "gshare.yaml"))
	if err != nil {
		return err
	}
	var plugin map[string]any
	if err := yaml.Unmarshal(text, &plugin); err != nil {
		return err
	}
	spec, ok := plugin["spec"].(map[string]any)
	if !ok {
		return fmt.Errorf("krew's manifest has no spec")
	}
	spec["version"] = r.version
	var archives []any
	for _, p := range platforms {
		sum, err := sha256Of(r.path(pluginArchive(p)))
		if err != nil {
			return err
		}
		archives = append(archives, map[string]any{
			"selector": map[string]any{"matchLabels": map[string]any{"os": p.os, "arch": p.arch}},
			"uri":      sourceURL + "/releases/download/" + r.version + "/" + pluginArchive(p),
			"sha256":   sum,
			"bin":      p.executable("kubectl-gshare"),
		})
	}
	spec["platforms"] = archives
	out, err := yaml.Marshal(plugin)
	if err != nil {
		return err
	}
	return os.WriteFile(r.path("krew-gshare.yaml"), out, 0o644)
}

// sourceURL is the address of the source repository.
const sourceURL = "https://github.com/gshare-dev/gshare"

// licenceFile matches the names of files with a module's licence, and of those that must be distributed with it.
var licenceFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents)([.-].*)?$`)

// termsFile matches the names of files with the licence itself.
var termsFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying)([.-].*)?$`)

// addLicences adds the licences of gshare, of Go, and of each module in one of the programs below a directory of the tree.
func (r *release) addLicences(t tree, dir string, p platform, programs []string) error {
	if err := t.add(path.Join(dir, "gshare", "LICENSE"), filepath.Join(r.root, "LICENSE"), 0o644); err != nil {
		return err
	}
	modules, err := p.modules(programs)
	if err != nil {
		return err
	}
	goRoot, err := goEnv("GOROOT")
	if err != nil {
		return err
	}
	if err := addLicencesOf(t, path.Join(dir, "go"), goRoot); err != nil {
		return err
	}
	for _, m := range modules {
		source, err := moduleDir(m)
		if err != nil {
			return err
		}
		if err := addLicencesOf(t, path.Join(dir, m.Path+"@"+m.Version), source); err != nil {
			return err
		}
	}
	return nil
}

// addLicencesOf adds the licence files in a directory. It returns an error if there are none.
func addLicencesOf(t tree, dir, source string) error {
	entries, err := os.ReadDir(source)
	if err != nil {
		return err
	}
	found := false
	for _, e := range entries {
		if e.IsDir() || !licenceFile.MatchString(e.Name()) {
			continue
		}
		found = true
		if err := t.add(path.Join(dir, e.Name()), filepath.Join(source, e.Name()), 0o644); err != nil {
			return err
		}
	}
	if !found {
		return fmt.Errorf("no licence in %s", source)
	}
	return nil
}

// modules returns the modules in the programs, without gshare itself, sorted by path. Libraries in C contain none.
func (p platform) modules(programs []string) ([]debug.Module, error) {
	found := map[string]debug.Module{}
	for _, program := range programs {
		if ext := filepath.Ext(program); ext == ".so" || ext == ".py" {
			continue
		}
		info, err := buildinfo.ReadFile(filepath.Join(p.dir, p.executable(program)))
		if err != nil {
			return nil, err
		}
		for _, m := range info.Deps {
			if m.Replace != nil {
				m = m.Replace
			}
			found[m.Path] = *m
		}
	}
	return slices.SortedFunc(maps.Values(found), func(a, b debug.Module) int { return strings.Compare(a.Path, b.Path) }), nil
}

// moduleDir returns the directory of a module's source in the module cache. It exists because a program was built from it.
func moduleDir(m debug.Module) (string, error) {
	cache, err := goEnv("GOMODCACHE")
	if err != nil {
		return "", err
	}
	escaped, err := module.EscapePath(m.Path)
	if err != nil {
		return "", err
	}
	version, err := module.EscapeVersion(m.Version)
	return filepath.Join(cache, escaped+"@"+version), err
}

func goEnv(name string) (string, error) {
	out, err := exec.Command("go", "env", name).Output()
	return strings.TrimSpace(string(out)), err
}

// licenceOf returns the SPDX expression for the licences in a directory of the tree, or NOASSERTION if none is recognised.
func licenceOf(t tree, dir string) string {
	ids := map[string]bool{}
	for name, f := range t {
		if path.Dir(name) != dir || !termsFile.MatchString(path.Base(name)) {
			continue
		}
		for _, m := range licensecheck.Scan(f.content).Match {
			if !m.IsURL {
				ids[m.ID] = true
			}
		}
	}
	if len(ids) == 0 {
		return "NOASSERTION"
	}
	return strings.Join(slices.Sorted(maps.Keys(ids)), " AND ")
}
