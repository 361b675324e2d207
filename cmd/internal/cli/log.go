package cli

import (
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// levels are the values of --log-level.
var levels = []string{"debug", "info", "warn", "error"}

// logLevel is the value of --log-level.
type logLevel struct{ slog.LevelVar }

// AddLogLevel adds the flag --log-level to a program's flags, and returns the level, which changes when the flags are parsed. Logs of the program are
// made by NewLog with it.
func AddLogLevel(flags *pflag.FlagSet) slog.Leveler {
	l := new(logLevel)
	flags.Var(l, "log-level", "least level of what is logged: debug, info, warn or error; debug adds requests, calls and decisions")
	return l
}

// NewLog returns a log that writes events of a level and above as text.
func NewLog(w io.Writer, level slog.Leveler) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level}))
}

// Set implements pflag.Value.
func (l *logLevel) Set(text string) error {
	if !slices.Contains(levels, text) {
		return fmt.Errorf("%.64q is none of %s", text, strings.Join(levels, ", "))
	}
	return l.UnmarshalText([]byte(text))
}

// String implements pflag.Value.
func (l *logLevel) String() string { return strings.ToLower(l.Level().String()) }

// Type implements pflag.Value.
func (*logLevel) Type() string { return "level" }
