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
	if *args.CandidateNodes != 64 || !*args.Balance.Scarcity {
		t.Errorf("defaults are %+v", args)
	}
}

func TestDecode(t *testing.T) {
	tests := map[string]struct{ raw, wantErr string }{
		"all set":       {raw: `{"candidateNodes":0,"balance":{"scarcity":false}}`},
		"yaml":          {raw: "candidateNodes: 8\n"},
		"with kind":     {raw: `{"apiVersion":"kubescheduler.config.k8s.io/v1","kind":"SlotPackingArgs"}`},
		"unknown field": {raw: `{"gama":1}`, wantErr: "gama"},
		"wrong type":    {raw: `{"candidateNodes":"many"}`, wantErr: "candidateNodes"},
		"not a mapping": {raw: "gammaPercent", wantErr: "decode plugin args"},
		"gamma":         {raw: `{"gammaPercent":150}`, wantErr: "gammaPercent: is now set on the nodes: remove it here, and set gammaPercent in"},
		"tenancy":       {raw: "candidateNodes: 8\ntenancy: namespace\n", wantErr: "tenancy: is now set on the nodes"},
		"window":        {raw: `{"window":null}`, wantErr: "window: is now set on the nodes"},
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
