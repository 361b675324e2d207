package packing

import "testing"

func TestRefusals(t *testing.T) {
	never := map[Refusal]bool{
		NoSlices: true, WrongKind: true, WrongModel: true, Unhealthy: true, NotEnforceable: true, NoStore: true, TooLarge: true, TooFewDevices: true,
	}
	seen := map[string]bool{}
	for r := Admitted; r <= NoJointPlacement; r++ {
		if r.NeverFits() != never[r] {
			t.Errorf("%q: NeverFits is %v", r, r.NeverFits())
		}
		if r.String() == "" || seen[r.String()] {
			t.Errorf("refusal %d has the text %q, empty or used twice", r, r)
		}
		seen[r.String()] = true
	}
	if len(refusalText) != int(NoJointPlacement)+1 {
		t.Errorf("%d texts", len(refusalText))
	}
}
