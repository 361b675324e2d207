package shapes

// gridSM is the SM shares, in percent, that FaST-GShare profiles (FG-20).
var gridSM = []int{6, 12, 24, 50, 60, 80, 100}

// OfMilliGPU returns the pod for n thousandths of a GPU, 1 to 1000, as in openb: the smallest SM share of the grid that holds
// them, and the quota that makes the same SM-time.
func OfMilliGPU(n int) Pod {
	for _, sm := range gridSM {
		if 10*sm >= n {
			return percent(min(100, (10*n+sm-1)/sm), sm)
		}
	}
	return percent(100, 100)
}
