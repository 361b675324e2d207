package main

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path"
	"regexp"
	"runtime"
	"slices"
	"strings"
)

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
