package slot

import (
	"math/big"
	"testing"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// The oracle decides the same question by other means: it lists every configuration and solves the dual program in
// rational numbers with Bland's rule. It shares no code with the package.

// oracleFits follows the definition in docs/packing.md, "Slots".
func oracleFits(items []Item, reserve share.PerMille) bool {
	var part []Item
	sms, free := 0, 1000
	for _, i := range items {
		if i.SM < 1 || i.SM > 1000 || i.Quota < 1 || i.Quota > 1000 {
			return false
		}
		sms += int(i.SM)
		if i.Quota == 1000 {
			free -= int(i.SM)
		} else {
			part = append(part, i)
		}
	}
	if sms <= 1000 {
		return true
	}
	length := oracleLength(part, free)
	return length != nil && length.Cmp(big.NewRat(int64(1000-reserve), 1000)) <= 0
}

// oracleLength returns the least time, in windows, in which all items get their quota; nil if there is none.
func oracleLength(items []Item, free int) *big.Rat {
	var goal []*big.Rat
	for _, i := range items {
		if int(i.SM) > free {
			return nil
		}
		goal = append(goal, big.NewRat(int64(i.Quota), 1000))
	}
	if free < 0 {
		return nil
	}
	return maximum(goal, oracleConfigurations(items, free))
}

// oracleConfigurations returns the sets of items that fit together and to which no item can be added.
func oracleConfigurations(items []Item, free int) []uint {
	var sets []uint
	for set := uint(0); set < 1<<len(items); set++ {
		sum, smallest := 0, 1001
		for k, i := range items {
			if set>>k&1 == 1 {
				sum += int(i.SM)
			} else {
				smallest = min(smallest, int(i.SM))
			}
		}
		if sum <= free && sum+smallest > free {
			sets = append(sets, set)
		}
	}
	return sets
}

// maximum of goal·y over y >= 0 with y(C) <= 1 for every set C. The tableau has a row per set and the goal last; columns
// are the y, then one slack per set, then the right side.
func maximum(goal []*big.Rat, sets []uint) *big.Rat {
	n, m := len(goal), len(sets)
	tableau := make([][]*big.Rat, m+1)
	basic := make([]int, m)
	for row := range tableau {
		tableau[row] = make([]*big.Rat, n+m+1)
		for col := range tableau[row] {
			tableau[row][col] = new(big.Rat)
		}
		if row == m {
			break
		}
		for k := range n {
			tableau[row][k].SetInt64(int64(sets[row] >> k & 1))
		}
		tableau[row][n+row].SetInt64(1)
		tableau[row][n+m].SetInt64(1)
		basic[row] = n + row
	}
	for k := range n {
		tableau[m][k].Neg(goal[k])
	}
	for blandStep(tableau, basic) {
	}
	return tableau[m][n+m]
}

// blandStep makes one pivot, or returns false at the optimum.
func blandStep(tableau [][]*big.Rat, basic []int) bool {
	m, right := len(basic), len(tableau[0])-1
	enter := 0
	for enter < right && tableau[m][enter].Sign() >= 0 {
		enter++
	}
	if enter == right {
		return false
	}
	leave, best := -1, new(big.Rat)
	for row := range m {
		if tableau[row][enter].Sign() <= 0 {
			continue
		}
		ratio := new(big.Rat).Quo(tableau[row][right], tableau[row][enter])
		if c := ratio.Cmp(best); leave < 0 || c < 0 || c == 0 && basic[row] < basic[leave] {
			leave, best = row, ratio
		}
	}
	pivotRow(tableau, leave, enter)
	basic[leave] = enter
	return true
}

func pivotRow(tableau [][]*big.Rat, leave, enter int) {
	unit := new(big.Rat).Inv(tableau[leave][enter])
	for _, v := range tableau[leave] {
		v.Mul(v, unit)
	}
	for row := range tableau {
		if row == leave || tableau[row][enter].Sign() == 0 {
			continue
		}
		factor := new(big.Rat).Set(tableau[row][enter])
		for col, v := range tableau[row] {
			v.Sub(v, new(big.Rat).Mul(factor, tableau[leave][col]))
		}
	}
}

func TestOracleOnHandCases(t *testing.T) {
	three := []Item{percent(60, 40), percent(60, 40), percent(60, 40)}
	if got := oracleLength(three, 1000); got.Cmp(big.NewRat(6, 5)) != 0 {
		t.Errorf("three exclusive shares of 40 %% take %v windows, want 6/5", got)
	}
	cycle := []Item{percent(50, 60), percent(50, 60), percent(50, 60)}
	if got := oracleLength(cycle, 1000); got.Cmp(big.NewRat(9, 10)) != 0 {
		t.Errorf("three halves of 60 %% take %v windows, want 9/10", got)
	}
}

// Against the oracle: both results and the length, on small sets of every family.
func TestFitsAgreesWithOracle(t *testing.T) {
	solver := NewSolver()
	for at, name := range familyNames() {
		f, r := families[name], seeded(uint64(at))
		fit := 0
		for range 300 {
			items := draw(f, r, 1+r.IntN(6))
			if r.IntN(2) == 0 {
				items = enlarged(items)
			}
			for _, reserve := range []share.PerMille{0, 50} {
				want := oracleFits(items, reserve)
				if got := solver.Fits(items, reserve); got != want {
					t.Fatalf("%s: Fits(%v, %d) = %v, want %v", name, items, reserve, got, want)
				}
				if want {
					fit++
				}
			}
			compareLength(t, items)
		}
		t.Logf("%s: %d of 600 verdicts are yes", name, fit)
	}
}

// enlarged scales SMs so that their area is near the whole slice, where the question is hard.
func enlarged(items []Item) []Item {
	area := 0
	for _, i := range items {
		area += int(i.SM) * int(i.Quota)
	}
	for k := range items {
		items[k].SM = share.PerMille(max(1, min(1000, int(items[k].SM)*900_000/area)))
	}
	return items
}

func compareLength(t *testing.T, items []Item) {
	t.Helper()
	var part []Item
	free := 1000
	for _, i := range items {
		if i.Quota == 1000 {
			free -= int(i.SM)
		} else {
			part = append(part, i)
		}
	}
	want := oracleLength(part, free)
	got, ok := Length(items)
	if ok != (want != nil) {
		t.Fatalf("Length(%v) ok = %v, oracle %v", items, ok, want)
	}
	if !ok {
		return
	}
	if exact, _ := want.Float64(); got < exact-1e-9 || got > exact+1e-9 {
		t.Fatalf("Length(%v) = %v, want %v", items, got, exact)
	}
}
