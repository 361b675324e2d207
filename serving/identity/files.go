package identity

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"
)

// readPeriod is the time after which files are read again: the kubelet changes them when the Secret changes.
const readPeriod = 10 * time.Second

// Files is the certificate of a server, in the files tls.crt and tls.key of a folder, and the authorities that it trusts, in ca.crt.
type Files struct {
	folder string

	mu          sync.Mutex
	read        time.Time // when pair was read
	pair        *tls.Certificate
	readTrusted time.Time
	trusted     *x509.CertPool
}

// NewFiles returns the Files in a folder.
func NewFiles(folder string) *Files { return &Files{folder: folder} }

// TLS returns the configuration of a server that follows changes of the files.
func (f *Files) TLS() *tls.Config {
	return &tls.Config{
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return f.certificate(time.Now()) },
		MinVersion:     tls.VersionTLS13, SessionTicketsDisabled: true,
	}
}

// certificate returns the server's certificate. While the kubelet replaces the two files, one may be older than the other; until both match, the
// previous pair is used.
func (f *Files) certificate(now time.Time) (*tls.Certificate, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.pair != nil && now.Sub(f.read) < readPeriod {
		return f.pair, nil
	}
	pair, err := tls.LoadX509KeyPair(filepath.Join(f.folder, chainKey), filepath.Join(f.folder, privateKey))
	if err != nil {
		if f.pair != nil {
			return f.pair, nil
		}
		return nil, err
	}
	f.pair, f.read = &pair, now
	return f.pair, nil
}

// TokenFile is a file with the token of a service account, which the kubelet replaces before it expires. It is credentials for gRPC calls, and is
// sent over TLS only.
type TokenFile string

var _ credentials.PerRPCCredentials = TokenFile("")

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (f TokenFile) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	text, err := os.ReadFile(string(f))
	if err != nil {
		return nil, err
	}
	token := strings.TrimSpace(string(text))
	if token == "" {
		return nil, errors.New(string(f) + " is empty")
	}
	return map[string]string{"authorization": "Bearer " + token}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials.
func (TokenFile) RequireTransportSecurity() bool { return true }
