package draplugin

import (
	"context"
	"time"

	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"github.com/gshare-dev/gshare/node/inventory"
)

// WatchHealthStatus implements kubeletplugin.DRAPlugin: the kubelet writes the health that it reports into the status of the pods that use the
// devices. It reports as long as the GPU driver answers. While that driver hangs, it stops reporting, and the health becomes unknown.
func (s service) WatchHealthStatus(ctx context.Context, reports chan<- kubeletplugin.DeviceHealthReport) error {
	again := time.NewTicker(s.HealthTimeout / 3)
	defer again.Stop()
	for {
		offer := s.Node.OfferedToClaims()
		// The kubelet may wait for the next report as long as the GPU driver's answer remains valid. It counts whole seconds, and takes 0 for
		// its default.
		if left := s.HealthTimeout - time.Since(offer.Checked); !offer.Checked.IsZero() && left >= time.Second {
			select {
			case <-ctx.Done():
				return nil
			case reports <- healthOf(s.NodeName, offer, left):
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-again.C:
		case <-offer.Changed:
		}
	}
}

func healthOf(pool string, offer Offer, left time.Duration) (report kubeletplugin.DeviceHealthReport) {
	for _, s := range offer.Slices {
		health, message := healthOfSlice(s)
		report.Devices = append(report.Devices, kubeletplugin.DeviceHealth{
			PoolName: pool, DeviceName: DeviceName(s.ID), Health: health, Message: message, LastUpdated: offer.Checked, HealthCheckTimeout: left,
		})
	}
	return report
}

// healthOfSlice returns whether the device works. A device that is cordoned, or that others use without a share, counts as working. Who those
// others are must not get into the pod's status, because everyone in the pod's namespace can read it.
func healthOfSlice(s inventory.Slice) (kubeletplugin.HealthStatus, string) {
	switch {
	case s.Fault != "":
		return kubeletplugin.HealthStatusUnhealthy, s.Fault
	case s.Used != "":
		return kubeletplugin.HealthStatusHealthy, "processes without a share use the device, too"
	}
	return kubeletplugin.HealthStatusHealthy, ""
}
