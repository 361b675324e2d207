package gpumap

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gshare-dev/gshare/vgpu/share"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// golden compares a text with a file in testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".txt")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s differs (-want +got); go test -update rewrites it:\n%s", path, diff)
	}
}

func overview(gpus []Slice, o Options) string {
	var b strings.Builder
	Overview(&b, gpus, o)
	return b.String()
}

func detail(s Slice, o Options) string {
	var b strings.Builder
	Detail(&b, s, o)
	return b.String()
}

// of is a share in percent of the SMs, percent of the time and GiB.
func of(pod string, sm, quota, gib int) Share {
	s, q := share.PerMille(10*sm), share.PerMille(10*quota)
	return Share{pod, share.Share{SMRequest: s, SMLimit: s, QuotaRequest: q, QuotaLimit: q, Memory: share.Bytes(gib) << 30}}
}

// gpu is a GPU of 80 GiB.
func gpu(shares ...Share) Slice {
	return Slice{Node: "node-0017", Index: 3, Model: "A100", Reserve: 50, MemoryTotal: 80 << 30, Shares: shares}
}

// busy is a GPU with one share that always runs and five that take turns.
func busy() Slice {
	return gpu(of("llm-chat-7d9f8-x2k4p", 30, 100, 16), of("resnet-50-5c7b9-ab12c", 40, 40, 8), of("bert-qa-66d4c-zz9qp", 60, 30, 8),
		of("whisper-0", 30, 50, 4), of("yolo-v8-1", 24, 40, 2), of("embedder-3", 12, 25, 1))
}

// boxed is a GPU with rectangles.
func boxed() Slice {
	s := busy()
	s.Rectangles, s.Shares = true, s.Shares[1:]
	return s
}

// within is the GPU on a node with another window.
func within(window time.Duration, s Slice) Slice {
	s.Window = window
	return s
}

// fleet is a cluster of three models whose GPUs are filled at random.
func fleet(nodes int) []Slice {
	r := rand.New(rand.NewPCG(1, 2))
	var list []Slice
	for n := range nodes {
		model, gpus := "G2", 8
		switch {
		case n%4 == 1:
			model, gpus = "T4", 2
		case n%7 == 3:
			model, gpus = "V100M32", 4
		}
		for at := range gpus {
			s := Slice{Node: fmt.Sprintf("node-%04d", n), Index: at, Model: model, Reserve: 50, MemoryTotal: 32 << 30}
			for left := 100; left > 0 && r.IntN(20) > 0; {
				sm := min(left, 5+r.IntN(60))
				s.Shares = append(s.Shares, of(fmt.Sprint("pod-", len(s.Shares)), sm, 100, 1+r.IntN(6)))
				left -= sm
			}
			list = append(list, s)
		}
	}
	return list
}

// anyGPU is a GPU with up to n random shares, which may be too much for it.
func anyGPU(r *rand.Rand, n int) Slice {
	s := gpu()
	s.Rectangles = r.IntN(2) == 0
	most := 1 + r.IntN(60)
	for at := range r.IntN(n + 1) {
		s.Shares = append(s.Shares, of(fmt.Sprint("pod-", at), 1+r.IntN(most), 1+r.IntN(100), 1))
	}
	return s
}
