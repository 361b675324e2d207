package controlplane

import (
	"context"
	"fmt"
	"os"
)

// During runs a control plane for as long as something needs it, which is what a TestMain does between Child and os.Exit. The status
// is that of what needed it; 1 where the control plane did not start, or had died.
func During(needs func(*ControlPlane) int) (status int) {
	c, err := Start(context.Background(), Options{})
	if err != nil {
		fmt.Fprintln(os.Stderr, "start control plane:", err)
		return 1
	}
	defer func() {
		if err := c.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, "stop control plane:", err)
			status = 1
		}
	}()
	return needs(c)
}
