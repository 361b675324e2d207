package main

import (
	"fmt"
	"os"
	"path/filepath"

	"sigs.k8s.io/yaml"
)

// pluginArchive returns the name of the archive with the kubectl plugin for a platform.
func pluginArchive(p platform) string { return "kubectl-gshare_" + p.name() + ".tar.gz" }

// writeArchives writes two archives for each platform: one with the kubectl plugin, and one with what a machine without Kubernetes needs, if
// that was built.
func (r *release) writeArchives(platforms []platform) error {
	for _, p := range platforms {
		plugin := tree{}
		if err := plugin.add("kubectl-gshare", filepath.Join(p.dir, "gshare"), 0o755); err != nil {
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
			"selector": map[string]any{"matchLabels": map[string]any{"os": "linux", "arch": p.arch}},
			"uri":      sourceURL + "/releases/download/" + r.version + "/" + pluginArchive(p),
			"sha256":   sum,
			"bin":      "kubectl-gshare",
		})
	}
	spec["platforms"] = archives
	out, err := yaml.Marshal(plugin)
	if err != nil {
		return err
	}
	return os.WriteFile(r.path("krew-gshare.yaml"), out, 0o644)
}
