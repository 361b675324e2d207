package v1alpha1

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestLimitOf(t *testing.T) {
	p := &SharePolicy{ObjectMeta: metav1.ObjectMeta{Name: "gold"}, Spec: SharePolicySpec{Tenants: []Tenant{
		{Namespace: AnyNamespace, MaxReplicas: new(int32(3))},
		{Namespace: "vision", MaxSMPercent: new(int64(250)), MaxMemory: new(Quantity("1.5Gi"))},
		{Namespace: "broken", MaxMemory: new(Quantity("much"))},
	}}}
	only := &SharePolicy{Spec: SharePolicySpec{Tenants: p.Spec.Tenants[1:]}}
	for name, test := range map[string]struct {
		policy    *SharePolicy
		namespace string
		want      string
	}{
		"its own":            {p, "vision", "gold: SM-time 2500000, memory 1536 MiB"},
		"that of others":     {p, "chat", "gold: replicas 3"},
		"not of this one":    {only, "chat", "nothing"},
		"no quantity":        {p, "broken", "gold: memory 0 MiB"},
		"no name":            {p, "", "gold: replicas 3"},
		"the name of others": {only, AnyNamespace, "nothing"},
	} {
		t.Run(name, func(t *testing.T) {
			got := "nothing"
			if limit, limited := test.policy.LimitOf(test.namespace); limited {
				got = limit.Policy + ":"
				if limit.Replicas != nil {
					got += fmt.Sprintf(" replicas %d", *limit.Replicas)
				}
				if limit.Area != nil {
					got += fmt.Sprintf(" SM-time %d,", *limit.Area)
				}
				if limit.Memory != nil {
					got += fmt.Sprintf(" memory %d MiB", *limit.Memory)
				}
			}
			if got != test.want {
				t.Errorf("%s, want %s", got, test.want)
			}
		})
	}
}
