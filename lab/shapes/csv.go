package shapes

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gshare-dev/gshare/lab/table"
	"github.com/gshare-dev/gshare/vgpu/share"
)

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
