package packing

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gshare-dev/gshare/test/published"
	"github.com/gshare-dev/gshare/vgpu/share"
	"github.com/gshare-dev/gshare/vgpu/table"
)

// openbFile returns the rows of a table of the openb trace.
func openbFile(t testing.TB, name string) []table.Row {
	t.Helper()
	var rows []table.Row
	for r, err := range table.Rows(strings.NewReader(published.Read(t, "openb/"+name))) {
		if err != nil {
			t.Fatal(err)
		}
		r.Fields = slices.Clone(r.Fields)
		rows = append(rows, r)
	}
	return rows
}

// openbNodes returns the GPU nodes under names in random order, because ties between nodes go by name.
func openbNodes(t testing.TB, random *rand.Rand) []*Node {
	t.Helper()
	rows := openbFile(t, "openb_node_list_gpu_node.csv")
	order := random.Perm(len(rows))
	nodes := make([]*Node, len(rows))
	for i, row := range rows {
		gpus := make([]Slice, number(t, row.Text("gpu")))
		for g := range gpus {
			gpus[g] = gpu(fmt.Sprintf("%s-%d", row.Text("sn"), g), row.Text("model"))
		}
		name := fmt.Sprintf("%04d-%s", order[i], row.Text("sn"))
		nodes[i] = NewNode(name, gpus, MilliCPU(number(t, row.Text("cpu_milli"))), share.Bytes(number(t, row.Text("memory_mib")))*share.MiB)
	}
	return nodes
}

// openbPods returns the pods in the order of the file. A fraction of a GPU is that part of the SMs, all of the time.
func openbPods(t testing.TB, list string) []*Pod {
	t.Helper()
	var pods []*Pod
	for _, row := range openbFile(t, "openb_pod_list_"+list+".csv") {
		pod := &Pod{CPU: MilliCPU(number(t, row.Text("cpu_milli"))), RAM: share.Bytes(number(t, row.Text("memory_mib"))) * share.MiB}
		if n := number(t, row.Text("num_gpu")); n > 0 {
			sm := share.Whole
			if n == 1 {
				sm = share.PerMille(number(t, row.Text("gpu_milli")))
			}
			sh := share.Share{SMRequest: sm, SMLimit: sm, QuotaRequest: share.Whole, QuotaLimit: share.Whole, Memory: 1}
			pod.Request.Containers = []share.Container{{VGPUs: n, Share: sh}}
		}
		if spec := row.Text("gpu_spec"); spec != "" {
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
