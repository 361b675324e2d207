package machine

import (
	"bytes"
	"errors"
	"os"
)

const tailBytes = 4000

// Tail returns the end of a log, for an error message.
func Tail(path string) []byte {
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
