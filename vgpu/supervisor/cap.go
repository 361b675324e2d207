package supervisor

import "github.com/gshare-dev/gshare/vgpu/share"

// pair is the SMs of a TPC, which MPS does not divide: of 188 SMs, a client of 25, 50 or 75 % gets 46, 94 or 140.
const pair = 2

// Cap is how many of a slice's SMs MPS lets a process use: its part, rounded down to whole pairs as the hardware does, but no
// less than one of them.
func Cap(part share.PerMille, sms int) int {
	return min(sms, max(pair, int(part)*sms/int(share.Whole)/pair*pair))
}
