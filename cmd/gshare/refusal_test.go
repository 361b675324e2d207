package main

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/gshare-dev/gshare/cmd/internal/cli"
	"github.com/gshare-dev/gshare/vgpu/api/control"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// TestRefusalCodes: each kind of refusal has an exit code of docs/cli.md, 2 only where another flag or argument is what helps.
func TestRefusalCodes(t *testing.T) {
	kinds := []control.RefusalKind{control.Invalid, control.Busy, control.NotFound, control.Forbidden, control.Failed}
	if got, want := len(refusalCodes), len(kinds); got != want {
		t.Errorf("%d kinds have an exit code, want %d", got, want)
	}
	for _, kind := range append(kinds, "", "of a newer agent") {
		t.Run(string(kind), func(t *testing.T) {
			want := 1
			if kind == control.Invalid {
				want = 2
			}
			err := refusalError(&control.Refusal{Kind: kind, Field: share.FieldSM, Reason: "x"})
			if got := cli.ExitCode(err); got != want || !strings.Contains(err.Error(), "--sm: x") {
				t.Errorf("code %d, want %d: %v", got, want, err)
			}
		})
	}
	for err, want := range map[error]int{errors.New("no agent"): 1, context.Canceled: 130} {
		if got := cli.ExitCode(refusalError(err)); got != want {
			t.Errorf("%v: code %d", err, got)
		}
	}
}
