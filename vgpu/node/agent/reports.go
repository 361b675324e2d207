package agent

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/gshare-dev/gshare/vgpu/node/grant"
	"github.com/gshare-dev/gshare/vgpu/watchdog"
)

// report is what a enforcement status says of a finding. PIDs come and go; this stays while anything of the kind does. A stranger's
// container has no enforcement status.
type report struct {
	pod, container string
	text           string
}

var reportTexts = map[watchdog.Kind]string{
	watchdog.Trespasser: "a process uses a device that is not of its share",
	watchdog.Unhooked:   "a process runs without the hook, and is not limited in time",
}

func reports(found []watchdog.Finding) (all []report) {
	for _, f := range found {
		if text := reportTexts[f.Kind]; text != "" {
			all = append(all, report{f.Pod, f.Container, text})
		}
	}
	slices.SortFunc(all, func(a, b report) int {
		return cmp.Or(cmp.Compare(a.pod, b.pod), cmp.Compare(a.container, b.container), cmp.Compare(a.text, b.text))
	})
	return slices.Compact(all)
}

// notLimited is what the guard has to say of a container: what its own processes do, and who else uses its slices. The caller
// holds the lock.
func (a *Agent) notLimited(g *grant.Grant) (missing []string) {
	for _, r := range reports(a.found) {
		if r.pod == string(g.UID) && (r.container == "" || r.container == g.Container) {
			missing = append(missing, r.text)
		}
	}
	for _, v := range g.VGPUs {
		if by := a.used[v.Slice]; by != "" {
			missing = append(missing, fmt.Sprintf("slice %s is also used by %s", v.Slice, by))
		}
	}
	return missing
}
