package identity

import (
	"context"
	"fmt"
	"slices"
	"strings"

	authentication "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	client "k8s.io/client-go/kubernetes/typed/authentication/v1"
)

// ReviewBy returns a Review that asks the API server.
func ReviewBy(c client.TokenReviewInterface) Review {
	return func(ctx context.Context, token, audience string) (Account, error) {
		answer, err := c.Create(ctx, &authentication.TokenReview{Spec: authentication.TokenReviewSpec{Token: token, Audiences: []string{audience}}}, metav1.CreateOptions{})
		if err != nil {
			return Account{}, err
		}
		status := answer.Status
		switch {
		case !status.Authenticated && status.Error != "":
			return Account{}, fmt.Errorf("%w: %.200s", ErrRefused, status.Error)
		case !status.Authenticated:
			return Account{}, ErrRefused
		case !slices.Contains(status.Audiences, audience): // an API server that does not support audiences returns none
			return Account{}, fmt.Errorf("%w: it is not for the audience %s", ErrRefused, audience)
		}
		return parseUser(status.User.Username)
	}
}

// parseUser returns the service account that a user name stands for.
func parseUser(user string) (Account, error) {
	parts := strings.Split(user, ":")
	if len(parts) != 4 || parts[0] != "system" || parts[1] != "serviceaccount" || parts[2] == "" || parts[3] == "" {
		return Account{}, fmt.Errorf("%w: it is none of a service account", ErrRefused)
	}
	return Account{Namespace: parts[2], Name: parts[3]}, nil
}
