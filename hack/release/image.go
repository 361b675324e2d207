package main

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// imageSpec describes an image of the release. The image's entrypoint is the program of the same name.
type imageSpec struct {
	name  string
	files map[string]string // maps paths in the image to files in the directory of the platform's programs
	root  bool              // it runs as root and contains the directory "root" of the programs, a C library
}

// specs describes the images, which are the same as those of the Dockerfile.
var specs = []imageSpec{
	{
		name: "gshare-node", root: true,
		files: map[string]string{
			"usr/local/bin/gshare-node": "gshare-node", "usr/local/bin/gshare": "gshare",
			"usr/lib/gshare/libgshare.so": "libgshare.so", "usr/lib/gshare/libgshare-mps.so": "libgshare-mps.so",
			"usr/lib/gshare/gshare-drain":       "gshare-drain",
			"usr/lib/gshare/libgshare_store.so": "libgshare_store.so", "usr/lib/gshare/gshare_store.py": "gshare_store.py",
			"usr/lib/gshare/gshare_safetensors.py": "gshare_safetensors.py",
		},
	},
	{name: "gshare-scheduler", files: map[string]string{"usr/local/bin/gshare-scheduler": "gshare-scheduler"}},
	{name: "gshare-controller", files: map[string]string{"usr/local/bin/gshare-controller": "gshare-controller"}},
	{name: "gshare-gateway", files: map[string]string{"usr/local/bin/gshare-gateway": "gshare-gateway"}},
}

// nobody is the user and group as which the other images run.
const nobody = "65532:65532"

// searchPath is the search path in an image. It includes /usr/bin, to which NVIDIA's container runtime adds its programs.
const searchPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// possible reports whether everything that the image needs was built for a platform. Others than Linux get the kubectl plugin only.
func (s *imageSpec) possible(p platform) bool {
	if p.os != "linux" {
		return false
	}
	for _, source := range s.files {
		if !p.has(source) {
			return false
		}
	}
	return !s.root || p.has("root")
}

// layer returns the files of the image: programs, the C library if it needs one, and the licences of all that the programs contain.
func (s *imageSpec) layer(r *release, p platform) (tree, error) {
	content := tree{}
	for at, source := range s.files {
		if err := content.add(at, filepath.Join(p.dir, source), 0o755); err != nil {
			return nil, err
		}
	}
	if s.root {
		if err := content.addDir("", filepath.Join(p.dir, "root")); err != nil {
			return nil, err
		}
		content["etc/passwd"] = file{[]byte("root:x:0:0:root:/root:/sbin/nologin\n"), 0o644}
		content["etc/group"] = file{[]byte("root:x:0:\n"), 0o644}
	}
	return content, r.addLicences(content, "licenses", p, slices.Collect(maps.Values(s.files)))
}

// build returns the image for a platform.
func (s *imageSpec) build(r *release, p platform) (v1.Image, error) {
	content, err := s.layer(r, p)
	if err != nil {
		return nil, err
	}
	archive, err := content.tar(r.time)
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(archive)), nil },
		tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	config := v1.Config{
		Entrypoint: []string{s.name}, Env: []string{searchPath},
		Labels: map[string]string{
			"org.opencontainers.image.title": s.name, "org.opencontainers.image.version": r.version, "org.opencontainers.image.revision": r.commit,
			"org.opencontainers.image.source": sourceURL, "org.opencontainers.image.licenses": "Apache-2.0",
		},
	}
	if !s.root {
		config.User = nobody
	}
	image, err := mutate.ConfigFile(mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON),
		&v1.ConfigFile{OS: "linux", Architecture: p.arch, Created: v1.Time{Time: r.time}, Config: config, RootFS: v1.RootFS{Type: "layers"}})
	if err != nil {
		return nil, err
	}
	return mutate.Append(image, mutate.Addendum{Layer: layer, History: v1.History{Created: v1.Time{Time: r.time}, CreatedBy: "make release"}})
}

// The annotations in which programs that import an OCI layout look for the names of its images.
const (
	refName        = "org.opencontainers.image.ref.name"
	containerdName = "io.containerd.image.name"
)

// writeImages writes all images for all platforms as one archive of an OCI layout, which container runtimes can import and which can be pushed
// to registries.
func (r *release) writeImages(platforms []platform) error {
	all := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, s := range specs {
		one := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
		count := 0
		for _, p := range platforms {
			if p.os != "linux" {
				continue
			}
			if !s.possible(p) {
				fmt.Printf("no image %s for %s: not all of its programs are built\n", s.name, p.name())
				continue
			}
			image, err := s.build(r, p)
			if err != nil {
				return fmt.Errorf("image %s for %s: %w", s.name, p.name(), err)
			}
			count++
			one = mutate.AppendManifests(one, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: p.arch}}})
		}
		if count == 0 {
			return fmt.Errorf("image %s: its programs are built for no platform", s.name)
		}
		reference, err := name.ParseReference(r.image(s.name)) // adds the default registry and path to names without them
		if err != nil {
			return err
		}
		full := strings.TrimPrefix(reference.Name(), "index.") // container runtimes name Docker's registry docker.io
		all = mutate.AppendManifests(all, mutate.IndexAddendum{Add: one, Descriptor: v1.Descriptor{
			Annotations: map[string]string{refName: full, containerdName: full},
		}})
	}
	return r.writeLayout("gshare-images_"+r.version+".tar", all)
}

// writeLayout writes an index, with all that it refers to, as the archive of an OCI layout.
func (r *release) writeLayout(name string, index v1.ImageIndex) error {
	dir, err := os.MkdirTemp("", "gshare-release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if _, err := layout.Write(dir, index); err != nil {
		return err
	}
	content := tree{}
	if err := content.addDir("", dir); err != nil {
		return err
	}
	archive, err := content.tar(r.time)
	if err != nil {
		return err
	}
	return os.WriteFile(r.path(name), archive, 0o644)
}
