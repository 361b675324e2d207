package mps

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// measuredContexts are the contexts of a PyTorch program on an H100 with 132 SMs, driver 580.159, by the SMs that MPS let it use.
var measuredContexts = map[share.PerMille]share.Bytes{100: 77 * share.MiB, 500: 329 * share.MiB, share.Whole: 617 * share.MiB}

func TestContextMemory(t *testing.T) {
	for sms, want := range map[share.PerMille]share.Bytes{
		1: 257, 10: 264, 100: 333, 120: 349, 125: 352, 500: 640, 999: 1024, share.Whole: 1024,
	} {
		if got := ContextMemory(sms); got != want*share.MiB {
			t.Errorf("with %s of the SMs: %d bytes, want %d MiB", sms.Percent(), got, want)
		}
	}
	for sms, measured := range measuredContexts {
		if got := ContextMemory(sms); got < measured+200*share.MiB {
			t.Errorf("with %s of the SMs: %d MiB leave no room for code beside the context of %d MiB", sms.Percent(), got/share.MiB, measured/share.MiB)
		}
	}
}

// TestLimitsLeaveShare: a program that has its context can still allocate the whole of its share.
func TestLimitsLeaveShare(t *testing.T) {
	for sms, measured := range measuredContexts {
		s := share.Share{SMRequest: sms, SMLimit: sms, Memory: 2048 * share.MiB}
		if got := limitOf(t, ClientEnvironment("/d", s)); got < s.Memory+measured {
			t.Errorf("with %s of the SMs and a context of %d MiB the limit of %d MiB leaves less than the share", sms.Percent(), measured/share.MiB, got/share.MiB)
		}
	}
}

// limitOf returns the memory limit in the environment of a client.
func limitOf(t *testing.T, environment []string) share.Bytes {
	t.Helper()
	const variable = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0="
	i := slices.IndexFunc(environment, func(v string) bool { return strings.HasPrefix(v, variable) })
	if i < 0 {
		t.Fatalf("no limit in %q", environment)
	}
	mib, err := strconv.Atoi(strings.TrimSuffix(environment[i][len(variable):], "M"))
	if err != nil {
		t.Fatal(err)
	}
	return share.Bytes(mib) * share.MiB
}
