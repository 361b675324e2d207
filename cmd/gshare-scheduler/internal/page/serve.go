package page

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/options"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
)

// Options are the flags of a program that may serve the page.
type Options struct {
	Address    string // host:port; empty: there is no page
	Kubeconfig string // of the cluster; empty: the one that the program runs in
	CertFile   string // what the program serves HTTPS with elsewhere; empty: a certificate of its own
	KeyFile    string
}

// AddTo adds the flags that are the page's alone.
func (o *Options) AddTo(flags *pflag.FlagSet) {
	flags.StringVar(&o.Address, "web-address", "", "host:port at which the packing map is served by HTTPS; empty is nowhere")
	flags.StringVar(&o.Kubeconfig, "web-kubeconfig", "", "kubeconfig with which the packing map reads the cluster; empty is the cluster around the process")
}

// Start serves the page until the context ends, and says where.
func (o *Options) Start(ctx context.Context) (net.Addr, error) {
	config, err := clientcmd.BuildConfigFromFlags("", o.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("--web-kubeconfig: %w", err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("--web-kubeconfig: %w", err)
	}
	handler, err := Guard(Handler(client), client)
	if err != nil {
		return nil, err
	}
	serving, err := o.listen()
	if err != nil {
		return nil, fmt.Errorf("--web-address: %w", err)
	}
	if _, _, err := serving.Serve(handler, time.Second, ctx.Done()); err != nil {
		return nil, err
	}
	klog.InfoS("Packing map", "address", serving.Listener.Addr(), "path", Path)
	return serving.Listener.Addr(), nil
}

func (o *Options) listen() (*server.SecureServingInfo, error) {
	listener, err := net.Listen("tcp", o.Address)
	if err != nil {
		return nil, err
	}
	secure := options.NewSecureServingOptions()
	secure.Listener = listener
	// Without folder and name a certificate of its own stays in memory.
	secure.ServerCert = options.GeneratableKeyCert{CertKey: options.CertKey{CertFile: o.CertFile, KeyFile: o.KeyFile}}
	if err := secure.MaybeDefaultWithSelfSignedCerts("localhost", nil, []net.IP{net.IPv4(127, 0, 0, 1)}); err != nil {
		return nil, err
	}
	var serving *server.SecureServingInfo
	err = secure.ApplyTo(&serving)
	return serving, err
}
