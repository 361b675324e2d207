package identity

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// peerFiles returns a folder with a certificate and what its owner trusts.
func peerFiles(t *testing.T, trusted Authorities, c Certificate) *Files {
	t.Helper()
	folder := t.TempDir()
	for name, text := range map[string][]byte{chainKey: c.Chain, privateKey: c.Key, trustedKey: trusted.Certificates()} {
		if err := os.WriteFile(filepath.Join(folder, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return NewFiles(folder)
}

func mustRenew(t *testing.T, a Authorities) Authorities {
	t.Helper()
	a, err := a.Renew(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func mustIssue(t *testing.T, a Authorities, name string) Certificate {
	t.Helper()
	c, err := a.Issue(name, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// issueAs returns a certificate with other fields than Issue gives it.
func issueAs(t *testing.T, a Authorities, change func(*x509.Certificate)) Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: serverName}, DNSNames: []string{serverName}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	change(template)
	der, err := x509.CreateCertificate(rand.Reader, template, a[0].certificate, key.Public(), a[0].key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := encodeKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return Certificate{encodeCertificate(der), private}
}

// connectPeers returns the errors of both ends of a connection, over which the server sends a byte.
func connectPeers(server, client *tls.Config) (serverErr, clientErr error) {
	a, b := net.Pipe()
	defer a.Close()
	ended := make(chan error, 1)
	go func() {
		s := tls.Server(b, server)
		err := s.Handshake()
		if err == nil {
			_, err = s.Write([]byte{1})
		}
		b.Close()
		ended <- err
	}()
	c := tls.Client(a, client)
	if clientErr = c.Handshake(); clientErr == nil {
		_, clientErr = c.Read(make([]byte, 1)) // by then the server has looked at the client's certificate
	}
	a.Close()
	return <-ended, clientErr
}

// TestPeers connects two servers of which one is not what it should be.
func TestPeers(t *testing.T) {
	ours, foreign := mustRenew(t, nil), mustRenew(t, nil)
	good := mustIssue(t, ours, serverName)
	gateway := peerFiles(t, ours, good)
	for name, test := range map[string]struct {
		certificate Certificate
		trusted     Authorities
		want        bool
	}{
		"the same certificate":        {good, ours, true},
		"another of the same name":    {mustIssue(t, ours, serverName), ours, true},
		"another name":                {mustIssue(t, ours, "gshare-controller.gshare-system.svc"), ours, false},
		"another authority":           {mustIssue(t, foreign, serverName), foreign, false},
		"both authorities trusted":    {mustIssue(t, foreign, serverName), append(Authorities{}, ours[0], foreign[0]), false},
		"ended":                       {issueAs(t, ours, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }), ours, false},
		"name in the subject only":    {issueAs(t, ours, func(c *x509.Certificate) { c.DNSNames = nil }), ours, false},
		"neither a server nor client": {issueAs(t, ours, func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageEmailProtection} }), ours, false},
		"no certificate":              {Certificate{}, ours, false},
	} {
		t.Run(name, func(t *testing.T) {
			other := peerFiles(t, test.trusted, test.certificate)
			client, server := other.ToPeers(), other.FromPeers()
			if !test.want { // it would connect to everybody
				client.VerifyConnection, server.VerifyConnection = nil, nil
			}
			if serverErr, clientErr := connectPeers(gateway.FromPeers(), client); (serverErr == nil) != test.want || (clientErr == nil) != test.want {
				t.Errorf("it connects to a gateway: %v, %v", serverErr, clientErr)
			}
			if _, clientErr := connectPeers(server, gateway.ToPeers()); (clientErr == nil) != test.want {
				t.Errorf("a gateway connects to it: %v", clientErr)
			}
		})
	}
	t.Run("client without a certificate", func(t *testing.T) {
		serverErr, clientErr := connectPeers(gateway.FromPeers(), &tls.Config{InsecureSkipVerify: true})
		if serverErr == nil || clientErr == nil {
			t.Errorf("it is accepted: %v, %v", serverErr, clientErr)
		}
	})
	t.Run("for servers only", func(t *testing.T) {
		old := issueAs(t, ours, func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} })
		if serverErr, _ := connectPeers(gateway.FromPeers(), peerFiles(t, ours, old).ToPeers()); serverErr == nil {
			t.Error("it connects as a client")
		}
		if ours.IsCurrent(old, serverName, time.Now().Add(-59*time.Minute)) {
			t.Error("it is not renewed")
		}
	})
	t.Run("no authorities", func(t *testing.T) {
		for name, text := range map[string]string{"empty": "", "rubbish": "rubbish"} {
			files := peerFiles(t, ours, good)
			if err := os.WriteFile(filepath.Join(files.folder, trustedKey), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if serverErr, _ := connectPeers(files.FromPeers(), gateway.ToPeers()); serverErr == nil {
				t.Errorf("%s: it accepts clients", name)
			}
			if _, clientErr := connectPeers(gateway.FromPeers(), files.ToPeers()); clientErr == nil {
				t.Errorf("%s: it connects", name)
			}
		}
	})
	t.Run("files come later", func(t *testing.T) {
		files := NewFiles(filepath.Join(t.TempDir(), "absent"))
		server, client := files.FromPeers(), files.ToPeers()
		if serverErr, clientErr := connectPeers(server, client); serverErr == nil || clientErr == nil {
			t.Error("it connects to itself without files")
		}
		if err := os.Rename(peerFiles(t, ours, good).folder, files.folder); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(connectPeers(server, client)); err != nil {
			t.Error(err)
		}
	})
}

// TestPeerRotation runs for more than a year, in which the authority and certificates are replaced. One of two gateways reads a changed Secret half a
// day after the other one. Each connection succeeds, in both directions.
func TestPeerRotation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const step = 12 * time.Hour
		c := fake.NewClientBuilder().Build()
		k := newKeeper(c)
		k.mustKeep(t)
		early, late := t.TempDir(), t.TempDir()
		versions := map[string]string{}
		update := func(folder string) (changed bool) {
			s := secretOf(t, c, GatewaySecret)
			if versions[folder] == s.ResourceVersion {
				return false
			}
			versions[folder] = s.ResourceVersion
			for _, name := range []string{chainKey, privateKey, trustedKey} {
				writeFile(t, folder, name, s)
			}
			return true
		}
		update(early)
		update(late)
		a, b := NewFiles(early), NewFiles(late)
		toA, toB, fromA, fromB := a.ToPeers(), b.ToPeers(), a.FromPeers(), b.FromPeers()
		serials := map[string]bool{}
		for passed := time.Duration(0); passed < 400*24*time.Hour; passed += step {
			changed := update(late) // before the Secret changes again: with what it was half a day ago
			k.mustKeep(t)
			changed = update(early) || changed
			time.Sleep(readPeriod)
			if !changed && passed%(100*time.Hour) != 0 {
				time.Sleep(step - readPeriod)
				continue
			}
			if err := errors.Join(errors.Join(connectPeers(fromA, toB)), errors.Join(connectPeers(fromB, toA))); err != nil {
				t.Fatalf("after %v: %v", passed, err)
			}
			serials[a.pair.Leaf.SerialNumber.String()+a.pair.Leaf.Issuer.CommonName] = true
			time.Sleep(step - readPeriod)
		}
		if len(serials) < 20 {
			t.Errorf("%d certificates, want about one each 20 days", len(serials))
		}
	})
}
