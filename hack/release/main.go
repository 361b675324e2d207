// Command release makes everything that a user needs to install gshare, from programs that are already built: images, manifests, the Helm
// chart, archives for one machine and for krew, a bill of materials, the provenance and checksums. hack/release.sh builds the programs and
// calls it. The same programs give the same bytes.
package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

func main() {
	r := release{}
	var seconds int64
	flag.StringVar(&r.version, "version", "", "version of the release, such as v0.1.0")
	flag.StringVar(&r.commit, "commit", "", "commit that the programs were built from")
	flag.Int64Var(&seconds, "time", 0, "time of everything in the release, in seconds since 1970: that of the commit")
	flag.StringVar(&r.registry, "registry", "", "registry and path of the images; none: images are imported into the nodes")
	flag.StringVar(&r.programs, "programs", "", "directory with one of programs for each platform: linux_amd64/gshare-node")
	flag.StringVar(&r.root, "root", ".", "checkout of the repository")
	flag.StringVar(&r.out, "out", "", "empty directory to write to")
	flag.Parse()
	r.time = time.Unix(seconds, 0).UTC()
	if err := r.write(); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// release says what to release, from which files, and where to write it.
type release struct {
	version, commit, registry string
	time                      time.Time
	programs, root, out       string
}

var versionPattern = regexp.MustCompile(`^v\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$`)

// write writes the files of the release. Checksums come last: they cover all others.
func (r *release) write() error {
	if !versionPattern.MatchString(r.version) {
		return fmt.Errorf("version %q is not of the form v1.2.3", r.version)
	}
	platforms, err := r.findPlatforms()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return err
	}
	for _, part := range []func([]platform) error{
		r.writeImages, r.writeManifests, r.writeChart, r.writeArchives, r.writeKrew, r.writeMaterials, r.writeProvenance, r.writeChecksums,
	} {
		if err := part(platforms); err != nil {
			return err
		}
	}
	return nil
}

// platform is an operating system and an architecture, with the programs that were built for it.
type platform struct {
	os   string // Go's name of it, such as linux
	arch string // such as amd64
	dir  string // of its programs
}

func (p platform) name() string { return p.os + "_" + p.arch }

// executable returns the name of a program's file.
func (p platform) executable(program string) string {
	if p.os == "windows" {
		return program + ".exe"
	}
	return program
}

// has reports whether a program was built for the platform.
func (p platform) has(program string) bool {
	_, err := os.Stat(filepath.Join(p.dir, p.executable(program)))
	return err == nil
}

// findPlatforms returns the platforms for which there are programs.
func (r *release) findPlatforms() ([]platform, error) {
	var found []platform
	for _, p := range []platform{
		{os: "linux", arch: "amd64"}, {os: "linux", arch: "arm64"}, {os: "darwin", arch: "amd64"}, {os: "darwin", arch: "arm64"}, {os: "windows", arch: "amd64"},
	} {
		p.dir = filepath.Join(r.programs, p.name())
		if p.has("gshare") {
			found = append(found, p)
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("no programs in %s", r.programs)
	}
	return found, nil
}

// path returns the path of a file of the release.
func (r *release) path(name string) string { return filepath.Join(r.out, name) }

// image returns the reference of an image of the release.
func (r *release) image(name string) string {
	if r.registry != "" {
		name = r.registry + "/" + name
	}
	return name + ":" + r.version
}

// The files that document what the release is made of.
const (
	materialsFile  = "gshare.spdx.json"
	provenanceFile = "gshare.provenance.json"
	checksumsFile  = "SHA256SUMS"
)

// sha256Of returns the checksum of a file in hexadecimal digits.
func sha256Of(path string) (string, error) {
	content, err := os.ReadFile(path)
	return fmt.Sprintf("%x", sha256.Sum256(content)), err
}

// checksums returns the checksum of each file of the release, by name, except for the given files.
func (r *release) checksums(without ...string) (map[string]string, error) {
	entries, err := os.ReadDir(r.out)
	if err != nil {
		return nil, err
	}
	sums := map[string]string{}
	for _, e := range entries {
		if slices.Contains(without, e.Name()) {
			continue
		}
		if sums[e.Name()], err = sha256Of(r.path(e.Name())); err != nil {
			return nil, err
		}
	}
	return sums, nil
}

// writeChecksums writes the checksums of all other files in the format of sha256sum --check.
func (r *release) writeChecksums([]platform) error {
	sums, err := r.checksums(checksumsFile)
	if err != nil {
		return err
	}
	var out strings.Builder
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		fmt.Fprintf(&out, "%s  %s\n", sums[name], name)
	}
	return os.WriteFile(r.path(checksumsFile), []byte(out.String()), 0o644)
}

// writeJSON writes a file of the release that other programs read.
func (r *release) writeJSON(name string, value any) error {
	text, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(r.path(name), append(text, '\n'), 0o644)
}

type object = map[string]any

var notOfIdentifiers = regexp.MustCompile(`[^0-9A-Za-z.-]`)

// writeMaterials writes the bill of materials in the format SPDX 2.3: gshare, Go's standard library, and the modules in any of the programs.
func (r *release) writeMaterials(platforms []platform) error {
	var programs []string
	for _, s := range specs {
		programs = append(programs, slices.Sorted(maps.Values(s.files))...)
	}
	licences := tree{}
	packages := []object{spdxPackage("gshare", "gshare", r.version, "Apache-2.0", "git+"+sourceURL+"@"+r.commit)}
	relations := []object{relation("SPDXRef-DOCUMENT", "DESCRIBES", "gshare")}
	listed := map[string]bool{}
	for _, p := range platforms {
		present := slices.DeleteFunc(slices.Clone(programs), func(program string) bool { return !p.has(program) })
		if err := r.addLicences(licences, "", p, present); err != nil {
			return err
		}
		modules, err := p.modules(present)
		if err != nil {
			return err
		}
		for _, m := range modules {
			id := "module-" + notOfIdentifiers.ReplaceAllString(m.Path+"-"+m.Version, "-")
			if listed[id] {
				continue
			}
			listed[id] = true
			one := spdxPackage(id, m.Path, m.Version, licenceOf(licences, m.Path+"@"+m.Version), "NOASSERTION")
			one["externalRefs"] = []object{{
				"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": "pkg:golang/" + m.Path + "@" + m.Version,
			}}
			packages = append(packages, one)
			relations = append(relations, relation("SPDXRef-gshare", "DEPENDS_ON", id))
		}
	}
	packages = append(packages, spdxPackage("go", "go", strings.TrimPrefix(runtime.Version(), "go"), "BSD-3-Clause", "NOASSERTION"))
	relations = append(relations, relation("SPDXRef-gshare", "DEPENDS_ON", "go"))
	return r.writeJSON(materialsFile, object{
		"spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT", "name": "gshare-" + r.version,
		"documentNamespace": sourceURL + "/releases/download/" + path.Join(r.version, materialsFile) + "#" + r.commit,
		"creationInfo":      object{"created": r.time.Format("2006-01-02T15:04:05Z"), "creators": []string{"Tool: gshare-make-release"}},
		"packages":          packages, "relationships": relations,
	})
}

func spdxPackage(id, name, version, licence, location string) object {
	return object{
		"SPDXID": "SPDXRef-" + id, "name": name, "versionInfo": version, "downloadLocation": location, "filesAnalyzed": false,
		"licenseConcluded": "NOASSERTION", "licenseDeclared": licence, "copyrightText": "NOASSERTION",
	}
}

func relation(from, kind, to string) object {
	return object{"spdxElementId": from, "relationshipType": kind, "relatedSpdxElement": "SPDXRef-" + to}
}

// writeProvenance writes from what and how the files were made, in the format SLSA 1.0. It does not sign that: whoever publishes the release
// does.
func (r *release) writeProvenance([]platform) error {
	sums, err := r.checksums(provenanceFile, checksumsFile)
	if err != nil {
		return err
	}
	var subjects []object
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		subjects = append(subjects, object{"name": name, "digest": object{"sha256": sums[name]}})
	}
	return r.writeJSON(provenanceFile, object{
		"_type": "https://in-toto.io/Statement/v1", "subject": subjects, "predicateType": "https://slsa.dev/provenance/v1",
		"predicate": object{
			"buildDefinition": object{
				"buildType":          sourceURL + "/blob/main/hack/release.sh",
				"externalParameters": object{"version": r.version, "registry": r.registry},
				"internalParameters": object{"go": runtime.Version()},
				"resolvedDependencies": []object{{
					"uri": "git+" + sourceURL + "@refs/tags/" + r.version, "digest": object{"gitCommit": r.commit},
				}},
			},
			"runDetails": object{"builder": object{"id": sourceURL + "/blob/main/hack/release.sh"}},
		},
	})
}

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
