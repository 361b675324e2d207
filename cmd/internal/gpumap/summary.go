package gpumap

import (
	"fmt"
	"strings"
)

// histogram returns a thin bar that is divided in proportion to the numbers of full, partly full and empty GPUs.
func (p *page) histogram(c counts, width int) string {
	sizes, parts := []int64{}, []level{}
	for k, n := range []int{c.full, c.partly, c.empty} {
		if n > 0 {
			sizes, parts = append(sizes, int64(n)), append(parts, []level{full, full / 2, empty}[k])
		}
	}
	at := edges(sizes, int64(c.all()), width)
	var b strings.Builder
	for k, l := range parts {
		b.WriteString(p.bar(l, at[k+1]-at[k]))
	}
	return b.String()
}

// more returns the line that stands for the GPUs of a model that the overview does not draw.
func more(model string, rest counts, some bool, width int) string {
	word := ""
	if some {
		word = "more "
	}
	n, model := rest.all(), shorten(model, width/2)
	return fitting(width,
		fmt.Sprintf("… %d %sGPUs of model %s: %v", n, word, model, rest),
		fmt.Sprintf("… %d %sof %s: %v", n, word, model, rest),
		fmt.Sprintf("… %d: %v", n, rest),
		fmt.Sprintf("… %d %sof %s", n, word, model),
		fmt.Sprintf("… %d %sGPUs", n, word),
	)
}

// others returns the line that stands for the GPU models that the overview does not draw.
func others(list []group, width int) string {
	t := total(list)
	return fitting(width,
		fmt.Sprintf("… %s with %s: %v", number(len(list), "more model"), number(t.all(), "GPU"), t.counts),
		fmt.Sprintf("… %s, %s", number(len(list), "model"), number(t.all(), "GPU")),
		fmt.Sprintf("… %s", number(t.all(), "GPU")),
	)
}

// String returns the counts that are not zero, such as "398 full, 14 partly".
func (c counts) String() string {
	var words []string
	for _, x := range []struct {
		n    int
		name string
	}{{c.full, "full"}, {c.partly, "partly"}, {c.empty, "empty"}} {
		if x.n > 0 {
			words = append(words, fmt.Sprint(x.n, " ", x.name))
		}
	}
	return strings.Join(words, ", ")
}
