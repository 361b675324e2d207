// Command site writes the documentation as a static site: go run ./hack/site [DIRECTORY], by default to bin/site. It runs in the root of the
// repository, and fails if a link leads nowhere.
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	out := filepath.Join("bin", "site")
	if len(os.Args) > 1 {
		out = os.Args[1]
	}
	if err := run(os.DirFS("."), out); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println("site: wrote " + filepath.Join(out, "index.html"))
}
