package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/gshare-dev/gshare/serving/gateway"
	"github.com/gshare-dev/gshare/serving/identity"
)

// Callers is the gateway.Callers of a cluster: a caller belongs to the namespace of its pod, or of the service account whose token it sends.
type Callers struct {
	Addresses *Addresses
	Tokens    *identity.Tokens
}

var _ gateway.Callers = (*Callers)(nil)

// FindToken implements gateway.Callers.
func (c *Callers) FindToken(authorization string) string { return c.Tokens.Find(authorization) }

// OfToken implements gateway.Callers.
func (c *Callers) OfToken(ctx context.Context, token string) (string, error) {
	account, err := c.Tokens.Account(ctx, token)
	if errors.Is(err, identity.ErrUnavailable) {
		err = fmt.Errorf("%w: %w", gateway.ErrCallersUnavailable, err)
	}
	return account.Namespace, err
}

// OfAddress implements gateway.Callers.
func (c *Callers) OfAddress(ctx context.Context, address netip.Addr) (string, error) {
	return c.Addresses.Namespace(ctx, address)
}
