package usage

import (
	"strings"
	"testing"
)

func TestParseAssumption(t *testing.T) {
	for text, want := range map[string]Assumption{
		"sm=30":                         {SM: 30, Quota: 100, MemoryPercent: 50},
		"quota=20,mem=4096":             {SM: 50, Quota: 20, MemoryMiB: 4096},
		"sm=50,quota=100,mem=50%":       DefaultAssumption,
		"mem=10%,sm=1":                  {SM: 1, Quota: 100, MemoryPercent: 10},
		DefaultAssumption.String():      DefaultAssumption,
		Assumption{1, 2, 3, 0}.String(): {1, 2, 3, 0},
	} {
		t.Run(text, func(t *testing.T) {
			if got, err := ParseAssumption(text); err != nil || got != want {
				t.Errorf("%q: %+v, %v; want %+v", text, got, err, want)
			}
		})
	}
	for _, text := range []string{"", "sm", "sm=0", "sm=101", "quota=1.5", "mem=0", "mem=101%", "mem=-1", "cpu=1", "sm=50,", "mem=99999999999"} {
		t.Run(text, func(t *testing.T) {
			if got, err := ParseAssumption(text); err == nil {
				t.Errorf("%q gave %+v", text, got)
			}
		})
	}
}

func FuzzParseAssumption(f *testing.F) {
	f.Add("sm=50,quota=100,mem=50%")
	f.Fuzz(func(t *testing.T, text string) {
		a, err := ParseAssumption(text)
		if err != nil {
			return
		}
		if again, err := ParseAssumption(a.String()); err != nil || again != a {
			t.Errorf("%q reads as %+v, which reads back as %+v, %v", text, a, again, err)
		}
	})
}

const header = "namespace,pod,sm_percent,memory_mib\n"

func TestRead(t *testing.T) {
	u, err := Read(strings.NewReader(header + "ml,a,12.3,1000\nml,a,9,2000.5\nml,b,0,0\n"))
	if err != nil || len(u) != 2 || u[Pod{"ml", "a"}] != (Measured{13, 2001}) || u[Pod{"ml", "b"}] != (Measured{1, 1}) {
		t.Errorf("%v, %v", u, err)
	}
	for _, text := range []string{"", "pod,sm\n", header + "ml,a,12\n", header + "ml,a,101,1\n", header + "ml,a,NaN,1\n", header + "ml,a,1,-1\n", header + "ml,a,x,1\n", header + "ml,\"a,1,1\n"} {
		t.Run(text, func(t *testing.T) {
			if u, err := Read(strings.NewReader(text)); err == nil {
				t.Errorf("%q gave %v", text, u)
			}
		})
	}
	if _, err := Read(strings.NewReader(header + "ml,a,1,1\nml,b,500,1\n")); err == nil || !strings.Contains(err.Error(), "line 3") {
		t.Errorf("%v names no line", err)
	}
}

func FuzzRead(f *testing.F) {
	f.Add(header + "ml,a,12.3,1000\n")
	f.Fuzz(func(t *testing.T, text string) {
		u, err := Read(strings.NewReader(text))
		for name, m := range u {
			if err != nil || m.SM < 1 || m.SM > 100 || m.MemoryMiB < 1 || m.MemoryMiB > maxMiB {
				t.Errorf("%v: %+v, %v", name, m, err)
			}
		}
	})
}
