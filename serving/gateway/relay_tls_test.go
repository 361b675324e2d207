package gateway

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/serving/identity"
)

// newAuthorities returns an authority for certificates of gateways.
func newAuthorities(t testing.TB) identity.Authorities {
	t.Helper()
	a, err := identity.Authorities{}.Renew(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// newFiles returns the files of a gateway whose certificate is for a name.
func newFiles(t testing.TB, a identity.Authorities, name string) *identity.Files {
	t.Helper()
	c, err := a.Issue(name, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	for file, text := range map[string][]byte{"tls.crt": c.Chain, "tls.key": c.Key, "ca.crt": a.Certificates()} {
		if err := os.WriteFile(filepath.Join(folder, file), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return identity.NewFiles(folder)
}

// TestPeerPort sends a request that says that it comes from a gateway to the port for gateways. Only gateways get an answer.
func TestPeerPort(t *testing.T) {
	startCluster(t, Function{}, 2, true, func(c *cluster) {
		c.replicas(func(string) http.Handler { return echo(0) }, "a")
		for name, test := range map[string]struct {
			scheme string
			client *tls.Config
			served bool
		}{
			"gateway":           {"https", newFiles(c, c.authorities, "gateway").ToPeers(), true},
			"plain text":        {"http", nil, false},
			"no certificate":    {"https", &tls.Config{InsecureSkipVerify: true}, false},
			"another name":      {"https", trusting(newFiles(c, c.authorities, "controller").ToPeers()), false},
			"another authority": {"https", trusting(newFiles(c, newAuthorities(c), "gateway").ToPeers()), false},
		} {
			for what, http2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2": true} {
				transport := newPeerTransport(test.client, http2)
				transport.DialContext = c.dial
				if test.scheme == "http" {
					transport.Protocols.SetUnencryptedHTTP2(http2)
				}
				r, err := http.NewRequestWithContext(c.Context(), http.MethodPost, test.scheme+"://"+c.members[0].name+":82/", http.NoBody)
				if err != nil {
					c.Fatal(err)
				}
				r.Host = "resnet"
				r.Header.Set(elapsedHeader, "0")
				response, err := transport.RoundTrip(r)
				status := 0
				if err == nil {
					_, _ = io.Copy(io.Discard, response.Body)
					response.Body.Close()
					status = response.StatusCode
				}
				if status == http.StatusOK != test.served || err == nil && status != http.StatusOK && test.scheme == "https" {
					c.Errorf("%s, %s: status %d, error %v", name, what, status, err)
				}
				transport.CloseIdleConnections()
			}
		}
		if l := c.members[0].Load(resnet); l.Arrived != 2 {
			c.Errorf("%d requests have arrived, want the two of a gateway", l.Arrived)
		}
	})
}

// trusting returns the configuration of a client that connects to every server.
func trusting(config *tls.Config) *tls.Config {
	config.VerifyConnection = nil
	return config
}

// TestNoPeerTLS: gateways without certificates neither accept connections of others nor connect to them, and serve nothing in plain text.
func TestNoPeerTLS(t *testing.T) {
	g := New(Config{})
	if err := g.SetFunction(Function{FunctionName: resnet}); err != nil {
		t.Fatal(err)
	}
	s := g.PeerServer(nil)
	l := &listener{connections: make(chan net.Conn), closed: make(chan struct{})}
	if err := s.ServeTLS(l, "", ""); err == nil || errors.Is(err, http.ErrServerClosed) {
		t.Errorf("the port is served: %v", err)
	}
	r, answer := httptest.NewRequest(http.MethodPost, "http://resnet/", nil), httptest.NewRecorder()
	r.Header.Set(elapsedHeader, "0")
	if s.Handler.ServeHTTP(answer, r); answer.Code != http.StatusForbidden || g.Load(resnet).Arrived != 0 {
		t.Errorf("a request in plain text: status %d", answer.Code)
	}
	other := httptest.NewTLSServer(http.NotFoundHandler())
	defer other.Close()
	out, err := http.NewRequestWithContext(t.Context(), http.MethodGet, other.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	if response, err := g.toPeers.RoundTrip(out); err == nil {
		response.Body.Close()
		t.Error("it connects to a server whose certificate nothing vouches for")
	}
}
