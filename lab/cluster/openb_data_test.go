package cluster

import (
	"encoding/csv"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gshare-dev/gshare/vgpu/packing"
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

// openb is the cluster with one of its lists, k times over.
func openb(t testing.TB, list string, k int) (nodes []Node, pods []Pod) {
	t.Helper()
	for _, row := range openbFile(t, "openb_node_list_gpu_node.csv") {
		nodes = append(nodes, Node{Name: row["sn"], CPU: packing.MilliCPU(number(t, row["cpu_milli"])),
			RAM: share.Bytes(number(t, row["memory_mib"])) * share.MiB, GPUs: number(t, row["gpu"]), Model: row["model"]})
	}
	for _, row := range openbFile(t, "openb_pod_list_"+list+".csv") {
		p := Pod{CPU: packing.MilliCPU(number(t, row["cpu_milli"])), RAM: share.Bytes(number(t, row["memory_mib"])) * share.MiB,
			GPUs: number(t, row["num_gpu"]), Milli: packing.MilliGPU(number(t, row["gpu_milli"]))}
		if spec := row["gpu_spec"]; spec != "" {
			p.Models = strings.Split(spec, "|")
			slices.Sort(p.Models)
		}
		pods = append(pods, p)
	}
	return slices.Repeat(nodes, k), slices.Repeat(pods, k)
}

func number(t testing.TB, text string) int {
	t.Helper()
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
