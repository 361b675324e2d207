package kube

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/gshare-dev/gshare/vgpu/share"
)

func FuzzDecodeInventory(f *testing.F) {
	seed(f, "testdata/inventory.json", `{"v":1,"slices":[]}`, `{"v":1,"slices":null}`, `{"v":1,"slices":[{"classes":[]}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		inv, err := DecodeInventory(text)
		if err != nil {
			wantMalformed(t, err)
			return
		}
		if err := inv.Validate(); err != nil {
			t.Errorf("accepted an invalid inventory: %v", err)
		}
		again, err := EncodeInventory(inv)
		if err != nil {
			t.Fatal(err)
		}
		back, err := DecodeInventory(again)
		if diff := cmp.Diff(inv, back); err != nil || diff != "" {
			t.Errorf("%v, inventory changed on the way:\n%s", err, diff)
		}
	})
}

func FuzzDecodePlacement(f *testing.F) {
	seed(f, "testdata/placement.json", `{"v":1,"containers":[{"vgpus":null}]}`, `{"v":1}`)
	f.Fuzz(func(t *testing.T, text string) {
		p, err := DecodePlacement(text)
		if err != nil {
			wantMalformed(t, err)
			return
		}
		if err := p.Validate(); err != nil {
			t.Errorf("accepted an invalid placement: %v", err)
		}
		again, err := EncodePlacement(p)
		if err != nil {
			t.Fatal(err)
		}
		back, err := DecodePlacement(again)
		if diff := cmp.Diff(p, back); err != nil || diff != "" {
			t.Errorf("%v, placement changed on the way:\n%s", err, diff)
		}
	})
}

func FuzzRequest(f *testing.F) {
	f.Add("24", "40", "8192", "1", "48", "80", "slo", "mps", "A100,H200", "resnet", "gpu", "strict", weightsA+"=2634Mi", "spread", "bert")
	f.Add("100", "100", "4", "2", "60", "", "", "elastic", "", "", "1g.18gb", "best-effort", "", "", "")
	f.Add("1e300000000", "2e300000000", "9e999999999", "1e2000000000", "", "", "", "", "", "", "", "", "=", "x", "")
	f.Add("0e999999999", "e999999999", "0e999999999", "e999999999", "", "", "", "", "", "", "", "", ",", "", "a b")
	f.Add("500m", "1e30", "8Gi", "-1", "48%", "0", "gold", "swap", ",", "a b", "half", "none", "sha256:x=1Mi", "", "")
	f.Fuzz(func(t *testing.T, sm, quota, memory, vgpus, smLimit, quotaLimit, class, isolation, model, workload, slice, enforcement, weights, packing, apart string) {
		pod := podOf(map[string]string{
			AnnotationSMLimit: smLimit, AnnotationQuotaLimit: quotaLimit, AnnotationClass: class, AnnotationIsolation: isolation,
			AnnotationModel: model, AnnotationWorkload: workload, AnnotationSlice: slice, AnnotationEnforcement: enforcement,
			AnnotationWeights: weights, AnnotationPacking: packing, AnnotationAntiAffinity: apart, AnnotationContainerSlice + "main": slice,
		}, v1.Container{Name: "main", Resources: v1.ResourceRequirements{Limits: parsed(sm, quota, memory, vgpus)}})
		Complete(pod)
		req, asks, err := RequestOf(pod)
		if err == nil && asks {
			if err := req.Validate(); err != nil {
				t.Errorf("accepted an invalid request: %v", err)
			}
			return
		}
		var field *share.FieldError
		if asks && (!errors.As(err, &field) || len(err.Error()) > 1024) {
			t.Errorf("refusal is no field error, or too long: %v", err)
		}
	})
}

// parsed leaves out what is no quantity, which no API server lets through, and what ParseQuantity itself takes minutes
// for: 1e-300000000, exponents of more than 32 bits, and long mantissas with an exponent.
func parsed(sm, quota, memory, vgpus string) v1.ResourceList {
	list := v1.ResourceList{}
	for name, text := range map[v1.ResourceName]string{ResourceSM: sm, ResourceQuota: quota, ResourceMemory: memory, ResourceVGPU: vgpus} {
		if exponent := strings.IndexAny(text, "eE"); len(text) > 16 || exponent >= 0 && (strings.Contains(text[1:], "-") || len(text)-exponent > 10) {
			continue
		}
		if q, err := resource.ParseQuantity(text); err == nil {
			list[name] = q
		}
	}
	return list
}

func seed(f *testing.F, file string, texts ...string) {
	golden, err := os.ReadFile(file)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(golden))
	for _, text := range texts {
		f.Add(text)
	}
}
