package main

import (
	"fmt"
	"net"
	"net/http"
)

// serveDebug serves the debugging endpoints over HTTP at an address until stop is called. It does nothing if the address is empty.
func serveDebug(address string, server *http.Server) (stop func(), err error) {
	if address == "" {
		return func() {}, nil
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("debugAddress: %w", err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener) // ends with Close
	}()
	return func() {
		server.Close()
		<-done
	}, nil
}
