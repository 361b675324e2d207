// Command chart writes the Helm chart's templates from the kustomize bases, so that there is one source: make chart.
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	if err := writeTemplates("."); err != nil {
		fmt.Fprintln(os.Stderr, "chart:", err)
		os.Exit(1)
	}
}

// writeTemplates writes the generated files of the Helm chart into a checkout of the repository.
func writeTemplates(root string) error {
	files, err := templates(root)
	if err != nil {
		return err
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(root, chartDir, name), content, 0o644); err != nil {
			return err
		}
	}
	return nil
}
