package soak_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"sync"
	"time"
)

// writes counts what the controller writes, according to the API server's audit log.
type writes struct {
	path string

	mu     sync.Mutex
	file   *os.File
	reader *bufio.Reader
	rest   []byte // an incomplete last line
	all    int
	kinds  map[string]int // counts by verb and resource
	second map[int64]int  // counts by Unix time
	err    error
}

func newWrites(path string) *writes {
	return &writes{path: path, kinds: map[string]int{}, second: map[int64]int{}}
}

// auditEvent has the fields of a line of the log that are used here.
type auditEvent struct {
	Verb      string `json:"verb"`
	ObjectRef struct {
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
	} `json:"objectRef"`
	Received time.Time `json:"requestReceivedTimestamp"`
	Stage    string    `json:"stage"`
}

// total reads new lines of the log, and returns the number of writes so far.
func (w *writes) total() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.read()
	return w.all
}

// read reads the new lines of the log. The caller holds the lock.
func (w *writes) read() {
	if w.file == nil {
		file, err := os.Open(w.path)
		if errors.Is(err, fs.ErrNotExist) {
			return // nothing has been written yet
		} else if err != nil {
			w.err = err
			return
		}
		w.file, w.reader = file, bufio.NewReader(file)
	}
	for w.err == nil {
		part, err := w.reader.ReadBytes('\n')
		w.rest = append(w.rest, part...)
		if errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			w.err = err
			return
		}
		w.err = w.add(w.rest)
		w.rest = w.rest[:0]
	}
}

func (w *writes) add(line []byte) error {
	var e auditEvent
	if err := json.Unmarshal(line, &e); err != nil {
		return fmt.Errorf("%s: %w", line, err)
	}
	if e.Stage != "ResponseComplete" {
		return nil
	}
	kind := e.Verb + " " + e.ObjectRef.Resource
	if e.ObjectRef.Subresource != "" {
		kind += "/" + e.ObjectRef.Subresource
	}
	w.all++
	w.kinds[kind]++
	w.second[e.Received.Unix()]++
	return nil
}

// state returns copies of the counts.
func (w *writes) state() (kinds map[string]int, seconds map[int64]int, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.read()
	return maps.Clone(w.kinds), maps.Clone(w.second), w.err
}
