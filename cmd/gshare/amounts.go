package main

import (
	"strconv"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// formatRange formats a request and its limit as a range, or as one value if both are equal.
func formatRange(request, limit share.PerMille) string {
	if limit == request {
		return request.Percent()
	}
	return request.Percent() + "-" + limit.Percent()
}

// shortDevice returns the beginning of a GPU's UUID, which suffices to distinguish the GPUs of a machine.
func shortDevice(uuid string) string { return uuid[:min(len(uuid), len("GPU-01234567"))] }

// memoryText formats an amount of memory in GiB or, if it is less than one, in MiB.
func memoryText(b share.Bytes) string {
	if gib := 1024 * share.MiB; b >= gib {
		return strconv.FormatFloat(float64(b)/float64(gib), 'f', 1, 64) + "Gi"
	}
	return strconv.FormatInt(int64(b/share.MiB), 10) + "Mi"
}
