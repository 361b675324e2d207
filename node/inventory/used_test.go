package inventory

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gshare-dev/gshare/node/gpu"
)

// numbered gives devices the numbers of their places.
func numbered(devices ...gpu.Device) []gpu.Device {
	for i := range devices {
		devices[i].Index = i
	}
	return devices
}

func TestOwnedBy(t *testing.T) {
	devices := numbered(whole("a"), mig("b", "x"), whole("c"))
	for _, test := range []struct{ owned, want []string }{
		{nil, []string{"a", "x", "c"}}, {[]string{"a"}, []string{"a"}}, {[]string{"1"}, []string{"x"}},
		{[]string{"2", "b"}, []string{"x", "c"}}, {[]string{"3", "x"}, nil},
	} {
		t.Run(fmt.Sprint(test.owned), func(t *testing.T) {
			c := config
			c.Owned = test.owned
			if diff := cmp.Diff(test.want, ids(Inventory{}.Update(c, devices, Holders{Bound: false}))); diff != "" {
				t.Errorf("owns %v\n%s", test.owned, diff)
			}
		})
	}
}

// TestMark: a used slice is not offered and takes nobody; a mark that is taken away leaves what else there was.
func TestMark(t *testing.T) {
	sick := whole("b")
	sick.Fault = "Xid 79"
	c := config
	c.Cordoned = []string{"c"}
	inv := Inventory{}.Update(c, []gpu.Device{whole("a"), sick, whole("c"), whole("d")}, Holders{Bound: false})
	marked := inv.WithUsed(map[string]string{"a": "a pod", "b": "another", "gone": "a third"})
	if diff := cmp.Diff([]string{"a used", "b fault", "c cordoned", "d"}, ids(marked)); diff != "" {
		t.Error(diff)
	}
	if s := marked.Slices(); s[0].Used != "a pod" || s[3].Used != "" {
		t.Errorf("used by %q and %q", s[0].Used, s[3].Used)
	}
	if diff := cmp.Diff(inv, marked.WithUsed(nil), cmp.AllowUnexported(Inventory{})); diff != "" {
		t.Error(diff)
	}
	if !slices.Equal(inv.DeviceIDs(), marked.DeviceIDs()) {
		t.Error("device IDs have changed")
	}
}

// TestBlocked: who uses a place takes the room of those that overlap with it, on its own GPU; of what is no place, nothing else.
func TestBlocked(t *testing.T) {
	places := func(uuid string) gpu.Device {
		d := mig(uuid, uuid+".0", uuid+".1", uuid+".01", uuid+".all", uuid+" made")
		for i, room := range []uint8{1, 2, 3, 7, 0} {
			d.Instances[i].MemorySlices = room
		}
		return d
	}
	inv := Inventory{}.Update(config, []gpu.Device{places("a"), places("b"), whole("c")}, Holders{Bound: false})
	for name, test := range map[string]struct{ used, want map[string]string }{
		"nobody":  {map[string]string{}, map[string]string{}},
		"a place": {map[string]string{"a.1": "x"}, map[string]string{"a.1": "x", "a.01": "x", "a.all": "x"}},
		"two":     {map[string]string{"a.1": "x", "a.01": "y"}, map[string]string{"a.0": "y", "a.1": "x", "a.01": "y", "a.all": "x"}},
		"others":  {map[string]string{"c": "x", "b made": "y", "gone": "z"}, map[string]string{"c": "x", "b made": "y", "gone": "z"}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, inv.UsedAndOverlapping(test.used)); diff != "" {
				t.Errorf("%s\n%s", name, diff)
			}
		})
	}
}

func TestLent(t *testing.T) {
	inv := Inventory{}.Update(config, numbered(whole("GPU-a"), mig("GPU-b", "MIG-x", "MIG-y"), whole("GPU-c")), Holders{Bound: false})
	for _, test := range []struct {
		resource, device string
		want             []string
	}{
		{"nvidia.com/gpu", "GPU-a", []string{"GPU-a"}},
		{"nvidia.com/gpu.shared", "GPU-a::3", []string{"GPU-a"}},
		{"nvidia.com/gpu", "GPU-b", []string{"MIG-x", "MIG-y"}},
		{"nvidia.com/mig-1g.10gb", "MIG-y", []string{"MIG-y"}},
		{"nvidia.com/gpu", "2", []string{"GPU-c"}},
		{"nvidia.com/mig-1g.10gb", "1:0", []string{"MIG-x", "MIG-y"}},
		{"example.com/gpu", "GPU-c", []string{"GPU-c"}},
		{"example.com/nic", "0", nil},
		{"nvidia.com/gpu", "GPU-d", nil},
		{"nvidia.com/gpu", "", nil},
	} {
		t.Run(test.resource+" "+test.device, func(t *testing.T) {
			if got := inv.SlicesOf(test.resource, test.device); !slices.Equal(got, test.want) {
				t.Errorf("%s %q: %v, want %v", test.resource, test.device, got, test.want)
			}
		})
	}
}
