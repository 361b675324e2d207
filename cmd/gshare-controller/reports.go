package main

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/gshare-dev/gshare/serving/identity"
	"github.com/gshare-dev/gshare/serving/report"
)

// reader reads the reports of gateways.
type reader struct {
	keeper *identity.Keeper // keeps the authority that signs the gateways' certificates
	token  identity.TokenFile
}

// watch receives the reports of the gateway at an address until the connection ends.
func (r *reader) watch(ctx context.Context, address string, receive func(report.Report)) error {
	config, err := r.keeper.TLS()
	if err != nil {
		return err
	}
	connection, err := grpc.NewClient("passthrough:///"+address,
		grpc.WithTransportCredentials(credentials.NewTLS(config)), grpc.WithPerRPCCredentials(r.token))
	if err != nil {
		return err
	}
	defer connection.Close()
	return report.Watch(ctx, connection, receive)
}
