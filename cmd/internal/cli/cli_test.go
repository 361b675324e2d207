package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestExitCodes: what a user can correct in the command line gives 2, wherever it is found, and a failure 1.
func TestExitCodes(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		code int
	}{
		"failure":             {[]string{"sub", "--need", "fail"}, 1},
		"interrupt":           {[]string{"sub", "--need", "interrupt"}, 130},
		"usage":               {[]string{"sub", "--need", "usage"}, 2},
		"own code":            {[]string{"sub", "--need", "own"}, 7},
		"unknown flag":        {[]string{"sub", "--nosuch"}, 2},
		"value of a flag":     {[]string{"sub", "--need", "x", "--n", "x"}, 2},
		"required flag":       {[]string{"sub"}, 2},
		"flags that exclude":  {[]string{"sub", "--need", "x", "--a", "--b"}, 2},
		"arguments":           {[]string{"sub", "--need", "x", "y"}, 2},
		"unknown command":     {[]string{"nosuch"}, 2},
		"arguments, of cobra": {[]string{"bare", "x"}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			sub := &cobra.Command{Use: "sub", Args: NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
				switch need, _ := cmd.Flags().GetString("need"); need {
				case "interrupt":
					return fmt.Errorf("waiting: %w", context.Canceled)
				case "usage":
					return Usagef("wrong")
				case "own":
					return WithExitCode(7, errors.New("own"))
				}
				return errors.New("failed")
			}}
			sub.Flags().String("need", "", "")
			sub.Flags().Int("n", 0, "")
			sub.Flags().Bool("a", false, "")
			sub.Flags().Bool("b", false, "")
			sub.MarkFlagsMutuallyExclusive("a", "b")
			if err := sub.MarkFlagRequired("need"); err != nil {
				t.Fatal(err)
			}
			cmd := Root(&cobra.Command{Use: "prog"})
			cmd.AddCommand(sub, &cobra.Command{Use: "bare", Args: cobra.NoArgs, RunE: func(*cobra.Command, []string) error { return nil }})
			cmd.SetArgs(c.args)
			if err := Execute(t.Context(), cmd); err == nil || ExitCode(err) != c.code {
				t.Errorf("code %d for %v, want %d", ExitCode(err), err, c.code)
			} else if text := message(err); strings.Contains(text, "context") || (name == "interrupt") != (text == "waiting: interrupted") {
				t.Errorf("message %q", text)
			}
		})
	}
}
