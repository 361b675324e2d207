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

// omittedGPUs returns the line that stands for the GPUs of a model that the overview does not draw.
func omittedGPUs(model string, rest counts, some bool, width int) string {
	word := ""
	if some {
		word = "more "
	}
	n, model := rest.all(), shorten(model, width/2)
	return firstFitting(width,
		fmt.Sprintf("… %d %sGPUs of model %s: %v", n, word, model, rest),
		fmt.Sprintf("… %d %sof %s: %v", n, word, model, rest),
		fmt.Sprintf("… %d: %v", n, rest),
		fmt.Sprintf("… %d %sof %s", n, word, model),
		fmt.Sprintf("… %d %sGPUs", n, word),
	)
}

// omittedModels returns the line that stands for the GPU models that the overview does not draw.
func omittedModels(list []group, width int) string {
	t := sumGroups(list)
	return firstFitting(width,
		fmt.Sprintf("… %s with %s: %v", countOf(len(list), "more model"), countOf(t.all(), "GPU"), t.counts),
		fmt.Sprintf("… %s, %s", countOf(len(list), "model"), countOf(t.all(), "GPU")),
		fmt.Sprintf("… %s", countOf(t.all(), "GPU")),
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
