package gateway

import (
	"context"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
)

// unit is the mean time of a request in the tests of uneven times.
const unit = 100 * ms

// takesAsSaid takes as long as the request says.
var takesAsSaid = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	d, _ := time.ParseDuration(string(body))
	time.Sleep(d)
})

// streamsAsSaid sends a token at once and ends its stream after as long as the request says.
var streamsAsSaid = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	d, _ := time.ParseDuration(string(body))
	_, _ = io.WriteString(rw, tokenEvent)
	_ = http.NewResponseController(rw).Flush()
	time.Sleep(d)
	_, _ = io.WriteString(rw, doneEvent)
})

// distributions are distributions of times with the mean 1.
var distributions = map[string]func(*rand.Rand) float64{
	"uniform, 3 x":       func(r *rand.Rand) float64 { return 0.5 + r.Float64() },
	"half take 3 x":      func(r *rand.Rand) float64 { return 0.5 + float64(r.IntN(2)) },
	"exponential":        func(r *rand.Rand) float64 { return r.ExpFloat64() },
	"log-normal":         func(r *rand.Rand) float64 { return math.Exp(r.NormFloat64() - 0.5) },
	"one in 5 takes 8 x": func(r *rand.Rand) float64 { return map[bool]float64{true: 8, false: 1}[r.IntN(5) == 0] / 2.4 },
}

// offered counts what became of requests.
type offered struct {
	inTime, late, refused int
	waited                int           // of those refused, the ones that waited for more than a tenth of the objective
	lasted                time.Duration // from the first to the last request
}

// offer sends n requests at random, as many as is the part load of what the places can serve. Their times come from a distribution.
func (w *world) offer(n, places int, load float64, mean, slo time.Duration, times func(*rand.Rand) float64) (o offered) {
	r := rand.New(rand.NewPCG(1, 0))
	var wait sync.WaitGroup
	var mu sync.Mutex
	before, begin := w.gateway.Load(resnet).InTime, time.Now()
	for range n {
		takes := time.Duration(times(r) * float64(mean))
		wait.Go(func() {
			a := w.ask(w.Context(), takes.String())
			mu.Lock()
			defer mu.Unlock()
			if a.status == 200 {
				return
			}
			o.refused++
			if a.took > slo/10 {
				o.waited++
			}
		})
		time.Sleep(time.Duration(r.ExpFloat64() / load * float64(mean) / float64(places)))
	}
	o.lasted = time.Since(begin)
	wait.Wait()
	o.inTime = int(w.gateway.Load(resnet).InTime - before)
	o.late = n - o.inTime - o.refused
	return o
}

// TestUnevenTimes checks that times that vary refuse next to nothing that would be in time, and that in overload as much is in time as can be served.
func TestUnevenTimes(t *testing.T) {
	const n, places, slo = 5000, 4, 15 * unit
	for name, times := range distributions {
		for load, least := range map[float64]float64{0.85: 0.99, 2: 0.95} {
			t.Run(fmt.Sprintf("%s at %v", name, load), func(t *testing.T) {
				start(t, Function{SLO: slo}, func(w *world) {
					w.replicas(takesAsSaid, places, 0, "a")
					got := w.offer(n, places, load, unit, slo, times)
					possible := min(n, float64(places*(got.lasted+slo)/unit))
					part := float64(got.inTime) / possible
					w.Logf("%.2f %% of those possible are in time; %+v", 100*part, got)
					if part < least || got.late > n/50 {
						w.Errorf("%.2f %% of those possible are in time, want %.0f %%; %+v", 100*part, 100*least, got)
					}
				})
			})
		}
	}
}

// TestUnevenStreams checks that clients are told at once that they get no place in time, where streams have taken all, and that the places are used.
func TestUnevenStreams(t *testing.T) {
	const n, places, mean, slo = 1500, 16, 20 * time.Second, time.Second
	for name, times := range distributions {
		t.Run(name, func(t *testing.T) {
			start(t, Function{SLO: slo, Protocol: OpenAI}, func(w *world) {
				w.replicas(streamsAsSaid, places, 0, "a")
				got := w.offer(n, places, 2, mean, slo, times)
				used := float64(got.inTime-places) * mean.Seconds() / got.lasted.Seconds() / places
				w.Logf("%.1f %% of the places are used; %+v", 100*used, got)
				if used < 0.9 || got.waited > got.refused/5 {
					w.Errorf("%.1f %% of the places are used; %+v", 100*used, got)
				}
			})
		})
	}
}

// TestBurst checks that of many short requests at once none is refused that is answered long before it is due.
func TestBurst(t *testing.T) {
	const n, places, mean, slo = 1500, 4, 40 * ms, 30 * time.Second
	for name, times := range distributions {
		t.Run(name, func(t *testing.T) {
			start(t, Function{SLO: slo}, func(w *world) {
				w.replicas(takesAsSaid, places, 0, "a")
				w.offer(200, places, 0.5, mean, slo, times)
				if got := w.offer(n, places, 1e9, mean, slo, times); got.inTime != n {
					w.Errorf("%+v", got)
				}
			})
		})
	}
}

// TestTakenPlaces checks that a client is told at once that it gets no place in time while streams of gRPC have all of them, and gets one where the streams
// are known to end in time.
func TestTakenPlaces(t *testing.T) {
	const places = 16
	for name, c := range map[string]struct {
		lasts  time.Duration // of streams before
		taken  time.Duration // since when the places have been taken
		served bool
	}{
		"never ended":       {0, 29 * time.Second, false},
		"just begun":        {10 * time.Second, time.Second, false},
		"about to end":      {10 * time.Second, 9500 * ms, true},
		"longer than known": {5 * time.Second, 20 * time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			start(t, Function{Protocol: OIP, SLO: time.Second}, func(w *world) {
				w.grpcReplicas(&grpcModel{}, places, 0, "a")
				client := w.dial("resnet")
				open := func(lasts time.Duration) (end func()) {
					var ends []func()
					for range places {
						ctx, cancel := context.WithCancel(w.Context())
						s, err := client.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, streamMethod)
						if err != nil {
							w.Fatal(err)
						}
						if err := s.SendMsg(inferRequest("1", 1)); err != nil {
							w.Fatal(err)
						}
						ends = append(ends, cancel)
					}
					time.Sleep(lasts)
					return func() {
						for _, end := range ends {
							end()
						}
					}
				}
				if c.lasts > 0 {
					for range 2 {
						open(c.lasts)()
						synctest.Wait()
					}
				}
				end := open(c.taken)
				if c.served {
					time.AfterFunc(c.lasts-c.taken, end)
				} else {
					defer end()
				}
				a := w.ask(w.Context(), input("1", 1), "Path", inferPath)
				if served := a.reason != reasonLate; served != c.served || !served && (a.status != 429 || a.took > 0) {
					w.Errorf("%+v", a)
				}
			})
		})
	}
}
