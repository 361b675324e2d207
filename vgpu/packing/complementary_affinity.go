package packing

import "github.com/gshare-dev/gshare/vgpu/share"

// Series is how much of a slice's SMs an instance used in the last few equal spans of time, the latest last.
type Series []share.PerMille

// Use is what is known of how an instance loads its GPU over time. The zero value knows nothing.
type Use struct {
	Workload string // the user's affinity key; empty when not said
	Recent   Series // empty when not measured
}

func (p *Pod) use() Use { return Use{Workload: p.Request.Workload, Recent: p.Recent} }

// affine is Dilu's workload affinity in its general form (DI-32, D10): measured loads decide where both are known, else the
// users' word that two workloads are the same.
func (u Use) affine(o Use) bool {
	if len(u.Recent) > 0 && len(o.Recent) > 0 {
		return u.Recent.similar(o.Recent)
	}
	return u.Workload != "" && u.Workload == o.Workload
}

// alike is the least similarity that counts as affinity. Neither paper nor code gives one.
const alike share.PerMille = 800

// similar compares the spans that both have, the latest ones, by weighted Jaccard similarity Σmin/Σmax: it is 1 for equal
// loads, 0 for loads that never meet, and tells both height and rhythm. Two idle instances are alike.
func (s Series) similar(o Series) bool {
	n := min(len(s), len(o))
	s, o = s[len(s)-n:], o[len(o)-n:]
	var both, either int64
	for i := range s {
		both += int64(min(s[i], o[i]))
		either += int64(max(s[i], o[i]))
	}
	return both*int64(share.Whole) >= either*int64(alike)
}

// hosts says that an instance with affinity to this use is on the slice.
func (l *Load) hosts(use Use) bool {
	for i := range l.residents {
		if l.residents[i].Use.affine(use) {
			return true
		}
	}
	return false
}
