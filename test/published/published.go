// Package published gives tests the files of lab/dataset.
package published

import (
	"testing"

	"github.com/gshare-dev/gshare/lab/dataset"
)

// Read returns the content of a file of lab/dataset. The test fails if the file is missing, and is skipped if it is one of those that have no
// licence.
func Read(t testing.TB, name string) string {
	t.Helper()
	text, err := dataset.ReadFile(dataset.Prefix + name)
	if err == nil {
		return string(text)
	}
	if !dataset.Licensed(dataset.Prefix + name) {
		t.Skip(err)
	}
	t.Fatal(err)
	return ""
}
