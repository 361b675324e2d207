package main

import (
	"bytes"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// artefact is an OCI image whose configuration is not that of a container.
type artefact struct {
	v1.Image
	config []byte
}

// withConfig returns an image with another configuration, of the media type of a Helm chart's.
func withConfig(image v1.Image, config []byte) v1.Image { return &artefact{image, config} }

// RawConfigFile implements v1.Image.
func (a *artefact) RawConfigFile() ([]byte, error) { return a.config, nil }

// ConfigName implements v1.Image.
func (a *artefact) ConfigName() (v1.Hash, error) {
	h, _, err := v1.SHA256(bytes.NewReader(a.config))
	return h, err
}

// Manifest implements v1.Image.
func (a *artefact) Manifest() (*v1.Manifest, error) {
	m, err := a.Image.Manifest()
	if err != nil {
		return nil, err
	}
	m = m.DeepCopy()
	hash, size, err := v1.SHA256(bytes.NewReader(a.config))
	m.Config = v1.Descriptor{MediaType: chartConfig, Size: size, Digest: hash}
	return m, err
}

// RawManifest implements v1.Image.
func (a *artefact) RawManifest() ([]byte, error) { return partial.RawManifest(a) }

// Digest implements v1.Image.
func (a *artefact) Digest() (v1.Hash, error) { return partial.Digest(a) }

// Size implements v1.Image.
func (a *artefact) Size() (int64, error) { return partial.Size(a) }

// MediaType implements v1.Image.
func (a *artefact) MediaType() (types.MediaType, error) { return types.OCIManifestSchema1, nil }
