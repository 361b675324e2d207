package v1alpha1

import (
	"fmt"
	"regexp"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Quantity is a Kubernetes quantity of bytes, such as "1525Mi".
type Quantity string

// quantityForm bounds the digits and the exponent of a Quantity, because parsing "10000000000000000000e999999999" takes minutes, and all memory. The
// definitions of the objects have the same bound, and one for the quantities of templates (hack/crds.sh). Signs stay allowed because Helm, for
// example, writes a large number as "1.073741824e+09".
var quantityForm = regexp.MustCompile(`^[+]?[0-9.]{1,32}([eE][+-]?[0-9]{1,2}|[A-Za-z]{0,2})$`)

// Parse returns the value of a quantity, or an error if it is not a quantity, is negative, or has more than 32 digits or more than two digits in its
// exponent.
func (q Quantity) Parse() (resource.Quantity, error) {
	if !quantityForm.MatchString(string(q)) {
		return resource.Quantity{}, fmt.Errorf("%.64q is no quantity of bytes, such as 1525Mi", string(q))
	}
	return resource.ParseQuantity(string(q))
}
