package store

import (
	"context"
	"log/slog"
	"time"

	"golang.org/x/time/rate"
)

const (
	// maxConnections bounds the connections at one time. A program needs one.
	maxConnections = 1024
	// maxStrangers bounds those of them that are refused and have not asked yet.
	maxStrangers = 32
	// patience limits how long the store waits for a client to take a response, and one that is refused to ask at all.
	patience = 2 * time.Second
	// acceptRetryDelay is the pause after a failed accept, most likely for lack of file descriptors.
	acceptRetryDelay = 100 * time.Millisecond
	// requestsPerSecond bounds what the store answers; further requests wait. A program asks a hundred times a second while it waits for another.
	requestsPerSecond = 2000
	// logLines is how many lines the log can have at once for what clients do, and then in a minute.
	logLines = 60
)

// limits bound what clients can make the store do.
type limits struct {
	strangers chan struct{} // holds one for each connection that is refused and has not asked yet
	requests  *rate.Limiter
	lines     *rate.Limiter
}

func newLimits() limits {
	return limits{
		strangers: make(chan struct{}, maxStrangers),
		requests:  rate.NewLimiter(requestsPerSecond, requestsPerSecond),
		lines:     rate.NewLimiter(rate.Every(time.Minute/logLines), logLines),
	}
}

// log writes a line about what a client does, unless there have been many.
func (s *Server) log(level slog.Level, text string, args ...any) {
	if s.lines.Allow() {
		s.Log.Log(context.Background(), level, text, args...)
	}
}
