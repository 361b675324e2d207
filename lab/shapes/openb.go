package shapes

// gridSM are the SM shares, in percent, that FaST-GShare profiles (FG-20).
var gridSM = []int{6, 12, 24, 50, 60, 80, 100}

// OfMilliGPU is the pod that asks for the n-th part of a thousand of a GPU, between 1 and 1000, as the traces of openb
// state it: the smallest SM share of the grid that holds it, for as much of the time as makes the same SM-time.
func OfMilliGPU(n int) Pod {
	for _, sm := range gridSM {
		if 10*sm >= n {
			return percent(min(100, (10*n+sm-1)/sm), sm)
		}
	}
	return percent(100, 100)
}
