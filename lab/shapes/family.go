package shapes

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/gshare-dev/gshare/vgpu/share"
	"github.com/gshare-dev/gshare/vgpu/table"
)

// Family is a random distribution of pods: a function that draws the SM share and quota of one pod, without memory.
type Family func(*rand.Rand) Pod

// Families returns the generated families of pods by name (docs/packing.md). papermix has the SM shares of the models that FaST-GShare
// measures; fastgrid is the grid that it profiles, and smallgrid the small end of that grid; overhalf has quotas of which no two
// fit beside each other, the worst case for rectangles.
func Families() map[string]Family {
	return map[string]Family{
		"papermix":  papermix,
		"fastgrid":  grid(gridSM),
		"smallgrid": grid([]int{6, 12, 12, 24}),
		"uniform":   between(5, 100, 5, 60),
		"overhalf":  between(51, 75, 5, 25),
	}
}

func papermix(r *rand.Rand) Pod {
	switch r.IntN(4) {
	case 0, 1:
		return percent(pick(r, 20, 40, 60, 80), 12)
	case 2:
		return percent(pick(r, 20, 40, 60, 80), 24)
	}
	return percent(pick(r, 40, 60, 80), 50)
}

func grid(sms []int) Family {
	return func(r *rand.Rand) Pod { return percent(pick(r, 20, 40, 60, 80, 100), pick(r, sms...)) }
}

func between(quotaLow, quotaHigh, smLow, smHigh int) Family {
	return func(r *rand.Rand) Pod {
		return percent(quotaLow+r.IntN(quotaHigh-quotaLow+1), smLow+r.IntN(smHigh-smLow+1))
	}
}

// SampleOf returns a family that draws pods from a list with equal probability.
func SampleOf(pods []Pod) Family {
	return func(r *rand.Rand) Pod { return pods[r.IntN(len(pods))] }
}

func pick(r *rand.Rand, from ...int) int { return from[r.IntN(len(from))] }

func percent(quota, sm int) Pod {
	return Pod{SM: share.PerMille(10 * sm), Quota: share.PerMille(10 * quota)}
}

// gridSM is the list of SM shares, in percent, that FaST-GShare profiles.
var gridSM = []int{6, 12, 24, 50, 60, 80, 100}

// OfMilliGPU converts the request of an openb pod, n thousandths of a GPU (1 to 1000), to an SM share and a quota: the smallest SM
// share of FaST-GShare's grid that is large enough, and the quota that gives the same SM-time.
func OfMilliGPU(n int) Pod {
	for _, sm := range gridSM {
		if 10*sm >= n {
			return percent(min(100, (10*n+sm-1)/sm), sm)
		}
	}
	return percent(100, 100)
}

// columns is the header of a list of pods: quota and SM in whole percent, memory in MiB.
var columns = []string{"quota", "sm", "mem"}

// Parse parses a list of pods from CSV text with the header quota,sm,mem, for GPUs of the given memory. Errors name the line.
func Parse(text string, memory share.Bytes) ([]Pod, error) {
	var pods []Pod
	headed := false
	for r, err := range table.Records(strings.NewReader(text)) {
		if !headed {
			if headed = err == nil && slices.Equal(r.Fields, columns); !headed {
				break
			}
			continue
		}
		if err != nil {
			return nil, err // names the line
		}
		p, err := parsePod(r.Fields, memory)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", r.Line, err)
		}
		pods = append(pods, p)
	}
	switch {
	case !headed:
		return nil, fmt.Errorf("line 1: the header is not %s", strings.Join(columns, ","))
	case len(pods) == 0:
		return nil, errors.New("line 2: no pods")
	}
	return pods, nil
}

func parsePod(fields []string, memory share.Bytes) (Pod, error) {
	var n [3]int64
	for k, text := range fields {
		var err error
		// 32 bits keep the sums of a million pods far from an overflow.
		if n[k], err = strconv.ParseInt(strings.TrimSpace(text), 10, 32); err != nil {
			return Pod{}, fmt.Errorf("%s: %q is not a whole number", columns[k], text)
		}
	}
	if max(n[0], n[1]) > 100 || min(n[0], n[1]) < 1 {
		return Pod{}, fmt.Errorf("quota %d %% and sm %d %% are not both between 1 and 100", n[0], n[1])
	}
	p := percent(int(n[0]), int(n[1]))
	p.Memory = share.Bytes(n[2]) * share.MiB
	return p, p.Check(memory)
}
