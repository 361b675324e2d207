package identity

import (
	"errors"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// Only returns a gRPC interceptor that accepts streams only from one service account.
func (t *Tokens) Only(account Account) grpc.StreamServerInterceptor {
	return func(server any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
		headers, _ := metadata.FromIncomingContext(stream.Context())
		values := headers.Get("authorization")
		if len(values) != 1 {
			return status.Error(codes.Unauthenticated, "want one token of a service account")
		}
		text, _ := cutBearer(values[0])
		caller, err := t.Account(stream.Context(), text)
		switch {
		case errors.Is(err, ErrRefused):
			return status.Error(codes.Unauthenticated, err.Error())
		case err != nil:
			return status.Error(codes.Unavailable, err.Error())
		case caller != account:
			return status.Errorf(codes.PermissionDenied, "service account %s of namespace %s may not read this", caller.Name, caller.Namespace)
		}
		return handle(server, stream)
	}
}
