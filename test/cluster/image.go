package cluster

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/gshare-dev/gshare/test/cluster/machine"
)

// Names of the images that are on every node.
const (
	PauseImage   = "docker.io/local/pause:1"
	BusyboxImage = "docker.io/local/busybox:1"
)

// Image describes a container image that is built from files of this machine.
type Image struct {
	Name  string            // for example docker.io/local/workload:1
	Files map[string]string // path in the image: path on this machine, links followed
	// Command is the default command; a shell if empty. A container's arguments replace it.
	Command string
	// Entrypoint is the program that receives the arguments of a container; none if empty.
	Entrypoint string
	// Bare leaves out busybox and its commands.
	Bare bool
}

// layerArchive returns the image's only layer as a tar archive.
func (i Image) layerArchive(ctx context.Context) ([]byte, error) {
	var buffer bytes.Buffer
	archive := tar.NewWriter(&buffer)
	if !i.Bare {
		if err := addBusybox(ctx, archive); err != nil {
			return nil, err
		}
	}
	for path, source := range i.Files {
		if err := addFile(archive, path, source); err != nil {
			return nil, err
		}
	}
	if err := archive.Close(); err != nil {
		return nil, err
	}
	return buffer.Bytes(), nil
}

// addBusybox adds the busybox program to a tar archive, with a symbolic link for each of its commands.
func addBusybox(ctx context.Context, archive *tar.Writer) error {
	program, err := exec.LookPath("busybox")
	if err != nil {
		return err
	}
	if err := addFile(archive, "/bin/busybox", program); err != nil {
		return err
	}
	commands, err := exec.CommandContext(ctx, program, "--list").Output()
	if err != nil {
		return fmt.Errorf("list the commands of %s: %w", program, err)
	}
	for command := range strings.FieldsSeq(string(commands)) {
		if command == "busybox" {
			continue
		}
		link := tar.Header{Typeflag: tar.TypeSymlink, Name: "bin/" + command, Linkname: "busybox", Mode: 0o777}
		if err := archive.WriteHeader(&link); err != nil {
			return err
		}
	}
	return nil
}

func addFile(archive *tar.Writer, path, source string) error {
	content, err := os.ReadFile(source)
	if err != nil {
		return err
	}
	info, err := os.Stat(source)
	if err != nil {
		return err
	}
	return add(archive, strings.TrimPrefix(path, "/"), int64(info.Mode().Perm()), content)
}

func add(archive *tar.Writer, name string, mode int64, content []byte) error {
	if err := archive.WriteHeader(&tar.Header{Name: name, Mode: mode, Size: int64(len(content))}); err != nil {
		return err
	}
	_, err := archive.Write(content)
	return err
}

// writeArchive writes the image as a tar archive in the format of "docker save".
func (i Image) writeArchive(ctx context.Context, to io.Writer) error {
	layer, err := i.layerArchive(ctx)
	if err != nil {
		return err
	}
	run := map[string]any{"Env": []string{"PATH=/bin"}, "Cmd": []string{cmp.Or(i.Command, "/bin/sh")}}
	if i.Entrypoint != "" {
		run["Entrypoint"], run["Cmd"] = []string{i.Entrypoint}, nil
	}
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": run,
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{fmt.Sprintf("sha256:%x", sha256.Sum256(layer))}},
	})
	if err != nil {
		return err
	}
	manifest, err := json.Marshal([]map[string]any{{
		"Config": "config.json", "RepoTags": []string{i.Name}, "Layers": []string{"layer.tar"},
	}})
	if err != nil {
		return err
	}
	archive := tar.NewWriter(to)
	for _, file := range []struct {
		name    string
		content []byte
	}{{"config.json", config}, {"layer.tar", layer}, {"manifest.json", manifest}} {
		if err := add(archive, file.name, 0o644, file.content); err != nil {
			return err
		}
	}
	return archive.Close()
}

// writeImages writes each image to a tar archive in a directory and returns the paths.
func writeImages(ctx context.Context, folder string, images []Image) ([]string, error) {
	var paths []string
	for n, image := range images {
		path := filepath.Join(folder, fmt.Sprintf("%d.tar", n))
		file, err := os.Create(path)
		if err != nil {
			return nil, err
		}
		err = image.writeArchive(ctx, file)
		if closed := file.Close(); err == nil {
			err = closed
		}
		if err != nil {
			return nil, fmt.Errorf("make image %s: %w", image.Name, err)
		}
		paths = append(paths, path)
	}
	return paths, nil
}

func importImages(ctx context.Context, m *machine.Machine, ctr string, archives []string) error {
	for _, archive := range archives {
		if _, err := m.Run(ctx, ctr, "--namespace=k8s.io", "images", "import", archive); err != nil {
			return err
		}
	}
	return nil
}
