package v1alpha1

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

func slotArgs(t *testing.T, raw string) (*SlotPackingArgs, error) {
	t.Helper()
	var args SlotPackingArgs
	err := Load(&runtime.Unknown{Raw: []byte(raw)}, &args)
	return &args, err
}

func TestDefaults(t *testing.T) {
	var args SlotPackingArgs
	if err := Decode(nil, &args); err != nil {
		t.Fatal(err)
	}
	args.Default()
	if err := args.Validate(); err != nil {
		t.Fatal(err)
	}
	if *args.GammaPercent != 150 || *args.CandidateNodes != 64 || args.Tenancy != Namespace || !*args.Balance.Scarcity {
		t.Errorf("defaults are %+v", args)
	}
}

func TestDecode(t *testing.T) {
	tests := map[string]struct{ raw, wantErr string }{
		"all set":       {raw: `{"gammaPercent":120,"tenancy":"mixed","window":"50ms","candidateNodes":0,"balance":{"scarcity":false}}`},
		"yaml":          {raw: "tenancy: mixed\n"},
		"with kind":     {raw: `{"apiVersion":"kubescheduler.config.k8s.io/v1","kind":"SlotPackingArgs"}`},
		"unknown field": {raw: `{"gama":1}`, wantErr: "gama"},
		"wrong type":    {raw: `{"gammaPercent":"much"}`, wantErr: "gammaPercent"},
		"low gamma":     {raw: `{"gammaPercent":99}`, wantErr: "gammaPercent: 99"},
		"tenancy":       {raw: `{"tenancy":"everyone"}`, wantErr: `"everyone"`},
		"no window":     {raw: `{"window":"0s"}`, wantErr: "window: 0s"},
		"window":        {raw: `{"window":"30ms"}`, wantErr: "window: 30ms"},
		"negative":      {raw: `{"candidateNodes":-1}`, wantErr: "negative"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := slotArgs(t, tt.raw)
			if tt.wantErr == "" && err != nil {
				t.Fatalf("unexpected error: %v", err)
			}
			if tt.wantErr != "" && (err == nil || !strings.Contains(err.Error(), tt.wantErr)) {
				t.Fatalf("error %v does not mention %s", err, tt.wantErr)
			}
		})
	}
}

func TestDecodeRefusesTypedObjects(t *testing.T) {
	if err := Decode(&metav1.Status{}, &SlotPackingArgs{}); err == nil {
		t.Error("a typed object was taken for raw args")
	}
}
