package kube

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gshare-dev/gshare/vgpu/share"
)

func TestSMLimitNow(t *testing.T) {
	for text, want := range map[string]share.PerMille{ // 0: refused
		"": 600, "40": 400, "100": 1000, "0": 0, "101": 0, "-1": 0, "4e1": 0, "40%": 0, "99999999999999999999": 0,
	} {
		t.Run(text, func(t *testing.T) {
			pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{AnnotationSMLimit: text}}}
			if got, err := SMLimitOf(pod, 600); got != want || (err != nil) != (want == 0) {
				t.Errorf("%q: %v, %v; want %v", text, got, err, want)
			}
		})
	}
	if got, err := SMLimitOf(&v1.Pod{}, 600); got != 600 || err != nil {
		t.Errorf("nothing said: %v, %v", got, err)
	}
}

func TestTrialQuota(t *testing.T) {
	for text, want := range map[string]share.PerMille{ // 0: refused
		"": 600, "40": 400, "60": 600, "61": 0, "100": 0, "0": 0, "-1": 0, "4e1": 0, "40%": 0, "99999999999999999999": 0,
	} {
		t.Run(text, func(t *testing.T) {
			pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{AnnotationTrialQuota: text}}}
			got, said, err := TrialQuotaOf(pod, 600)
			if refused := want == 0; refused != (err != nil) || refused && got != 600 || !refused && got != want || said == (text == "" || refused) {
				t.Errorf("%q: %v, %t, %v; want %v", text, got, said, err, want)
			}
		})
	}
}
