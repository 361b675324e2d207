package store

import (
	"context"
	"log/slog"
	"time"

	"golang.org/x/time/rate"
)

const (
	// maxConnections limits the number of connections at one time. A program needs only one.
	maxConnections = 1024
	// maxStrangers limits how many of them may be refused connections that have not sent a request yet.
	maxStrangers = 32
	// patience limits how long the store waits for a client to accept a response, and for a refused client to send a request.
	patience = 2 * time.Second
	// acceptRetryDelay is the pause after a failed accept, most likely for lack of file descriptors.
	acceptRetryDelay = 100 * time.Millisecond
	// requestsPerSecond limits the requests that the store answers; further requests wait. A program sends a hundred requests a second while
	// it waits for another program.
	requestsPerSecond = 2000
	// putsPerSecond bounds how often the store looks what is declared, which takes it milliseconds, and creates memory. A program asks once for the
	// weights that it stores; a program that has many can have as many at once.
	putsPerSecond, putsAtOnce = 20, 256
	// wrongPause is how long, as a multiple of the time that the last digest took, the next one waits if that was another than the key said, and
	// longestPause how long at most. To compute one takes time of the device and the CPU that nobody is charged for.
	wrongPause, longestPause = 9, time.Minute
	// logLines is how many lines the log can have at once for what clients do, and then in a minute.
	logLines = 60
)

// limits limits what clients can make the store do.
type limits struct {
	strangers chan struct{} // holds one element for each refused connection that has not sent a request yet
	requests  *rate.Limiter
	puts      *rate.Limiter
	lines     *rate.Limiter
}

func newLimits() limits {
	return limits{
		strangers: make(chan struct{}, maxStrangers),
		requests:  rate.NewLimiter(requestsPerSecond, requestsPerSecond),
		puts:      rate.NewLimiter(putsPerSecond, putsAtOnce),
		lines:     rate.NewLimiter(rate.Every(time.Minute/logLines), logLines),
	}
}

// log writes a line about what a client does, unless there have been too many.
func (s *Server) log(level slog.Level, text string, args ...any) {
	if s.lines.Allow() {
		s.Log.Log(context.Background(), level, text, args...)
	}
}
