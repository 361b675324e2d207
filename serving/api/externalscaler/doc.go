// Package externalscaler has the messages by which KEDA asks an external scaler, generated from externalscaler.proto.
package externalscaler

//go:generate go run -C ../../../hack/proto . serving/api/externalscaler/externalscaler.proto

// Service is the full name of the service.
const Service = "externalscaler.ExternalScaler"
