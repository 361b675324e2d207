// Command release makes everything that a user needs to install gshare, from programs that are already built: images, manifests, the Helm
// chart, archives for one machine and for krew, a bill of materials, the provenance and checksums. hack/release.sh builds the programs and
// calls it. The same programs give the same bytes.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"time"
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
	arch string // Go's name of it, such as amd64
	dir  string // of its programs
}

func (p platform) name() string { return "linux_" + p.arch }

// has reports whether a program was built for the platform.
func (p platform) has(program string) bool {
	_, err := os.Stat(filepath.Join(p.dir, program))
	return err == nil
}

// findPlatforms returns the platforms for which there are programs.
func (r *release) findPlatforms() ([]platform, error) {
	var found []platform
	for _, arch := range []string{"amd64", "arm64"} {
		p := platform{arch: arch}
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
