package identity

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// FromPeers returns the configuration of a server that follows changes of the files, for connections of servers that have the same certificate or
// another one for its name. A handshake with anybody else fails, as all do while there are no files.
func (f *Files) FromPeers() *tls.Config {
	config := f.TLS()
	config.ClientAuth = tls.RequireAnyClientCert // which VerifyConnection verifies, with the authorities of that moment
	config.VerifyConnection = f.verifyPeer(x509.ExtKeyUsageClientAuth)
	return config
}

// ToPeers returns the configuration of connections to servers of FromPeers. A handshake with another server fails.
func (f *Files) ToPeers() *tls.Config {
	return &tls.Config{
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return f.certificate(time.Now()) },
		InsecureSkipVerify:   true, // by the address of a pod: VerifyConnection verifies by name, with the authorities of that moment
		VerifyConnection:     f.verifyPeer(x509.ExtKeyUsageServerAuth),
		MinVersion:           tls.VersionTLS13,
	}
}

// verifyPeer returns a check of who is at the other end of a connection: a server whose certificate is for the name of ours and this usage.
func (f *Files) verifyPeer(usage x509.ExtKeyUsage) func(tls.ConnectionState) error {
	return func(state tls.ConnectionState) error {
		now := time.Now()
		pair, err := f.certificate(now)
		if err != nil {
			return err
		}
		trusted, err := f.authorities(now)
		if err != nil {
			return err
		}
		if len(state.PeerCertificates) == 0 || len(pair.Leaf.DNSNames) != 1 || pair.Leaf.DNSNames[0] == "" { // an empty name would match all
			return errors.New("want a certificate of the other end, and one name in ours")
		}
		_, err = state.PeerCertificates[0].Verify(x509.VerifyOptions{
			DNSName: pair.Leaf.DNSNames[0], Roots: trusted, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{usage},
		})
		return err
	}
}

// authorities returns what to trust. Those of before hold while the file cannot be read.
func (f *Files) authorities(now time.Time) (*x509.CertPool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.trusted != nil && now.Sub(f.readTrusted) < readPeriod {
		return f.trusted, nil
	}
	name := filepath.Join(f.folder, trustedKey)
	text, err := os.ReadFile(name)
	pool := x509.NewCertPool()
	if err == nil && !pool.AppendCertsFromPEM(text) {
		err = fmt.Errorf("%s has no certificate", name)
	}
	if err != nil {
		if f.trusted != nil {
			return f.trusted, nil
		}
		return nil, err
	}
	f.trusted, f.readTrusted = pool, now
	return f.trusted, nil
}
