package server

import (
	"errors"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

// FaultHeader is the request header by which a client asks for faults, such as "delay=50ms,error=500".
const FaultHeader = "x-gshare-fault"

// faults maps the names of faults to functions that a server calls before it handles a request that asks for them, in the order in which the
// request names them. value is what follows "=". A function returns whether the server continues with the request.
type faults map[string]func(w http.ResponseWriter, r *http.Request, value string) (goesOn bool)

// faults returns faults that real servers have: an error, a delay, no answer, a broken connection, an engine that is dead while the process still answers,
// and the exit of the process.
func (s *Server) faults() faults {
	return faults{
		"error": func(w http.ResponseWriter, _ *http.Request, value string) bool {
			status, err := strconv.Atoi(value)
			if err != nil || status < 400 || status > 599 {
				status = http.StatusBadRequest
			}
			writeError(w, errorf(status, "error on request"))
			return false
		},
		"delay": func(w http.ResponseWriter, r *http.Request, value string) bool {
			delay, ok := duration(w, value)
			if !ok {
				return false
			}
			timer := time.NewTimer(delay)
			defer timer.Stop()
			select {
			case <-timer.C:
				return true
			case <-r.Context().Done():
				return false
			}
		},
		"hang": func(_ http.ResponseWriter, r *http.Request, _ string) bool {
			_, _ = io.Copy(io.Discard, r.Body) // the server notices a closed connection only after it has read the body
			<-r.Context().Done()
			return false
		},
		"drop": func(http.ResponseWriter, *http.Request, string) bool { panic(http.ErrAbortHandler) },
		"dead": func(w http.ResponseWriter, _ *http.Request, value string) bool {
			after, ok := duration(w, value)
			if ok {
				s.deadUntil.Store(new(time.Now().Add(after)))
			}
			return ok
		},
		"exit": func(http.ResponseWriter, *http.Request, string) bool {
			os.Exit(3)
			return false
		},
	}
}

// duration returns the duration of a fault, or answers that it is none.
func duration(w http.ResponseWriter, value string) (d time.Duration, ok bool) {
	d, err := time.ParseDuration(value)
	if err != nil {
		writeError(w, errorf(http.StatusBadRequest, "%s: %v", FaultHeader, err))
	}
	return d, err == nil
}

// errDead is the error of all requests while the engine is dead.
var errDead = errors.New("the engine is dead")

// checkAlive returns errDead if the engine is dead.
func (s *Server) checkAlive() error {
	if until := s.deadUntil.Load(); until != nil && time.Now().Before(*until) {
		return errDead
	}
	return nil
}

// handler returns a handler that applies the faults that a request asks for, and then calls next.
func (f faults) handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if f != nil && r.Header.Get(FaultHeader) != "" {
			for one := range strings.SplitSeq(r.Header.Get(FaultHeader), ",") {
				name, value, _ := strings.Cut(strings.TrimSpace(one), "=")
				fault := f[name]
				if fault == nil {
					writeError(w, errorf(http.StatusBadRequest, "%s: unknown fault %q", FaultHeader, name))
					return
				}
				if !fault(w, r, value) {
					return
				}
			}
		}
		next.ServeHTTP(w, r)
	})
}
