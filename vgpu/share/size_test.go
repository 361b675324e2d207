package share

import (
	"errors"
	"strconv"
	"strings"
	"testing"
)

func TestParseMemorySize(t *testing.T) {
	for text, want := range map[string]int64{
		"1Mi": 1, "512Mi": 512, "16Gi": 16384, "80Gi": 81920, "2Ti": 2 << 20, "1024Ti": 1 << 30, "1073741824Mi": 1 << 30,
	} {
		t.Run(text, func(t *testing.T) {
			if got, err := ParseMemorySize(text); err != nil || *got != want {
				t.Errorf("%v, %v, want %d MiB", got, err, want)
			}
		})
	}
	if got, err := ParseMemorySize(""); got != nil || err != nil {
		t.Errorf("%v, %v for a size that is not written", got, err)
	}
}

func TestParseMemorySizeRefuses(t *testing.T) {
	for _, text := range []string{
		"16", "16G", "16GB", "16GiB", "16gi", "16 Gi", " 16Gi", "16Gi ", "16Gi\n", "1.5Gi", "1e3Mi", "016Gi", "+16Gi", "-16Gi", "0Gi", "Gi", "i", "16Ki", "16Ei",
		"1025Ti", "1073741825Mi", "9999999999Ti", "10000000000Mi", "99999999999999999999Gi", "50%", "\u0661Gi", strings.Repeat("9", 1000) + "Gi",
	} {
		t.Run(text, func(t *testing.T) {
			_, err := ParseMemorySize(text)
			var field *FieldError
			if !errors.As(err, &field) || field.Field != FieldMemorySize || len(err.Error()) > 200 {
				t.Errorf("%v, want a short error that names %s", err, FieldMemorySize)
			}
		})
	}
}

// A size is what a Kubernetes quantity of the same text is, in MiB.
func FuzzParseMemorySize(f *testing.F) {
	for _, text := range []string{"16Gi", "1024Ti", "1.5Gi", "0Mi", "1073741824Mi"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := ParseMemorySize(text)
		if err != nil || got == nil {
			return
		}
		if *got < 1 || *got > 1<<30 {
			t.Fatalf("%q is %d MiB", text, *got)
		}
		unit := strings.TrimLeft(text, "0123456789")
		number, _ := strconv.ParseInt(strings.TrimSuffix(text, unit), 10, 64)
		if *got%sizeUnits[unit] != 0 || *got/sizeUnits[unit] != number {
			t.Errorf("%q is %d MiB", text, *got)
		}
	})
}
