package main

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/gshare-dev/gshare/serving/report"
)

// watchReports receives the reports of the gateway at an address until the connection ends.
func watchReports(ctx context.Context, address string, receive func(report.Report)) error {
	connection, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer connection.Close()
	return report.Watch(ctx, connection, receive)
}
