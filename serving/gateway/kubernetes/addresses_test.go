package kubernetes

import (
	"context"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// at returns a pod with IP addresses.
func at(namespace, name, uid string, ips ...string) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(uid)}}
	for i, ip := range ips {
		if i == 0 {
			p.Status.PodIP = ip
		}
		p.Status.PodIPs = append(p.Status.PodIPs, v1.PodIP{IP: ip})
	}
	return p
}

func TestAddresses(t *testing.T) {
	onHost := at("models", "host", "1", "10.0.0.1")
	onHost.Spec.HostNetwork = true
	ended, failed := at("models", "ended", "1", "10.0.0.1"), at("models", "failed", "1", "10.0.0.1")
	ended.Status.Phase, failed.Status.Phase = v1.PodSucceeded, v1.PodFailed
	add := func(pods ...*v1.Pod) func(*Addresses) error {
		return func(a *Addresses) error {
			for _, p := range pods {
				if err := a.Add(p); err != nil {
					return err
				}
			}
			return nil
		}
	}
	a, b := at("models", "a", "1", "10.0.0.1", "fd00::1"), at("models", "b", "2", "10.0.0.1")
	for name, test := range map[string]struct {
		change  func(*Addresses) error
		address string
		want    string // expected namespace; empty: none
	}{
		"pod":                    {add(a), "10.0.0.1", "models"},
		"second address":         {add(a), "fd00::1", "models"},
		"mapped":                 {add(a), "::ffff:10.0.0.1", "models"},
		"other address":          {add(a), "10.0.0.2", ""},
		"no address yet":         {add(at("models", "a", "1")), "10.0.0.1", ""},
		"host network":           {add(onHost), "10.0.0.1", ""},
		"ended":                  {add(ended, failed), "10.0.0.1", ""},
		"ends":                   {func(x *Addresses) error { e := a.DeepCopy(); e.Status.Phase = v1.PodFailed; return add(a, e)(x) }, "10.0.0.1", ""},
		"another address":        {add(a, at("models", "a", "1", "10.0.0.3")), "10.0.0.1", ""},
		"made again":             {add(a, at("models", "a", "2", "10.0.0.3")), "10.0.0.3", "models"},
		"deleted":                {func(x *Addresses) error { _ = x.Add(a); return x.Delete(a) }, "10.0.0.1", ""},
		"earlier one is deleted": {func(x *Addresses) error { _ = x.Add(at("models", "a", "2", "10.0.0.1")); return x.Delete(a) }, "10.0.0.1", "models"},
		"two of a namespace":     {add(a, b), "10.0.0.1", "models"},
		"two namespaces":         {add(a, at("others", "c", "3", "10.0.0.1")), "10.0.0.1", ""},
		"one of two is left":     {func(x *Addresses) error { _ = add(a, at("others", "c", "3", "10.0.0.1"))(x); return x.Delete(a) }, "10.0.0.1", "others"},
		"replaced": {func(x *Addresses) error {
			_ = x.Add(a)
			return x.Replace([]any{at("others", "d", "4", "10.0.0.9")}, "")
		}, "10.0.0.1", ""},
		"by a list": {func(x *Addresses) error { return x.Replace([]any{a}, "") }, "10.0.0.1", "models"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x := NewAddresses()
				if err := test.change(x); err != nil {
					t.Fatal(err)
				}
				got, err := x.Namespace(t.Context(), netip.MustParseAddr(test.address).Unmap())
				if got != test.want || (err == nil) != (test.want != "") {
					t.Errorf("namespace %q, error %v; want %q", got, err, test.want)
				}
				for address, pods := range x.byIP {
					if len(pods) == 0 {
						t.Errorf("%v is kept for nobody", address)
					}
				}
			})
		})
	}
}

// TestAddressWait: a request from a pod whose address is not known yet waits for the address, but only for a short time, and
// only a limited number of requests wait.
func TestAddressWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := NewAddresses()
		address := netip.MustParseAddr("10.0.0.1")
		type answer struct {
			namespace string
			took      time.Duration
		}
		ask := func(ctx context.Context) answer {
			begin := time.Now()
			namespace, _ := a.Namespace(ctx, address)
			return answer{namespace, time.Since(begin)}
		}
		answers := make(chan answer, maxAddressWaiters)
		for range maxAddressWaiters {
			go func() { answers <- ask(t.Context()) }()
		}
		synctest.Wait()
		if got := ask(t.Context()); got != (answer{}) {
			t.Errorf("one too many waited: %+v", got)
		}
		time.Sleep(time.Second)
		_ = a.Add(at("others", "x", "1", "10.0.0.2"))
		synctest.Wait()
		_ = a.Add(at("models", "a", "2", "10.0.0.1"))
		for range maxAddressWaiters {
			if got := <-answers; got != (answer{"models", time.Second}) {
				t.Errorf("%+v", got)
			}
		}
		_ = a.Replace(nil, "")
		if got := ask(t.Context()); got != (answer{"", addressWait}) {
			t.Errorf("in vain: %+v", got)
		}
		gone, leave := context.WithTimeout(t.Context(), time.Second)
		defer leave()
		if got := ask(gone); got != (answer{"", time.Second}) {
			t.Errorf("a client that leaves: %+v", got)
		}
		if a.waiting != 0 {
			t.Errorf("%d wait", a.waiting)
		}
	})
}

// TestSlimAddresses: of a pod, only what its addresses depend on is kept.
func TestSlimAddresses(t *testing.T) {
	p := at("models", "a", "1", "10.0.0.1")
	p.Spec.HostNetwork, p.Status.Phase, p.ResourceVersion = true, v1.PodRunning, "7"
	full := p.DeepCopy()
	full.Labels, full.Spec.Containers = map[string]string{"app": "x"}, []v1.Container{{Name: "server"}}
	full.Annotations = map[string]string{"secret": "x"}
	got, err := NewAddresses().Transformer()(full)
	if err != nil || got.(*v1.Pod).String() != p.String() {
		t.Errorf("%v, error %v, want %v", got, err, p)
	}
	full.Annotations[metav1.InitialEventsAnnotationKey] = "true"
	if got, _ := NewAddresses().Transformer()(full); len(got.(*v1.Pod).Annotations) != 1 {
		t.Errorf("annotations %v, want that of the end of the list", got.(*v1.Pod).Annotations)
	}
}
