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

// writes counts what the controller writes, by the audit log of the API server.
type writes struct {
	path string

	mu     sync.Mutex
	file   *os.File
	reader *bufio.Reader
	rest   []byte // a line that is not complete yet
	all    int
	kinds  map[string]int // by verb and resource
	second map[int64]int  // by Unix time
	err    error
}

func newWrites(path string) *writes {
	return &writes{path: path, kinds: map[string]int{}, second: map[int64]int{}}
}

// auditEvent is what is used of a line of the log.
type auditEvent struct {
	Verb      string `json:"verb"`
	ObjectRef struct {
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
	} `json:"objectRef"`
	Received time.Time `json:"requestReceivedTimestamp"`
	Stage    string    `json:"stage"`
}

// total reads what is new in the log, and returns the number of writes so far.
func (w *writes) total() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.read()
	return w.all
}

// read needs the lock.
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

// state returns copies of what has been counted.
func (w *writes) state() (kinds map[string]int, seconds map[int64]int, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.read()
	return maps.Clone(w.kinds), maps.Clone(w.second), w.err
}
