package identity

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Names of the Secrets that a Keeper keeps.
const (
	AuthoritySecret = "gshare-serving-ca"  // nobody but the controller needs to read it
	GatewaySecret   = "gshare-gateway-tls" // mounted by gateways
)

// Keys in the Secrets. In the gateways' Secret they are the names of the files that gateways read.
const (
	authoritiesKey = "authorities.pem"
	chainKey       = "tls.crt"
	privateKey     = "tls.key"
	trustedKey     = "ca.crt"
)

// keepPeriod is the time between two checks of the Secrets, and retryMin the first pause after a check that has failed.
const (
	keepPeriod = time.Minute
	retryMin   = 100 * time.Millisecond
)

// Keeper keeps the authorities, and a certificate for the gateways, in two Secrets of a namespace. Several Keepers may run at once: the API server
// lets only one of them change an object.
type Keeper struct {
	// Reader reads Secrets from the API server directly: a cache would need more permissions.
	Reader    client.Reader
	Writer    client.Writer
	Namespace string
	Name      string // DNS name of the certificate
	Log       *slog.Logger

	mu      sync.Mutex
	trusted Authorities
}

// Run keeps the Secrets until ctx ends.
func (k *Keeper) Run(ctx context.Context) {
	for retry := retryMin; ; {
		pause := keepPeriod
		if err := k.keep(ctx, time.Now()); err == nil {
			retry = retryMin
		} else if ctx.Err() == nil {
			k.Log.Warn("failed to keep the certificates of gateways", "error", err)
			pause, retry = retry, min(2*retry, keepPeriod)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
	}
}

// TLS returns the configuration for connections to a gateway.
func (k *Keeper) TLS() (*tls.Config, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.trusted) == 0 {
		return nil, errors.New("the authority of gateways is not known yet")
	}
	return &tls.Config{RootCAs: k.trusted.Pool(), ServerName: k.Name, MinVersion: tls.VersionTLS13}, nil
}

// keep creates or renews what is necessary. The authorities are written before a certificate that they have signed.
func (k *Keeper) keep(ctx context.Context, now time.Time) error {
	authorities, err := k.keepAuthorities(ctx, now)
	if err != nil {
		return fmt.Errorf("secret %s: %w", AuthoritySecret, err)
	}
	k.mu.Lock()
	k.trusted = authorities
	k.mu.Unlock()
	if err := k.keepCertificate(ctx, authorities, now); err != nil {
		return fmt.Errorf("secret %s: %w", GatewaySecret, err)
	}
	return nil
}

func (k *Keeper) keepAuthorities(ctx context.Context, now time.Time) (Authorities, error) {
	secret, err := k.read(ctx, AuthoritySecret)
	if err != nil {
		return nil, err
	}
	stored, err := DecodeAuthorities(secret.Data[authoritiesKey])
	if err != nil { // there are none, or somebody has changed them: gateways still have a certificate of those known last
		if secret.ResourceVersion != "" {
			k.Log.Warn("replace authorities that are not valid", "secret", AuthoritySecret, "error", err)
		}
		k.mu.Lock()
		stored = k.trusted
		k.mu.Unlock()
	}
	authorities, err := stored.Renew(now)
	if err != nil {
		return nil, err
	}
	text, err := authorities.Encode()
	if err != nil {
		return nil, err
	}
	return authorities, k.write(ctx, secret, map[string][]byte{authoritiesKey: text})
}

func (k *Keeper) keepCertificate(ctx context.Context, a Authorities, now time.Time) error {
	secret, err := k.read(ctx, GatewaySecret)
	if err != nil {
		return err
	}
	c := Certificate{secret.Data[chainKey], secret.Data[privateKey]}
	if !a.IsCurrent(c, k.Name, now) {
		if c, err = a.Issue(k.Name, now); err != nil {
			return err
		}
	}
	return k.write(ctx, secret, map[string][]byte{chainKey: c.Chain, privateKey: c.Key, trustedKey: a.Certificates()})
}

// read returns a Secret, or an empty one without a resource version if it does not exist.
func (k *Keeper) read(ctx context.Context, name string) (*v1.Secret, error) {
	secret := &v1.Secret{}
	err := k.Reader.Get(ctx, client.ObjectKey{Namespace: k.Namespace, Name: name}, secret)
	if apierrors.IsNotFound(err) {
		return &v1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: k.Namespace, Name: name, Labels: map[string]string{"app.kubernetes.io/part-of": "gshare"}}}, nil
	}
	return secret, err
}

// write stores data in a Secret that read has returned, unless it already has them. It fails if somebody else has written the Secret since.
func (k *Keeper) write(ctx context.Context, secret *v1.Secret, data map[string][]byte) error {
	if maps.EqualFunc(secret.Data, data, bytes.Equal) {
		return nil
	}
	secret.Data = data
	if secret.ResourceVersion == "" {
		return k.Writer.Create(ctx, secret)
	}
	k.Log.Info("change secret", "secret", secret.Name)
	return k.Writer.Update(ctx, secret)
}
