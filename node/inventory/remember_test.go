package inventory

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gshare-dev/gshare/node/gpu"
)

// TestWithClaims: a new agent that hears nothing from the driver offers to claims what the last one did, but for its own configuration.
func TestWithClaims(t *testing.T) {
	sick, known, parts := whole("b"), whole("c"), mig("e", "x")
	sick.Fault, sick.Index, known.Index, parts.Index = "Xid 79", 1, 2, 4
	known.Properties, known.NUMA = gpu.Properties{DriverVersion: "580.65.06", ComputeCapability: "9.0"}, new(1)
	plugin := whole("d")
	plugin.Index = 3
	devices := []gpu.Device{whole("a"), sick, known, plugin, parts}
	c := config
	c.Claimed = []string{"a", "b", "2", "e"}
	last := Inventory{}.Update(c, devices, Holders{})
	record, err := last.EncodeClaims()
	if err != nil {
		t.Fatal(err)
	}

	c.Claimed, c.Cordoned = []string{"b", "2", "e"}, []string{"x"}
	next, err := Restore(c, last.Published()).WithClaims(c, record)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"d", "a cordoned", "b fault", "c", "x cordoned"}, ids(next)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(last.OfClaims()[2], next.OfClaims()[2]); diff != "" {
		t.Errorf("what is known of c (-last +next):\n%s", diff)
	}
	if diff := cmp.Diff(last.Published(), next.Published()); diff != "" {
		t.Errorf("the slices of the device plugin:\n%s", diff)
	}
	if diff := cmp.Diff(ids(Inventory{}.Update(c, devices, Holders{})), []string{"a", "b fault", "c", "d", "x cordoned"}); diff != "" {
		t.Error(diff)
	}
}

// TestKilledBetweenRecords: an agent that is killed after it has recorded that a GPU is of claims, and before the inventory without it, leaves the GPU in
// both. The next one has it once, of claims.
func TestKilledBetweenRecords(t *testing.T) {
	place := mig("d", "x", "y")
	for i := range place.Instances {
		place.Instances[i].MemorySlices = 1 << i
	}
	undivided := place
	undivided.MIG, undivided.Instances = false, nil
	claimed := config
	claimed.Claimed = []string{"d"}
	for name, before := range map[string]gpu.Device{"places": place, "whole": undivided} {
		t.Run(name, func(t *testing.T) {
			old := Inventory{}.Update(config, []gpu.Device{whole("a"), before}, Holders{})
			record, err := old.Update(claimed, []gpu.Device{whole("a"), place}, Holders{}).EncodeClaims()
			if err != nil {
				t.Fatal(err)
			}
			next, err := Restore(claimed, old.Published()).WithClaims(claimed, record)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]string{"a", "x", "y"}, ids(next)); diff != "" {
				t.Errorf("restored: %s", diff)
			}
			next = next.Update(claimed, []gpu.Device{whole("a"), place}, Holders{Bound: true, Placed: true})
			if diff := cmp.Diff([]string{"a", "x", "y"}, ids(next)); diff != "" {
				t.Errorf("once the driver has answered: %s", diff)
			}
			if diff := cmp.Diff([]string{"x", "y"}, ids(Inventory{next.OfClaims()})); diff != "" {
				t.Errorf("of claims: %s", diff)
			}
		})
	}
}

func TestBadClaimsRecord(t *testing.T) {
	inv := Inventory{}.Update(config, []gpu.Device{whole("a")}, Holders{})
	for record, why := range map[string]string{
		"": "end of JSON", `{"version":2,"slices":[]}`: "version 2", `{"version":1,"slices":[{"id":"b","colour":"red"}]}`: "colour",
	} {
		got, err := inv.WithClaims(config, []byte(record))
		if err == nil || !strings.Contains(err.Error(), why) || len(got.Slices()) != 1 {
			t.Errorf("%q: %v, %d slices; want an error with %q", record, err, len(got.Slices()), why)
		}
	}
}
