// Package executable builds the programs that tests run in addition to Go's own tools, and reads the ends of their logs.
package executable

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

const tailBytes = 4000

// Build runs `hack/cluster.sh TARGET` in the checkout that contains the working directory, and returns the folder of the programs that it
// builds. It takes seconds, and minutes the first time; hack/test.sh runs it before the tests, which have a time limit.
func Build(target string) (folder string, err error) {
	root, err := repository()
	if err != nil {
		return "", err
	}
	command := exec.Command(filepath.Join(root, "hack", "cluster.sh"), target)
	if out, err := command.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s", command, err, out)
	}
	return filepath.Join(root, "bin", "cluster"), nil
}

// repository returns the root of the checkout that contains the working directory, as it does in a test.
func repository() (string, error) {
	folder, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; folder != "/"; folder = filepath.Dir(folder) {
		if _, err := os.Stat(filepath.Join(folder, "hack", "cluster.sh")); err == nil {
			return folder, nil
		}
	}
	return "", errors.New("hack/cluster.sh is in no folder above the working folder")
}

// LogTail returns the last lines of a log, at most 4,000 bytes, for an error message. For a log that does not exist it returns nothing,
// and for one that cannot be read, the reason.
func LogTail(path string) []byte {
	content, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return []byte(err.Error())
	}
	if len(content) > tailBytes {
		content = content[len(content)-tailBytes:]
		_, content, _ = bytes.Cut(content, []byte("\n"))
	}
	return bytes.TrimSpace(content)
}
