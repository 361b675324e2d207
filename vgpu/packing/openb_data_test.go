package packing

import (
	"encoding/csv"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// openbFile reads a table of the openb trace by column name. The data lies beside the repository, not in it; without it
// the test is skipped, naming the file.
func openbFile(t testing.TB, name string) []map[string]string {
	t.Helper()
	path := filepath.Join(filepath.Dir(repositoryRoot(t)), "shared", "data", "openb", name)
	f, err := os.Open(path)
	if os.IsNotExist(err) {
		t.Skipf("needs %s, which is not part of the repository", path)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	table, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	var rows []map[string]string
	for _, line := range table[1:] {
		row := map[string]string{}
		for i, column := range table[0] {
			row[column] = line[i]
		}
		rows = append(rows, row)
	}
	return rows
}

func repositoryRoot(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
	}
	t.Fatal("no go.mod above the test")
	return ""
}

// openbNodes lists the GPU nodes. Their names are a random order, as ties between nodes go by name (facts/packing.md 1.3).
func openbNodes(t testing.TB, random *rand.Rand) []*Node {
	t.Helper()
	rows := openbFile(t, "openb_node_list_gpu_node.csv")
	order := random.Perm(len(rows))
	nodes := make([]*Node, len(rows))
	for i, row := range rows {
		gpus := make([]Slice, number(t, row["gpu"]))
		for g := range gpus {
			gpus[g] = gpu(fmt.Sprintf("%s-%d", row["sn"], g), row["model"])
		}
		name := fmt.Sprintf("%04d-%s", order[i], row["sn"])
		nodes[i] = NewNode(name, gpus, MilliCPU(number(t, row["cpu_milli"])), share.Bytes(number(t, row["memory_mib"]))*share.MiB)
	}
	return nodes
}

// openbPods lists the pods in the order of the file. A fraction of a GPU is that part of the SMs, all of the time.
func openbPods(t testing.TB, list string) []*Pod {
	t.Helper()
	var pods []*Pod
	for _, row := range openbFile(t, "openb_pod_list_"+list+".csv") {
		pod := &Pod{CPU: MilliCPU(number(t, row["cpu_milli"])), RAM: share.Bytes(number(t, row["memory_mib"])) * share.MiB}
		if n := number(t, row["num_gpu"]); n > 0 {
			sm := share.Whole
			if n == 1 {
				sm = share.PerMille(number(t, row["gpu_milli"]))
			}
			sh := share.Share{SMRequest: sm, SMLimit: sm, QuotaRequest: share.Whole, QuotaLimit: share.Whole, Memory: 1}
			pod.Request.Containers = []share.Container{{VGPUs: n, Share: sh}}
		}
		if spec := row["gpu_spec"]; spec != "" {
			pod.Request.Models = strings.Split(spec, "|")
			slices.Sort(pod.Request.Models)
			pod.Request.Models = slices.Compact(pod.Request.Models)
		}
		pods = append(pods, pod)
	}
	return pods
}

func number(t testing.TB, text string) int {
	t.Helper()
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
