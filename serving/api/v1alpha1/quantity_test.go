package v1alpha1

import "testing"

func TestQuantity(t *testing.T) {
	for text, want := range map[Quantity]int64{
		"1525Mi": 1525 << 20, "1.5Gi": 3 << 29, "2e9": 2e9, "8E": 8e18, "0": 0, "1k": 1000,
		"1.073741824e+09": 1 << 30, "15250000E-1": 1525000, "+1Gi": 1 << 30, "1.0000000000000000000000000000Gi": 1 << 30, // as programs write numbers, such as Helm
		"": -1, "-1Gi": -1, "much": -1, "1e+": -1, "1525MiB": -1, "1 Gi": -1, "1Gi\n": -1,
		"12345678901234567890e999999999": -1, "0.1e-999999999": -1, "1e100": -1, "1e+100": -1, "111111111111111111111111111111111": -1,
	} {
		q, err := text.Parse()
		if (err != nil) != (want < 0) || err == nil && q.Value() != want {
			t.Errorf("%q: %v, %v, want %d", text, q.Value(), err, want)
		}
	}
}
