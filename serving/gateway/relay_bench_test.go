package gateway

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/serving/gateway/peers"
)

// BenchmarkRelay sends requests of 1 KiB, in turn to the gateway that owns the function and to another one, over the loopback device. It reports
// the median of both.
func BenchmarkRelay(b *testing.B) {
	replica := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = w.Write(make([]byte, 256))
	}))
	defer replica.Close()
	serve := func(s *http.Server) string {
		l, err := (&net.ListenConfig{}).Listen(b.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			b.Fatal(err)
		}
		if s.TLSConfig == nil {
			go s.Serve(l)
		} else {
			go s.ServeTLS(l, "", "")
		}
		b.Cleanup(func() { _ = s.Close() })
		return l.Addr().String()
	}
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	public, forPeers := map[string]string{}, map[string]string{}
	secure := newFiles(b, newAuthorities(b), "gateway")
	var all []*peers.Peers
	for _, name := range []string{"g0", "g1"} {
		p := peers.New(name, peers.NewTransport(secure.ToPeers()), slog.New(slog.DiscardHandler))
		g := New(Config{Peers: p, PeerTLS: secure.ToPeers()})
		if err := g.SetFunction(Function{FunctionName: resnet}); err != nil {
			b.Fatal(err)
		}
		if err := g.SetReplicas(resnet, []Replica{{ID: "a", Address: replica.Listener.Addr().String(), Credits: 100}}); err != nil {
			b.Fatal(err)
		}
		public[name], forPeers[name] = serve(g.Server()), serve(g.PeerServer(secure.FromPeers()))
		all = append(all, p)
		go g.RunPeers(ctx)
	}
	for _, p := range all {
		p.Set(forPeers)
		for len(p.View().Rank(resnet.String())) < 2 {
			time.Sleep(time.Millisecond)
		}
	}
	body := strings.Repeat("x", 1<<10)
	took := map[bool][]time.Duration{}
	owner := all[0].View().Rank(resnet.String())[0]
	for b.Loop() {
		for name, address := range public {
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+"/", strings.NewReader(body))
			if err != nil {
				b.Fatal(err)
			}
			r.Host = "resnet"
			begin := time.Now()
			response, err := http.DefaultClient.Do(r)
			if err != nil || response.StatusCode != 200 {
				b.Fatal(response, err)
			}
			_, _ = io.Copy(io.Discard, response.Body)
			response.Body.Close()
			took[name == owner] = append(took[name == owner], time.Since(begin))
		}
	}
	median := func(d []time.Duration) float64 {
		slices.Sort(d)
		return float64(d[len(d)/2].Microseconds())
	}
	b.ReportMetric(median(took[true]), "us-p50-owned")
	b.ReportMetric(median(took[false]), "us-p50-forwarded")
}
