package shapes

import "testing"

// A price is what the best use of the rest leaves of the time: beside 60 % of the SMs only the 40 % of the mix help.
func TestPrices(t *testing.T) {
	for name, c := range map[string]struct {
		mix  []Pod
		of   Pod
		want int64 // GPUs, in millionths
	}{
		"unknown is SM-time":    {nil, percent(50, 80), 400_000},
		"nothing fits beside":   {repeat(8, percent(50, 60)), percent(50, 60), 500_000},
		"three fit":             {repeat(8, percent(50, 30)), percent(100, 30), 333_000},
		"wide, with a mate":     {append(repeat(8, percent(100, 60)), repeat(8, percent(50, 40))...), percent(100, 60), 1_000_000},
		"the mate rides along":  {append(repeat(8, percent(100, 60)), repeat(8, percent(50, 40))...), percent(50, 40), 0},
		"mates that fill a GPU": {append(repeat(4, percent(50, 60)), repeat(12, percent(100, 40))...), percent(100, 40), 500_000},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPrices(0)
			for _, pod := range c.mix {
				p.learn(pod)
			}
			if got := int64(p.worth(c.of)); got != c.want {
				t.Errorf("worth %d, want %d", got, c.want)
			}
		})
	}
}

func repeat(n int, p Pod) []Pod {
	var pods []Pod
	for range n {
		pods = append(pods, p)
	}
	return pods
}

// What the prices are for: with shares of 60 % and more of the SMs, the fullest GPU in SM-time is not the fullest.
func TestPricesSaveGPUs(t *testing.T) {
	priced, plain := 0, 0
	for seed := range uint64(10) {
		pods := Draw(Families()["fastgrid"], 1000, seed)
		priced += mustFill(t, "slot", pods, 0)
		plain += mustFill(t, "slot-best-fit", pods, 0)
	}
	t.Logf("%d GPUs for %d", priced, plain)
	if float64(priced) > 0.997*float64(plain) {
		t.Errorf("%d GPUs with prices, %d without", priced, plain)
	}
}
