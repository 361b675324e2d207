package identity

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

const serverName = "gshare-gateway-reports.gshare-system.svc"

func newKeeper(c client.Client) *Keeper {
	return &Keeper{Reader: c, Writer: c, Namespace: "gshare-system", Name: serverName, Log: slog.New(slog.DiscardHandler)}
}

func (k *Keeper) mustKeep(t *testing.T) {
	t.Helper()
	if err := k.keep(t.Context(), time.Now()); err != nil {
		t.Fatal(err)
	}
}

func secretOf(t *testing.T, c client.Client, name string) *v1.Secret {
	t.Helper()
	s := &v1.Secret{}
	if err := c.Get(context.Background(), client.ObjectKey{Namespace: "gshare-system", Name: name}, s); err != nil {
		t.Fatal(err)
	}
	return s
}

// writeFile stores one file of the gateways' Secret in a folder.
func writeFile(t *testing.T, folder, name string, s *v1.Secret) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(folder, name), s.Data[name], 0o600); err != nil {
		t.Fatal(err)
	}
}

// shake returns the error of a handshake as the client sees it, and the certificate of the server.
func shake(t *testing.T, k *Keeper, server *tls.Config) (*tls.ConnectionState, error) {
	t.Helper()
	config, err := k.TLS()
	if err != nil {
		return nil, err
	}
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	go func() { _ = tls.Server(b, server).Handshake() }()
	c := tls.Client(a, config)
	err = c.Handshake()
	state := c.ConnectionState()
	return &state, err
}

// TestRotation runs for two years, in which authorities and certificates are replaced. Gateways read a changed Secret two days late, and at one
// moment one of its files only; another controller leads at times. Each connection succeeds.
func TestRotation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const step = 48 * time.Hour
		c := fake.NewClientBuilder().Build()
		leaders := []*Keeper{newKeeper(c), newKeeper(c)}
		leaders[0].mustKeep(t)
		folder := t.TempDir()
		now := secretOf(t, c, GatewaySecret)
		writeFile(t, folder, chainKey, now)
		writeFile(t, folder, privateKey, now)
		written := now.ResourceVersion
		server := NewFiles(folder).TLS()
		issuers, serials := map[string]bool{}, map[string]bool{}
		most := 0
		for day := 0; day < 2*365; day += 2 {
			leader := leaders[day/100%2]
			leader.mustKeep(t)
			connect := func(what string) {
				t.Helper()
				state, err := shake(t, leader, server)
				if err != nil {
					t.Fatalf("day %d, %s: %v", day, what, err)
				}
				leaf := state.PeerCertificates[0]
				issuers[leaf.Issuer.CommonName], serials[leaf.SerialNumber.String()] = true, true
				if left := time.Until(leaf.NotAfter); left < certificateLife/6 {
					t.Fatalf("day %d: the certificate ends in %v", day, left)
				}
			}
			if now.ResourceVersion != written {
				connect("before the files change")
				writeFile(t, folder, chainKey, now)
				time.Sleep(readPeriod)
				connect("one file is new")
				writeFile(t, folder, privateKey, now)
				time.Sleep(readPeriod)
				written = now.ResourceVersion
			}
			now = secretOf(t, c, GatewaySecret)
			connect("both files are those of two days ago")
			most = max(most, strings.Count(string(now.Data[trustedKey]), "BEGIN"))
			if keys := strings.Count(string(secretOf(t, c, AuthoritySecret).Data[authoritiesKey]), keyType); keys > 4 { // two lines each
				t.Fatalf("day %d: %d keys", day, keys/2)
			}
			time.Sleep(step)
		}
		if len(issuers) < 3 || len(serials) < 30 || most != 2 {
			t.Errorf("%d authorities, %d certificates, up to %d trusted at once: want 3 or more, about one each 20 days, and 2", len(issuers), len(serials), most)
		}
	})
}

// TestKeeper: what somebody does to the Secrets is put right.
func TestKeeper(t *testing.T) {
	away := apierrors.NewInternalError(errAway)
	for name, test := range map[string]struct {
		change        func(*testing.T, client.Client)
		sameAuthority bool
	}{
		"nothing":                {func(*testing.T, client.Client) {}, true},
		"authority deleted":      {func(t *testing.T, c client.Client) { remove(t, c, AuthoritySecret) }, true},
		"certificate deleted":    {func(t *testing.T, c client.Client) { remove(t, c, GatewaySecret) }, true},
		"authority not valid":    {func(t *testing.T, c client.Client) { set(t, c, AuthoritySecret, authoritiesKey, "rubbish") }, true},
		"key not valid":          {func(t *testing.T, c client.Client) { set(t, c, GatewaySecret, privateKey, "rubbish") }, true},
		"trusted not valid":      {func(t *testing.T, c client.Client) { set(t, c, GatewaySecret, trustedKey, "rubbish") }, true},
		"another has replaced":   {func(t *testing.T, c client.Client) { remove(t, c, AuthoritySecret); newKeeper(c).mustKeep(t) }, false},
		"other name in the leaf": {func(t *testing.T, c client.Client) { o := newKeeper(c); o.Name = "other"; o.mustKeep(t) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			c := fake.NewClientBuilder().Build()
			k := newKeeper(c)
			if _, err := k.TLS(); err == nil {
				t.Error("an authority is known before there is one")
			}
			k.mustKeep(t)
			before := secretOf(t, c, AuthoritySecret)
			test.change(t, c)
			k.mustKeep(t)
			after := secretOf(t, c, AuthoritySecret)
			if same := string(before.Data[authoritiesKey]) == string(after.Data[authoritiesKey]); same != test.sameAuthority {
				t.Errorf("the same authority: %t", same)
			}
			s := secretOf(t, c, GatewaySecret)
			folder := t.TempDir()
			writeFile(t, folder, chainKey, s)
			writeFile(t, folder, privateKey, s)
			if _, err := shake(t, k, NewFiles(folder).TLS()); err != nil {
				t.Error(err)
			}
			version := s.ResourceVersion
			k.mustKeep(t)
			if s := secretOf(t, c, GatewaySecret); s.ResourceVersion != version {
				t.Error("the Secret was written though nothing had changed")
			}
		})
	}
	t.Run("API server away", func(t *testing.T) {
		var err error
		c := interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
				if err != nil {
					return err
				}
				return c.Get(ctx, key, o, opts...)
			},
		})
		k := newKeeper(c)
		k.mustKeep(t)
		err = away
		if k.keep(t.Context(), time.Now()) == nil {
			t.Error("no error")
		}
		if _, err := k.TLS(); err != nil {
			t.Errorf("the authority is forgotten: %v", err)
		}
	})
	t.Run("another is faster", func(t *testing.T) {
		c := interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
			Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
				return apierrors.NewAlreadyExists(schema.GroupResource{Resource: "secrets"}, AuthoritySecret)
			},
		})
		k := newKeeper(c)
		if k.keep(t.Context(), time.Now()) == nil {
			t.Error("no error")
		}
		if _, err := k.TLS(); err == nil {
			t.Error("an authority is trusted that was not stored")
		}
	})
}

func remove(t *testing.T, c client.Client, name string) {
	t.Helper()
	if err := c.Delete(t.Context(), &v1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "gshare-system", Name: name}}); err != nil {
		t.Fatal(err)
	}
}

func set(t *testing.T, c client.Client, name, key, text string) {
	t.Helper()
	s := secretOf(t, c, name)
	s.Data[key] = []byte(text)
	if err := c.Update(t.Context(), s); err != nil {
		t.Fatal(err)
	}
}

// TestStream opens streams to a server that only one service account may read.
func TestStream(t *testing.T) {
	c := fake.NewClientBuilder().Build()
	k, stranger := newKeeper(c), newKeeper(fake.NewClientBuilder().Build())
	k.mustKeep(t)
	stranger.mustKeep(t)
	folder := t.TempDir()
	s := secretOf(t, c, GatewaySecret)
	writeFile(t, folder, chainKey, s)
	writeFile(t, folder, privateKey, s)

	hour := time.Now().Add(time.Hour)
	good, other := newToken(AudienceReports, hour), newToken(AudienceReports, hour.Add(time.Second))
	revoked, unknown := newToken(AudienceReports, hour.Add(2*time.Second)), newToken(AudienceReports, hour.Add(3*time.Second))
	tokens := NewTokens(AudienceReports, func(_ context.Context, token, _ string) (Account, error) {
		switch token {
		case good:
			return alice, nil
		case other:
			return Account{"models", "bob"}, nil
		case revoked:
			return Account{}, ErrRefused
		case unknown:
			return Account{}, errAway
		}
		t.Errorf("token %s is reviewed", token)
		return Account{}, errors.New("unexpected")
	})
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(NewFiles(folder).TLS())), grpc.StreamInterceptor(tokens.Only(alice)))
	server.RegisterService(&grpc.ServiceDesc{ServiceName: "test", HandlerType: (*any)(nil), Streams: []grpc.StreamDesc{{
		StreamName: "Watch", ServerStreams: true, Handler: func(_ any, s grpc.ServerStream) error { return status.Error(codes.OutOfRange, "reached") },
	}}}, nil)
	l := bufconn.Listen(64 << 10)
	go server.Serve(l)
	defer server.Stop()

	for name, test := range map[string]struct {
		keeper *Keeper
		token  string
		want   codes.Code
	}{
		"good":            {k, good, codes.OutOfRange},
		"another account": {k, other, codes.PermissionDenied},
		"revoked":         {k, revoked, codes.Unauthenticated},
		"API server away": {k, unknown, codes.Unavailable},
		"wrong audience":  {k, newToken(AudienceFunctions, hour), codes.Unauthenticated},
		"expired":         {k, newToken(AudienceReports, time.Now().Add(-time.Second)), codes.Unauthenticated},
		"no token":        {k, "", codes.Unauthenticated},
		"rubbish":         {k, "rubbish", codes.Unauthenticated},
		"wrong authority": {stranger, good, codes.Unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "token")
			if err := os.WriteFile(file, []byte(test.token+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			config, err := test.keeper.TLS()
			if err != nil {
				t.Fatal(err)
			}
			conn, err := grpc.NewClient("passthrough:///gateway", grpc.WithTransportCredentials(credentials.NewTLS(config)),
				grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			options := []grpc.CallOption{grpc.PerRPCCredentials(TokenFile(file))}
			if test.token == "" {
				options = nil
			}
			stream, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true}, "/test/Watch", options...)
			if err == nil {
				err = stream.RecvMsg(nil)
			}
			if status.Code(err) != test.want {
				t.Errorf("%v, want %v", err, test.want)
			}
			if name == "wrong authority" && !strings.Contains(err.Error(), "unknown authority") {
				t.Error(err)
			}
		})
	}
	if _, err := grpc.NewClient("passthrough:///gateway", grpc.WithPerRPCCredentials(TokenFile("x")), grpc.WithTransportCredentials(plain{})); err == nil {
		t.Error("a token may be sent in plain text")
	}
}

// plain are credentials of a transport that encrypts nothing.
type plain struct {
	credentials.TransportCredentials
}

func (plain) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "insecure"}
}
func (plain) Clone() credentials.TransportCredentials { return plain{} }
