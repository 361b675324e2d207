package node

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/token"
)

const head = "apiVersion: gshare.dev/v1alpha1\nkind: NodeConfiguration\n"

func TestDecode(t *testing.T) {
	c, err := Decode([]byte(head + "window: 50ms\n"))
	if err != nil {
		t.Fatal(err)
	}
	if c.Window.Duration != 50*time.Millisecond || c.Turn.Duration != 5*time.Millisecond || *c.ReservePerMille != 50 ||
		*c.GammaPercent != 150 || c.MaxShares != 16 || c.Tenancy != "user" || c.TokenPolicy != "table" {
		t.Errorf("got %+v", c)
	}
}

func TestRules(t *testing.T) {
	for text, want := range map[string]kube.Rules{
		"": {GammaPercent: 150, Window: metav1.Duration{Duration: 100 * time.Millisecond}},
		"gammaPercent: 200\ntenancy: mixed\nwindow: 50ms\n": {GammaPercent: 200, MixTenants: true, Window: metav1.Duration{Duration: 50 * time.Millisecond}},
	} {
		t.Run(text, func(t *testing.T) {
			c, err := Decode([]byte(head + text))
			if err != nil || c.Rules() != want {
				t.Errorf("%v, got %+v, want %+v", err, c.Rules(), want)
			}
		})
	}
}

func TestZeroReserveIsNotTheDefault(t *testing.T) {
	if c, err := Decode([]byte(head + "reservePerMille: 0\n")); err != nil || *c.ReservePerMille != 0 {
		t.Errorf("got %+v, %v", c, err)
	}
}

// TestTokenPoliciesAreDescribed: the table of docs/operate.md says of each token policy what it does, and of no other.
func TestTokenPoliciesAreDescribed(t *testing.T) {
	page, err := os.ReadFile("../../../../docs/operate.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "## Order of time tokens")
	table, _, _ = strings.Cut(table, "\n## ")
	var got, want []string
	for _, row := range regexp.MustCompile("(?m)^\\| `(\\w+)`").FindAllStringSubmatch(table, -1) {
		got = append(got, row[1])
	}
	for _, policy := range token.Policies() {
		want = append(want, policy.String())
	}
	if !slices.Equal(got, want) {
		t.Errorf("docs/operate.md, Order of time tokens, has rows for %v, want %v", got, want)
	}
}

// TestContextReserve: simulated devices are promised whole unless the configuration says otherwise.
func TestContextReserve(t *testing.T) {
	for text, want := range map[string]int64{
		"":                            1024,
		"contextReserveMiB: 0\n":      0,
		"contextReserveMiB: 2048\n":   2048,
		"simulatedDevices: /d.yaml\n": 0,
		"simulatedDevices: /d.yaml\ncontextReserveMiB: 512\n": 512,
	} {
		t.Run(text, func(t *testing.T) {
			c, err := Decode([]byte(head + text))
			if err != nil || *c.ContextReserveMiB != want {
				t.Errorf("%v, got %d MiB, want %d", err, *c.ContextReserveMiB, want)
			}
		})
	}
}

func TestDecodeRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"":                                    "want NodeConfiguration",
		"kind: NodeConfiguration\n":           "want NodeConfiguration",
		head + "windows: 1s\n":                "windows",
		head + "tenancy: all\n":               "tenancy",
		head + "window: 30ms\n":               "window",
		head + "window: -1s\n":                "window",
		head + "window: 5ms\nturn: 1ms\n":     "window",
		head + "debugAddress: \":9477\"\n":    "debugAddress",
		head + "debugAddress: 127.0.0.1\n":    "debugAddress",
		head + "debugAddress: 10.0.0.1:80\n":  "debugAddress",
		head + "simulatedMPS: /m\n":           "simulatedMPS",
		head + "mpsVersion: 1\n":              "mpsVersion",
		head + "turn: 1us\n":                  "turn",
		head + "tokenPolicy: hol\n":           "tokenPolicy",
		head + "runAhead: 1s\n":               "runAhead",
		head + "maxShares: 61\n":              "maxShares",
		head + "gammaPercent: 99\n":           "gammaPercent",
		head + "reservePerMille: 501\n":       "reservePerMille",
		head + "contextReserveMiB: -1\n":      "contextReserveMiB",
		head + "contextReserveMiB: 2000000\n": "contextReserveMiB",
		head + "maxShares: 1\nmaxShares: 2\n": "maxShares",
	} {
		t.Run(text, func(t *testing.T) {
			if _, err := Decode([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%q: %v; want an error with %q", text, err, want)
			}
		})
	}
}
