// Package identity authenticates both ends of connections between parts of gshare, and the callers of functions.
//
// Servers have a certificate of gshare's own authority, which gshare-controller keeps in a Secret (Keeper): no other controller and no webhook is
// needed. Clients send the token of their service account, for an audience of gshare, and the API server reviews it (Tokens). Servers that share a
// certificate use it to prove to each other that they do (Files.FromPeers, Files.ToPeers).
package identity

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"slices"
	"time"
)

// Lifetimes of certificates. Each certificate is replaced when a third of its lifetime is left.
const (
	authorityLife   = 365 * 24 * time.Hour
	certificateLife = 30 * 24 * time.Hour

	// spread is how long a new authority is trusted before it signs. By then all parts of gshare have read it: the kubelet takes some minutes to
	// write a changed Secret into pods.
	spread = 24 * time.Hour
	// skew is how far the clocks of nodes may differ.
	skew = time.Hour
)

// Authority is a certificate authority.
type Authority struct {
	certificate *x509.Certificate
	key         crypto.Signer // nil if the authority no longer signs
}

// Authorities are the authorities that are trusted, oldest first. One of them signs.
type Authorities []Authority

// Renew returns the authorities to use from now on: it removes those that have expired, adds a new one when the youngest will expire soon, and
// removes the keys of those that a younger one has replaced.
func (a Authorities) Renew(now time.Time) (Authorities, error) {
	a = slices.DeleteFunc(slices.Clone(a), func(one Authority) bool { return !now.Before(one.certificate.NotAfter) })
	if len(a) == 0 || needsRenewal(a[len(a)-1].certificate, now) {
		created, err := newAuthority(now)
		if err != nil {
			return nil, err
		}
		a = append(a, created)
	}
	for i := range a[:a.signer(now)] {
		a[i].key = nil
	}
	return a, nil
}

// signer returns the index of the authority that signs: the youngest one that has been trusted for spread, or else the oldest.
func (a Authorities) signer(now time.Time) int {
	for i := len(a) - 1; i > 0; i-- {
		if now.Sub(a[i].certificate.NotBefore.Add(skew)) >= spread {
			return i
		}
	}
	return 0
}

func needsRenewal(c *x509.Certificate, now time.Time) bool {
	return c.NotAfter.Sub(now) < c.NotAfter.Sub(c.NotBefore)/3
}

func newAuthority(now time.Time) (Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Authority{}, err
	}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: "gshare serving " + now.UTC().Format(time.RFC3339)}, NotBefore: now.Add(-skew), NotAfter: now.Add(authorityLife),
		KeyUsage: x509.KeyUsageCertSign, IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return Authority{}, err
	}
	certificate, err := x509.ParseCertificate(der)
	return Authority{certificate, key}, err
}

// Certificate is the certificate of a server and its key, both in PEM.
type Certificate struct{ Chain, Key []byte }

// Issue returns a certificate for the server with a DNS name. The server may also use it as a client of other servers.
func (a Authorities) Issue(name string, now time.Time) (Certificate, error) {
	if len(a) == 0 || a[a.signer(now)].key == nil {
		return Certificate{}, errors.New("no authority has a key")
	}
	signer := a[a.signer(now)]
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Certificate{}, err
	}
	end := now.Add(certificateLife)
	if end.After(signer.certificate.NotAfter) {
		end = signer.certificate.NotAfter
	}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}, NotBefore: now.Add(-skew), NotAfter: end,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, signer.certificate, key.Public(), signer.key)
	if err != nil {
		return Certificate{}, err
	}
	private, err := encodeKey(key)
	return Certificate{encodeCertificate(der), private}, err
}

// IsCurrent reports whether a certificate is for the name, as Issue makes them, is signed by the authority that signs now, and need not be renewed yet.
func (a Authorities) IsCurrent(c Certificate, name string, now time.Time) bool {
	pair, err := tls.X509KeyPair(c.Chain, c.Key)
	if err != nil || len(a) == 0 || pair.Leaf.VerifyHostname(name) != nil || needsRenewal(pair.Leaf, now) {
		return false
	}
	if !slices.Contains(pair.Leaf.ExtKeyUsage, x509.ExtKeyUsageClientAuth) { // an earlier version of the controller issued it
		return false
	}
	return pair.Leaf.CheckSignatureFrom(a[a.signer(now)].certificate) == nil
}

// Pool returns the certificates of all authorities.
func (a Authorities) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	for _, one := range a {
		pool.AddCert(one.certificate)
	}
	return pool
}

// Certificates returns the certificates of all authorities, in PEM.
func (a Authorities) Certificates() []byte {
	var text []byte
	for _, one := range a {
		text = append(text, encodeCertificate(one.certificate.Raw)...)
	}
	return text
}

// Encode returns the authorities in PEM: each certificate is followed by its key, if it has one.
func (a Authorities) Encode() ([]byte, error) {
	var text []byte
	for _, one := range a {
		text = append(text, encodeCertificate(one.certificate.Raw)...)
		if one.key == nil {
			continue
		}
		key, err := encodeKey(one.key)
		if err != nil {
			return nil, err
		}
		text = append(text, key...)
	}
	return text, nil
}

// DecodeAuthorities decodes what Encode has encoded. It is an error if there are no authorities, or if the youngest one has no key to sign with.
func DecodeAuthorities(text []byte) (Authorities, error) {
	var a Authorities
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			break
		}
		switch block.Type {
		case certificateType:
			c, err := x509.ParseCertificate(block.Bytes)
			if err != nil {
				return nil, err
			}
			a = append(a, Authority{certificate: c})
		case keyType:
			key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
			signer, ok := key.(*ecdsa.PrivateKey)
			if err != nil || !ok || len(a) == 0 || !signer.PublicKey.Equal(a[len(a)-1].certificate.PublicKey) {
				return nil, errors.New("a key is not that of the certificate before it")
			}
			a[len(a)-1].key = signer
		}
	}
	if len(bytes.TrimSpace(text)) > 0 || len(a) == 0 || a[len(a)-1].key == nil {
		return nil, errors.New("no authority, or the youngest one has no key")
	}
	return a, nil
}

const (
	certificateType = "CERTIFICATE"
	keyType         = "PRIVATE KEY"
)

func encodeCertificate(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: certificateType, Bytes: der})
}

func encodeKey(key crypto.Signer) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	return pem.EncodeToMemory(&pem.Block{Type: keyType, Bytes: der}), err
}
