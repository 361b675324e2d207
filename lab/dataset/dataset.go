// Package dataset holds the published measurements and traces that tests and simulations use, in compressed form. testdata/README.md names
// the source and the licence of each.
package dataset

import (
	"bytes"
	"compress/gzip"
	"embed"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
)

//go:embed testdata
var files embed.FS

// Prefix begins the names of the files that this package holds, such as dataset:openb/openb_pod_list_default.csv.
const Prefix = "dataset:"

// ReadFile returns the content of a file: one of this package if the name begins with Prefix, otherwise one of the file system. The error
// wraps fs.ErrNotExist if there is no such file.
func ReadFile(name string) ([]byte, error) {
	inside, ok := strings.CutPrefix(name, Prefix)
	if !ok {
		return os.ReadFile(name)
	}
	packed, err := files.ReadFile(path.Join("testdata", inside) + ".gz")
	if err != nil {
		return nil, fmt.Errorf("read %s (see lab/dataset/testdata/README.md): %w", name, err)
	}
	unpacked, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return io.ReadAll(unpacked)
}

// unlicensed lists the files, by prefix, that have no licence and are therefore not in the repository.
var unlicensed = []string{"dilu/", "harmonybatch/model_all.json"}

// Licensed reports whether a file may be redistributed. It is false only for the files of this package that have no licence.
func Licensed(name string) bool {
	for _, prefix := range unlicensed {
		if strings.HasPrefix(name, Prefix+prefix) {
			return false
		}
	}
	return true
}
