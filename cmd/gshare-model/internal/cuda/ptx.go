package cuda

import (
	"fmt"
	"time"
)

// ptx returns a PTX module, for GPUs from Volta on, with one kernel without parameters. Each block of the kernel polls the GPU's clock until the
// time is over.
func ptx(name string, t time.Duration) string {
	return fmt.Sprintf(`.version 6.0
.target sm_70
.address_size 64

.visible .entry %s()
{
	.reg .u64 %%now, %%end;
	.reg .pred %%early;
	mov.u64 %%end, %%globaltimer;
	add.u64 %%end, %%end, %d;
again:
	mov.u64 %%now, %%globaltimer;
	setp.lt.u64 %%early, %%now, %%end;
	@%%early bra again;
	ret;
}
`, name, t.Nanoseconds())
}
