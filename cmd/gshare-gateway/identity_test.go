package main

import (
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/gshare-dev/gshare/serving/gateway"
	"github.com/gshare-dev/gshare/serving/identity"
)

// TestCallersOfOthers: a gateway that does not reach the API server knows a caller whom another one knows. Only gateways are told.
func TestCallersOfOthers(t *testing.T) {
	folder, _ := newTLS(t)
	cluster := httptest.NewServer(http.HandlerFunc(reviewToken))
	defer cluster.Close()
	log := slog.New(slog.DiscardHandler)
	type member struct {
		*gateways
		callers *callers
	}
	start := func(name, server string) member {
		t.Setenv("POD_NAME", name)
		t.Setenv("POD_NAMESPACE", "")
		o := options{tls: folder, peers: "127.0.0.1:0"}
		g, err := o.newGateways(t.Context(), nil, log)
		if err != nil {
			t.Fatal(err)
		}
		callers, err := newCallers(&rest.Config{Host: server}, g.peers)
		if err != nil {
			t.Fatal(err)
		}
		serves := gateway.New(gateway.Config{Callers: callers, Peers: g.peers, PeerTLS: g.tls()})
		go g.serve(t.Context(), serves, 0, log)
		go serves.RunPeers(t.Context())
		return member{g, callers}
	}
	a, b := start("a", cluster.URL), start("b", "http://127.0.0.1:1")
	address := a.listener.Addr().String()
	b.peers.Set(map[string]string{"a": address})
	until(t, "b knows a", func() bool { return b.peers.View().Peer("a") != nil })

	token := tokenOf("caller", identity.AudienceFunctions)
	want, err := a.callers.OfToken(t.Context(), token)
	if err != nil {
		t.Fatal(err)
	}
	until(t, "b knows the caller of a", func() bool { // if a answers too late, b asks again later
		got, err := b.callers.OfToken(t.Context(), token)
		return err == nil && got == want
	})
	if got, err := b.callers.OfToken(t.Context(), tokenOf("stranger", identity.AudienceFunctions)); !errors.Is(err, gateway.ErrCallersUnavailable) {
		t.Errorf("a stranger is of %q at b, error %v", got, err)
	}

	question := fmt.Sprintf("%s?audience=%s&sha256=%x", identity.TokensPath, identity.AudienceFunctions, sha256.Sum256([]byte(token)))
	if status, text := getTLS(t, address, question, b.tls()); status != 200 || !strings.Contains(text, `"namespace":"`+want+`"`) {
		t.Errorf("a gateway got status %d, %q", status, text)
	}
	if status, text := getTLS(t, address, question, &tls.Config{InsecureSkipVerify: true}); status != 0 || !strings.Contains(text, "certificate") {
		t.Errorf("a stranger got status %d, %q", status, text)
	}
}
