// Package inference has the messages of the Open Inference Protocol over gRPC, generated from inference.proto.
//
// Model servers and clients use it. What lies between them does not decode messages: package oip finds the tensors in the bytes.
package inference

//go:generate go run -C ../../../hack/proto . serving/oip/inference/inference.proto

// Service is the full name of the service.
const Service = "inference.GRPCInferenceService"
