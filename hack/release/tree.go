package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"time"
)

// file is one file of a tree.
type file struct {
	content []byte
	mode    fs.FileMode
}

// tree is the content of an archive or of an image's layer: files by their paths, which are relative and have slashes.
type tree map[string]file

// add adds a file from the file system of this machine. It follows symbolic links.
func (t tree) add(name, source string, mode fs.FileMode) error {
	content, err := os.ReadFile(source)
	t[name] = file{content, mode}
	return err
}

// addDir adds the files below a directory of this machine, with their permissions. It follows symbolic links.
func (t tree) addDir(name, source string) error {
	return filepath.WalkDir(source, func(at string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		inside, err := filepath.Rel(source, at)
		if err != nil {
			return err
		}
		info, err := os.Stat(at)
		if err != nil {
			return err
		}
		mode := fs.FileMode(0o644)
		if info.Mode()&0o100 != 0 {
			mode = 0o755
		}
		return t.add(path.Join(name, filepath.ToSlash(inside)), at, mode)
	})
}

// tar returns the tree as a tar archive. The bytes depend only on the tree and on the time, which all files get.
func (t tree) tar(at time.Time) ([]byte, error) {
	var out bytes.Buffer
	archive := tar.NewWriter(&out)
	made := map[string]bool{".": true}
	for _, name := range slices.Sorted(maps.Keys(t)) {
		if !fs.ValidPath(name) {
			return nil, fmt.Errorf("path %q in an archive is not relative and clean", name)
		}
		for _, dir := range parents(name) {
			if made[dir] {
				continue
			}
			made[dir] = true
			if err := archive.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o755, ModTime: at, Format: tar.FormatPAX}); err != nil {
				return nil, err
			}
		}
		f := t[name]
		header := tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: int64(f.mode), Size: int64(len(f.content)), ModTime: at, Format: tar.FormatPAX}
		if err := archive.WriteHeader(&header); err != nil {
			return nil, err
		}
		if _, err := archive.Write(f.content); err != nil {
			return nil, err
		}
	}
	err := archive.Close()
	return out.Bytes(), err
}

// tarGzip returns the tree as a compressed tar archive.
func (t tree) tarGzip(at time.Time) ([]byte, error) {
	content, err := t.tar(at)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	w, _ := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if _, err := w.Write(content); err != nil {
		return nil, err
	}
	err = w.Close()
	return out.Bytes(), err
}

// parents returns the directories above a file, the uppermost first.
func parents(name string) []string {
	var out []string
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		out = append(out, dir)
	}
	slices.Reverse(out)
	return out
}
