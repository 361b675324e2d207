package server

import (
	"cmp"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// region is a region of the host's shared memory that a client has registered.
type region struct {
	Name   string `json:"name"`
	Key    string `json:"key"` // name given to shm_open
	Offset int    `json:"offset"`
	Size   int    `json:"byte_size"`
}

// span is a part of a region.
type span struct {
	region       string
	offset, size int
}

// regions are the registered regions by name.
type regions struct {
	mu     sync.Mutex
	byName map[string]region
}

// sharedMemory is the directory in which shm_open creates its files.
const sharedMemory = "/dev/shm"

// handleMemory registers the handlers of the protocol's extension for shared memory of the host.
func (s *Server) handleMemory(handle handlers) {
	const all, one = "/v2/systemsharedmemory", "/v2/systemsharedmemory/region/{region}"
	status := func(w http.ResponseWriter, r *http.Request) error {
		list, err := s.regions.list(r.PathValue("region"))
		if err == nil {
			writeJSON(w, http.StatusOK, list)
		}
		return err
	}
	unregister := func(_ http.ResponseWriter, r *http.Request) error {
		s.regions.unregister(r.PathValue("region"))
		return nil
	}
	handle("GET "+all+"/status", status)
	handle("GET "+one+"/status", status)
	handle("POST "+all+"/unregister", unregister)
	handle("POST "+one+"/unregister", unregister)
	handle("POST "+one+"/register", func(w http.ResponseWriter, r *http.Request) error {
		var request region
		if err := decode(r, &request); err != nil {
			return err
		}
		request.Name = r.PathValue("region")
		return s.regions.register(request)
	})
}

// register adds a region.
func (r *regions) register(added region) error {
	file, err := added.open(os.O_RDWR)
	if err != nil {
		return err
	}
	defer file.Close()
	status, err := file.Stat()
	if err != nil {
		return err
	}
	if added.Offset < 0 || added.Size < 1 || int64(added.Offset) > status.Size()-int64(added.Size) {
		return errorf(http.StatusBadRequest, "region %q: %d bytes from %d on are not in %s", added.Name, added.Size, added.Offset, added.Key)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, taken := r.byName[added.Name]; taken {
		return errorf(http.StatusBadRequest, "the region %q is already registered", added.Name)
	}
	if r.byName == nil {
		r.byName = map[string]region{}
	}
	r.byName[added.Name] = added
	return nil
}

// unregister removes a region, or all if the name is empty.
func (r *regions) unregister(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.byName, func(n string, _ region) bool { return name == "" || n == name })
}

// list returns a region, or all if the name is empty.
func (r *regions) list(name string) ([]region, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	found := []region{}
	for n, one := range r.byName {
		if name == "" || n == name {
			found = append(found, one)
		}
	}
	if name != "" && len(found) == 0 {
		return nil, errorf(http.StatusBadRequest, "no region %q is registered", name)
	}
	slices.SortFunc(found, func(a, b region) int { return cmp.Compare(a.Name, b.Name) })
	return found, nil
}

// find opens the file of a span's region, and returns the offset of the span in it.
func (r *regions) find(s span, flags int) (*os.File, int64, error) {
	r.mu.Lock()
	found, ok := r.byName[s.region]
	r.mu.Unlock()
	if !ok {
		return nil, 0, errorf(http.StatusBadRequest, "no region %q is registered", s.region)
	}
	if s.offset < 0 || s.size < 0 || s.offset > found.Size-s.size {
		return nil, 0, errorf(http.StatusBadRequest, "%d bytes from %d on are not in the region %q", s.size, s.offset, s.region)
	}
	file, err := found.open(flags)
	return file, int64(found.Offset) + int64(s.offset), err
}

// read returns the bytes of a span.
func (r *regions) read(s span) ([]byte, error) {
	file, at, err := r.find(s, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data := make([]byte, s.size)
	_, err = file.ReadAt(data, at)
	return data, err
}

// write writes bytes at the beginning of a span, which must have room for them.
func (r *regions) write(s span, data []byte) error {
	if len(data) > s.size {
		return errorf(http.StatusBadRequest, "%d bytes of output do not fit into %d bytes of the region %q", len(data), s.size, s.region)
	}
	file, at, err := r.find(s, os.O_RDWR)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = file.WriteAt(data, at)
	return err
}

// open opens the file of a region.
func (r region) open(flags int) (*os.File, error) {
	name := strings.TrimPrefix(r.Key, "/")
	if name == "" || strings.Contains(name, "/") || name == "." || name == ".." {
		return nil, errorf(http.StatusBadRequest, "region %q: %q is no key of shared memory", r.Name, r.Key)
	}
	file, err := os.OpenFile(filepath.Join(sharedMemory, name), flags, 0)
	if err != nil {
		return nil, errorf(http.StatusBadRequest, "region %q: %v", r.Name, err)
	}
	return file, nil
}
