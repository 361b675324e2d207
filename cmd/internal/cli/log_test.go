package cli

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// TestLogLevel parses --log-level, and logs an event of each level.
func TestLogLevel(t *testing.T) {
	for _, test := range []struct {
		args []string
		want string // levels of the events that are logged
		err  string
	}{
		{nil, "INFO WARN ERROR", ""},
		{[]string{"--log-level=debug"}, "DEBUG INFO WARN ERROR", ""},
		{[]string{"--log-level=info"}, "INFO WARN ERROR", ""},
		{[]string{"--log-level", "warn"}, "WARN ERROR", ""},
		{[]string{"--log-level=error"}, "ERROR", ""},
		{[]string{"--log-level=DEBUG"}, "", `"DEBUG" is none of debug, info, warn, error`},
		{[]string{"--log-level=debug+1"}, "", "is none of"},
		{[]string{"--log-level="}, "", "is none of"},
		{[]string{"--log-level=4"}, "", "is none of"},
	} {
		t.Run(strings.Join(test.args, " "), func(t *testing.T) {
			flags := pflag.NewFlagSet("", pflag.ContinueOnError)
			level := AddLogLevel(flags)
			var out strings.Builder
			log := NewLog(&out, level) // before the flags are parsed, as a program may
			if err := flags.Parse(test.args); err != nil {
				if err = flagError(err); test.err == "" || !strings.Contains(err.Error(), test.err) || strings.Contains(err.Error(), "slog") {
					t.Errorf("%v, want an error with %q", err, test.err)
				}
				return
			}
			if test.err != "" {
				t.Fatalf("no error, want one with %q", test.err)
			}
			var got []string
			for _, l := range []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError} {
				out.Reset()
				if log.Log(context.Background(), l, "event"); strings.Contains(out.String(), "level="+l.String()) {
					got = append(got, l.String())
				}
			}
			if strings.Join(got, " ") != test.want {
				t.Errorf("logged %v, want %s", got, test.want)
			}
		})
	}
}
