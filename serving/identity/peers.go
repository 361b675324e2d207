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

// FromPeers returns the configuration of a server, which follows changes of the files. It accepts connections only from servers that have the same
// certificate, or another one for the same name. Handshakes with all others fail, and so do all handshakes while there are no files.
func (f *Files) FromPeers() *tls.Config {
	config := f.TLS()
	config.ClientAuth = tls.RequireAnyClientCert // verified by VerifyConnection, with the authorities of that moment
	config.VerifyConnection = f.verifyPeer(x509.ExtKeyUsageClientAuth)
	return config
}

// ToPeers returns the configuration for connections to servers of FromPeers. Handshakes with other servers fail.
func (f *Files) ToPeers() *tls.Config {
	return &tls.Config{
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return f.certificate(time.Now()) },
		InsecureSkipVerify:   true, // the address is that of a pod: VerifyConnection verifies the name instead, with the authorities of that moment
		VerifyConnection:     f.verifyPeer(x509.ExtKeyUsageServerAuth),
		MinVersion:           tls.VersionTLS13,
	}
}

// verifyPeer returns a check that the other end of a connection has a certificate for the name in our own certificate, and for this usage.
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

// authorities returns the authorities to trust. While the file cannot be read, the previous ones are used.
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
