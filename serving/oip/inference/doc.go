// Package inference has the messages of the Open Inference Protocol over gRPC, generated from inference.proto.
//
// It is for model servers and clients. What lies between them does not decode messages: package oip finds the tensors in the encoded bytes.
package inference

//go:generate go run -C ../../../hack/proto . serving/oip/inference/inference.proto

// Service is the full name of the service.
const Service = "inference.GRPCInferenceService"
