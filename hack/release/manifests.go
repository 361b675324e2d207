package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// manifests maps the files that users apply with kubectl to their kustomize bases.
var manifests = map[string]string{
	"gshare.yaml": "base", "gshare-serving.yaml": "serving", "gshare-monitoring.yaml": "monitoring", "gshare-older.yaml": "older",
}

// uninstallFile is the patch of the DaemonSet that makes agents remove what they have left on their nodes.
const uninstallFile = "gshare-uninstall.yaml"

// writeManifests writes the kustomize bases with the images of the release, and the patch for uninstalling.
func (r *release) writeManifests([]platform) error {
	for name, base := range manifests {
		objects, err := r.kustomize(base)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		head := fmt.Sprintf("# gshare %s: kubectl apply --server-side -f %s\n", r.version, name)
		if err := os.WriteFile(r.path(name), append([]byte(head), objects...), 0o644); err != nil {
			return err
		}
	}
	patch, err := os.ReadFile(filepath.Join(r.root, "manifests", "node", "uninstall.yaml"))
	if err != nil {
		return err
	}
	return os.WriteFile(r.path(uninstallFile), bytes.ReplaceAll(patch, []byte("manifests/node/uninstall.yaml"), []byte(uninstallFile)), 0o644)
}

// kustomize returns the objects of a base, with the images of the release.
func (r *release) kustomize(base string) ([]byte, error) {
	root, err := filepath.Abs(r.root)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "gshare-release-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	resource, err := filepath.Rel(dir, filepath.Join(root, "manifests", base))
	if err != nil {
		return nil, err
	}
	text := "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [" + filepath.ToSlash(resource) + "]\nimages:\n"
	for _, s := range specs {
		to := r.image(s.name)
		text += fmt.Sprintf("- {name: %s, newName: %s, newTag: %s}\n", s.name, strings.TrimSuffix(to, ":"+r.version), r.version)
	}
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(text), 0o644); err != nil {
		return nil, err
	}
	objects, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		return nil, err
	}
	return objects.AsYaml()
}

// writeChart writes the Helm chart twice: as helm package does, and as an artefact for registries.
func (r *release) writeChart([]platform) error {
	content := tree{}
	if err := content.addDir("gshare", filepath.Join(r.root, "manifests", "chart")); err != nil {
		return err
	}
	if err := r.editChart(content); err != nil {
		return err
	}
	if err := content.add("gshare/LICENSE", filepath.Join(r.root, "LICENSE"), 0o644); err != nil {
		return err
	}
	archive, err := content.tarGzip(r.time)
	if err != nil {
		return err
	}
	if err := os.WriteFile(r.path("gshare-"+r.chartVersion()+".tgz"), archive, 0o644); err != nil {
		return err
	}
	artefact, err := chartArtefact(content["gshare/Chart.yaml"].content, archive)
	if err != nil {
		return err
	}
	index := mutate.AppendManifests(mutate.IndexMediaType(empty.Index, types.OCIImageIndex), mutate.IndexAddendum{
		Add: artefact, Descriptor: v1.Descriptor{Annotations: map[string]string{refName: r.chartVersion()}},
	})
	return r.writeLayout("gshare-chart_"+r.version+".tar", index)
}

// chartVersion returns the version of the chart: a semantic version, without the leading v.
func (r *release) chartVersion() string { return strings.TrimPrefix(r.version, "v") }

// editChart sets the version and the images of the release in the chart.
func (r *release) editChart(content tree) error {
	for _, edit := range []struct{ file, from, to string }{
		{"gshare/Chart.yaml", `(?m)^version: .*$`, "version: " + r.chartVersion()},
		{"gshare/Chart.yaml", `(?m)^appVersion: .*$`, "appVersion: " + r.version},
		{"gshare/values.yaml", `gshare-(scheduler|node|controller|gateway):dev`, r.image("gshare-$1")},
		{"gshare/values.yaml", `(?m)^images: #.*$`, "images: # of this release"},
	} {
		f := content[edit.file]
		pattern := regexp.MustCompile(edit.from)
		if !pattern.Match(f.content) {
			return fmt.Errorf("%s has nothing like %s", edit.file, edit.from)
		}
		f.content = pattern.ReplaceAll(f.content, []byte(edit.to))
		content[edit.file] = f
	}
	return nil
}

// The media types that Helm gives the parts of a chart in a registry.
const (
	chartConfig  types.MediaType = "application/vnd.cncf.helm.config.v1+json"
	chartContent types.MediaType = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
)

// chartArtefact returns a chart as Helm pushes it: its metadata as the configuration, its archive as the layer.
func chartArtefact(metadata, archive []byte) (v1.Image, error) {
	config, err := yaml.YAMLToJSON(metadata)
	if err != nil {
		return nil, err
	}
	image, err := mutate.Append(mutate.MediaType(empty.Image, types.OCIManifestSchema1), mutate.Addendum{Layer: static.NewLayer(archive, chartContent), MediaType: chartContent})
	if err != nil {
		return nil, err
	}
	return withConfig(image, config), nil
}
