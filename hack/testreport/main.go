// Command testreport reads the output of one or more runs of "go test -json" and prints a summary: one line per package, the output of failed
// tests, the reason of each skip, the time of each stage, the ten slowest packages, and "N passed, N failed, N skipped" as the last line. An
// event {"Action":"stage","Output":NAME} names the stage of hack/test.sh that the following events belong to, and
// {"Action":"spent","Output":LINE} says how long a stage took. It fails if a test or a build failed, if no test ran, or, with CI=true, if a test
// was skipped that the file of allowed skips does not list.
package main

import (
	"flag"
	"fmt"
	"os"
)

func main() {
	path := flag.String("allowed", "", "file that lists the tests that may be skipped when CI=true")
	flag.Parse()

	var allowed allowList
	if *path != "" {
		file, err := os.Open(*path)
		if err != nil {
			exit(err)
		}
		allowed, err = readAllowList(file)
		file.Close()
		if err != nil {
			exit(fmt.Errorf("read %s: %w", *path, err))
		}
	}
	r := newReport(os.Stdout)
	if err := r.readEvents(os.Stdin); err != nil {
		exit(err)
	}
	if !r.finish(allowed, os.Getenv("CI") == "true") {
		os.Exit(1)
	}
}

func exit(err error) {
	fmt.Fprintln(os.Stderr, "testreport:", err)
	os.Exit(2)
}
