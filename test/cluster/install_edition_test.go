package cluster_test

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/gshare-dev/gshare/test/cluster"
)

// edition is a version of gshare that can be installed. The tags of its images do not contain the version, but the programs report it.
type edition struct {
	tag, version string
	commit       string // of this repository; empty: this checkout
}

// The older edition can be another commit, which is then built with its own hook and has its own manifests.
var (
	older = edition{"old", "v0.1.0", os.Getenv("GSHARE_UPGRADE_FROM")}
	newer = edition{"new", "v0.2.0", ""}
)

var trees sync.Map // source trees of commits

// root returns the source tree of the edition.
func (v edition) root(t *testing.T) string {
	t.Helper()
	here, err := filepath.Abs("../..")
	if err != nil || v.commit == "" {
		return here
	}
	tree, _ := trees.LoadOrStore(v.commit, sync.OnceValues(func() (string, error) {
		folder := filepath.Join(here, "bin/cluster/tree-"+v.tag)
		const archive = `rm -rf "$2" && mkdir -p "$2" && git -C "$0" archive -o "$2.tar" "$1" && tar -xf "$2.tar" -C "$2"`
		if out, err := exec.Command("sh", "-c", archive, here, v.commit, folder).CombinedOutput(); err != nil {
			return "", fmt.Errorf("tree of %s: %w: %s", v.commit, err, out)
		}
		return folder, nil
	}))
	return must[string](t)(tree.(func() (string, error))())
}

func (v edition) build(t *testing.T, name string) string {
	t.Helper()
	return buildOf(t, v.root(t), name+"-"+v.tag, "./cmd/"+name, "-ldflags=-s -w -X github.com/gshare-dev/gshare/cmd/internal/release.version="+v.version)
}

// images returns the images of the edition. driver is a folder with the MPS programs for the agent's image.
func (v edition) images(t *testing.T, driver string) []cluster.Image {
	t.Helper()
	agent := withLibraries(t, "/bin/gshare-node", v.build(t, "gshare-node"))
	hook := buildHookOf(t, v.root(t), "hook-"+v.tag)
	agent["/usr/lib/gshare/libgshare.so"] = hook
	for _, name := range []string{"libgshare-mps.so", "gshare-drain"} {
		file := filepath.Join(filepath.Dir(hook), name)
		if _, err := os.Stat(file); err == nil { // an older commit may have none
			agent["/usr/lib/gshare/"+name] = file
		}
	}
	maps.Copy(agent, mpsPrograms(t, driver))
	return []cluster.Image{
		{Name: "docker.io/library/gshare-node:" + v.tag, Files: agent, Bare: true},
		{Name: "docker.io/library/gshare-scheduler:" + v.tag, Files: withLibraries(t, "/bin/gshare-scheduler", v.build(t, "gshare-scheduler")), Bare: true},
	}
}

// mpsPrograms returns the files of the MPS programs in a folder, for the agent's image.
func mpsPrograms(t *testing.T, folder string) map[string]string {
	t.Helper()
	files := map[string]string{}
	for _, program := range []string{"nvidia-cuda-mps-control", "nvidia-cuda-mps-server"} {
		maps.Copy(files, withLibraries(t, "/usr/lib/gshare/"+program, filepath.Join(folder, program)))
	}
	return files
}
