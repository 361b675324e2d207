package shapes

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gshare-dev/gshare/vgpu/share"
)

const gpuMemory = 80 << 30

func TestParse(t *testing.T) {
	got, err := Parse("quota,sm,mem\n40,12,2048\n100, 100,81920\n\n1,1,0\n", gpuMemory)
	want := []Pod{
		{SM: 120, Quota: 400, Memory: 2 << 30},
		{SM: 1000, Quota: 1000, Memory: gpuMemory},
		{SM: 10, Quota: 10},
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
}

func TestParseNamesTheLine(t *testing.T) {
	const head = "quota,sm,mem\n"
	for name, c := range map[string]struct{ text, want string }{
		"empty":            {"", "line 1: the header"},
		"other header":     {"sm,quota,mem\n40,12,1\n", "line 1: the header"},
		"no pods":          {head, "line 2: no pods"},
		"few fields":       {head + "40,12\n", "line 2"},
		"many fields":      {head + "40,12,1\n40,12,1,1\n", "line 3"},
		"quote":            {head + "4\"0,12,1\n", "line 2"},
		"not a number":     {head + "40,12,1\n\n40,x,1\n", `line 4: sm: "x"`},
		"a fraction":       {head + "40.5,12,1\n", `line 2: quota: "40.5"`},
		"quota 0":          {head + "0,12,1\n", "line 2: quota 0 %"},
		"sm above 100":     {head + "40,101,1\n", "line 2: quota 40 % and sm 101 %"},
		"negative":         {head + "40,-1,1\n", "line 2"},
		"negative memory":  {head + "40,12,-1\n", "line 2: memory of -1 MiB"},
		"too much memory":  {head + "40,12,81921\n", "line 2: memory of 81921 MiB"},
		"beyond any range": {head + "40,12,99999999999999999999\n", "line 2: mem"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Parse(c.text, gpuMemory); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// Whatever parses can be packed, and is what was written.
func FuzzParse(f *testing.F) {
	f.Add("quota,sm,mem\n40,12,2048\n")
	f.Add("quota,sm,mem\n\"40\", 12,0\r\n100,100,81920\n")
	f.Add("quota,sm,mem\n40,-12,1e3\n")
	f.Fuzz(func(t *testing.T, text string) {
		pods, err := Parse(text, gpuMemory)
		if err != nil {
			if !strings.Contains(err.Error(), "line ") {
				t.Fatalf("no line in %q", err)
			}
			return
		}
		again := "quota,sm,mem\n"
		for _, p := range pods {
			if err := p.Check(gpuMemory); err != nil {
				t.Fatal(err)
			}
			again += fmt.Sprintf("%d,%d,%d\n", p.Quota/10, p.SM/10, p.Memory/share.MiB)
		}
		if back, err := Parse(again, gpuMemory); err != nil || !slices.Equal(back, pods) {
			t.Fatalf("%v, %v, want %v", back, err, pods)
		}
	})
}
