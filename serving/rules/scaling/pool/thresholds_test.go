package pool

import (
	"testing"
	"time"

	"github.com/gshare-dev/gshare/serving/rules/scaling"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// TestThresholds: the transitions of fig. 8, at their edges.
func TestThresholds(t *testing.T) {
	const minute = time.Minute
	for name, c := range map[string]struct {
		s    Instance
		now  time.Duration
		want scaling.Residency
	}{
		"used enough":              {Instance{Residency: scaling.Shared, Utilisation: 601, LastUsed: minute}, minute, scaling.Hot},
		"just not enough":          {Instance{Residency: scaling.Shared, Utilisation: 600, LastUsed: minute}, minute, scaling.Shared},
		"not long enough":          {Instance{Residency: scaling.Shared, Utilisation: 1000, Since: 31 * time.Second}, minute, scaling.Shared},
		"just long enough":         {Instance{Residency: scaling.Shared, Utilisation: 1000, Since: 30 * time.Second}, minute, scaling.Hot},
		"little used":              {Instance{Residency: scaling.Hot, Utilisation: 299}, minute, scaling.Shared},
		"between the thresholds":   {Instance{Residency: scaling.Hot, Utilisation: 300}, minute, scaling.Hot},
		"hot for a moment":         {Instance{Residency: scaling.Hot, Since: 31 * time.Second}, minute, scaling.Hot},
		"hot and idle: shared":     {Instance{Residency: scaling.Hot}, time.Hour, scaling.Shared},
		"warm, used":               {Instance{Residency: scaling.Warm, Utilisation: 1000, LastUsed: minute}, minute, scaling.Warm},
		"shared, idle":             {Instance{Residency: scaling.Shared, LastUsed: minute}, 11 * minute, scaling.Cold},
		"warm, idle":               {Instance{Residency: scaling.Warm, LastUsed: minute}, 11 * minute, scaling.Cold},
		"not idle for long enough": {Instance{Residency: scaling.Warm, LastUsed: minute}, 11*minute - 1, scaling.Warm},
		"busy for long":            {Instance{Residency: scaling.Shared, Busy: true}, time.Hour, scaling.Shared},
		"cold":                     {Instance{Residency: scaling.Cold}, time.Hour, scaling.Cold},
	} {
		t.Run(name, func(t *testing.T) {
			if got := (Thresholds{}).Next(c.now, &c.s); got != c.want {
				t.Errorf("%v, want %v", got, c.want)
			}
		})
	}
}

// TestNoOscillation: the thresholds are apart: whatever the use is, an instance that keeps it does not go up and down.
func TestNoOscillation(t *testing.T) {
	for use := share.PerMille(0); use <= share.Whole; use++ {
		up := (Thresholds{}).Next(time.Minute, &Instance{Residency: scaling.Shared, Utilisation: use, LastUsed: time.Minute})
		down := (Thresholds{}).Next(time.Minute, &Instance{Residency: scaling.Hot, Utilisation: use, LastUsed: time.Minute})
		if up == scaling.Hot && down == scaling.Shared {
			t.Fatalf("%d per mille is enough to go up and to come down", use)
		}
	}
}
