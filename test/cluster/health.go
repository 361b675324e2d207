package cluster

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/gshare-dev/gshare/test/cluster/machine"
	"github.com/gshare-dev/gshare/test/controlplane/access"
)

// probe asks for a health page from the machine's network, as the administrator.
func (c *Cluster) probe(ctx context.Context, m *machine.Machine, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+c.Token(access.Admin))
	transport := &http.Transport{
		DialContext:       m.Dial,
		DisableKeepAlives: true,
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, // each program makes its own certificate
	}
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return err
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, response.Status)
	}
	return nil
}

// waitServiceAccount waits for an account of the default namespace, which pods need and the controller manager makes.
func (c *Cluster) waitServiceAccount(ctx context.Context, name string) error {
	found := func(ctx context.Context) (bool, error) {
		_, err := c.client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return err == nil, err
	}
	if err := wait.PollUntilContextCancel(ctx, pollInterval, true, found); err != nil {
		return fmt.Errorf("wait for service account %s: %w", name, err)
	}
	return nil
}
