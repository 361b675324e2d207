package share

import (
	"slices"
	"strconv"
	"strings"
	"testing"
)

// digest returns a digest of one repeated digit.
func digest(digit string) Digest { return Digest("sha256:" + strings.Repeat(digit, 64)) }

func TestParseWeights(t *testing.T) {
	a, b := digest("a"), digest("0")
	for name, tc := range map[string]struct {
		text string
		want []Weights
	}{
		"none":          {"", nil},
		"one":           {string(a) + "=2634Mi", []Weights{{a, 2634 * MiB}}},
		"sorted":        {string(a) + "=2Gi," + string(b) + "=1Mi", []Weights{{b, MiB}, {a, 2048 * MiB}}},
		"outer space":   {" " + string(a) + "=1Ti ,\u2003\n" + string(b) + "=3Mi", []Weights{{b, 3 * MiB}, {a, 1 << 40}}},
		"the most each": {string(a) + "=1024Ti", []Weights{{a, MaxMemory}}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ParseWeights(tc.text)
			if err != nil || !slices.Equal(got, tc.want) {
				t.Errorf("ParseWeights(%q) = %v, %v, want %v", tc.text, got, err, tc.want)
			}
			terms, err := NewTerms(RawTerms{Weights: tc.text})
			if err != nil || !slices.Equal(terms.Weights, tc.want) {
				t.Errorf("NewTerms = %v, %v, want %v", terms.Weights, err, tc.want)
			}
		})
	}
}

func TestParseWeightsRefuses(t *testing.T) {
	a := string(digest("a"))
	nine := make([]string, MaxWeights+1)
	for i := range nine {
		nine[i] = string(digest(strconv.Itoa(i))) + "=1Mi"
	}
	if _, err := ParseWeights(strings.Join(nine[1:], ",")); err != nil {
		t.Errorf("%d entries are refused: %v", MaxWeights, err)
	}
	for name, tc := range map[string]struct{ text, wantErr string }{
		"too many":        {strings.Join(nine, ","), "more than 8 entries"},
		"endless":         {strings.Repeat(",", 1<<18), "more than 8 entries"},
		"no size":         {a, `"" is not a whole number of Mi`},
		"empty size":      {a + "=", `"" is not a whole number of Mi`},
		"size of 0":       {a + "=0Mi", "0 MiB is outside"},
		"negative size":   {a + "=-1Mi", "-1 MiB is outside"},
		"bytes":           {a + "=2634", `"2634" is not`},
		"decimal unit":    {a + "=2634M", `"2634M" is not`},
		"fraction":        {a + "=1.5Gi", `"1.5Gi" is not`},
		"too large":       {a + "=1025Ti", "is outside 1 to 1073741824"},
		"two sizes":       {a + "=1Mi=2Mi", `"1Mi=2Mi" is not`},
		"empty entry":     {a + "=1Mi,", `"" is not a whole number`},
		"only a comma":    {",", `"" is not a whole number`},
		"no algorithm":    {strings.Repeat("a", 64) + "=1Mi", "is not sha256: and 64"},
		"other algorithm": {"sha512:" + strings.Repeat("a", 64) + "=1Mi", "is not sha256: and 64"},
		"short":           {"sha256:abc=1Mi", `"sha256:abc" is not`},
		"long":            {a + "a=1Mi", "is not sha256: and 64"},
		"capitals":        {"sha256:" + strings.Repeat("A", 64) + "=1Mi", "is not sha256: and 64"},
		"inner space":     {a + " =1Mi", "is not sha256: and 64"},
		"line break":      {a + "\n=1Mi", "is not sha256: and 64"},
		"not hexadecimal": {"sha256:" + strings.Repeat("g", 64) + "=1Mi", "is not sha256: and 64"},
		"twice":           {a + "=1Mi," + a + "=2Mi", "is out of order or named twice"},
		"long text":       {strings.Repeat("x", 1<<18) + "=1Mi", "is not sha256: and 64"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ParseWeights(tc.text)
			wantRefusal(t, err, "gshare.dev/weights: ")
			if got != nil || !strings.Contains(err.Error(), tc.wantErr) || len(err.Error()) > 256 {
				t.Errorf("ParseWeights = %v, %.300q, want a short error with %q", got, err, tc.wantErr)
			}
			if _, err := NewTerms(RawTerms{Weights: tc.text}); err == nil {
				t.Error("NewTerms accepts it")
			}
		})
	}
}

func TestValidateWeightsRefuses(t *testing.T) {
	a, b := digest("a"), digest("b")
	for name, list := range map[string][]Weights{
		"out of order":  {{b, MiB}, {a, MiB}},
		"twice":         {{a, MiB}, {a, MiB}},
		"no memory":     {{a, 0}},
		"below zero":    {{a, -1}},
		"above maximum": {{a, MaxMemory + 1}},
		"no digest":     {{"", MiB}},
		"too many":      slices.Repeat([]Weights{{a, MiB}}, MaxWeights+1),
	} {
		t.Run(name, func(t *testing.T) { wantRefusal(t, ValidateWeights(list), "gshare.dev/weights: ") })
	}
}

// FuzzParseWeights checks that an accepted list is valid, and that its own text is parsed to the same list.
func FuzzParseWeights(f *testing.F) {
	a, b := string(digest("a")), string(digest("0"))
	for _, text := range []string{a + "=2634Mi", a + "=2Gi, " + b + "=1Ti", a + "=1Mi," + a + "=1Mi", ",", "=", a + "=99999999999Ti"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		list, err := ParseWeights(text)
		if err != nil {
			wantRefusal(t, err, "gshare.dev/weights: ")
			return
		}
		if err := ValidateWeights(list); err != nil {
			t.Fatalf("%q is accepted and invalid: %v", text, err)
		}
		entries := make([]string, len(list))
		for i, w := range list {
			entries[i] = string(w.Digest) + "=" + strconv.FormatInt(int64(w.Memory/MiB), 10) + "Mi"
			if !strings.Contains(text, string(w.Digest)) {
				t.Errorf("%q has no %s", text, w.Digest)
			}
		}
		if again, err := ParseWeights(strings.Join(entries, ",")); err != nil || !slices.Equal(again, list) {
			t.Errorf("%v becomes %v, %v", list, again, err)
		}
	})
}
