package inventory

import (
	"encoding/json"
	"slices"

	"github.com/gshare-dev/gshare/node/gpu"
	"github.com/gshare-dev/gshare/vgpu/api/versioned"
	"github.com/gshare-dev/gshare/vgpu/kube"
)

// claimsVersion is the version of the record of EncodeClaims.
const claimsVersion = 1

// claimsRecord is what an agent records for the next one about the slices of resource claims: the inventory in the Node's annotation
// contains only the slices of the device plugin.
type claimsRecord struct {
	Version int           `json:"version"`
	Slices  []claimsSlice `json:"slices"`
}

type claimsSlice struct {
	kube.Slice        `json:",inline"`
	Index             int    `json:"index"`
	DriverVersion     string `json:"driverVersion,omitempty"`
	ComputeCapability string `json:"computeCapability,omitempty"`
}

// EncodeClaims returns a record of the slices of which pods get shares through resource claims, for Inventory.WithClaims of the next agent.
func (inv Inventory) EncodeClaims() ([]byte, error) {
	record := claimsRecord{Version: claimsVersion}
	for _, s := range inv.OfClaims() {
		record.Slices = append(record.Slices, claimsSlice{s.Slice, s.Index, s.DriverVersion, s.ComputeCapability})
	}
	return json.Marshal(record)
}

// WithClaims returns the inventory with the slices in a record of EncodeClaims. Faults remain until the next Update. A slice that the
// configuration has since given to the device plugin takes no new claims.
func (inv Inventory) WithClaims(c Config, text []byte) (Inventory, error) {
	var record claimsRecord
	if err := versioned.Decode(text, claimsVersion, &record); err != nil {
		return inv, err
	}
	// An agent writes the record before the inventory. So a slice that is in both was being given to claims when the agent ended.
	all := slices.DeleteFunc(slices.Clone(inv.slices), func(old Slice) bool {
		return slices.ContainsFunc(record.Slices, func(s claimsSlice) bool {
			exclusive := old.Profile == "" || s.Profile == "" || old.Room != 0 && s.Room != 0 // one of them is a whole GPU, or both are placements on one GPU
			return old.ID == s.ID || old.Device == s.Device && exclusive
		})
	})
	for _, s := range record.Slices {
		restored := c.restored(s.Slice)
		restored.Claims, restored.Index = true, s.Index
		restored.Properties = gpu.Properties{DriverVersion: s.DriverVersion, ComputeCapability: s.ComputeCapability}
		restored.Cordoned = restored.Cordoned || !c.claimsDevice(s.Device, s.Index)
		restored.updateHealth()
		all = append(all, restored)
	}
	return Inventory{all}, nil
}
