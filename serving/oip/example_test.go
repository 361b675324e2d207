package oip_test

import (
	"fmt"
	"os"

	"github.com/gshare-dev/gshare/serving/oip"
)

// Two requests become a batch; a third has another shape and is left out, to be sent in a batch of its own.
func ExampleMerge() {
	var requests []*oip.Request
	for _, body := range []string{
		`{"id":"a","inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[0.5,1]}]}`,
		`{"id":"b","inputs":[{"name":"x","shape":[2,2],"datatype":"FP32","data":[2,3,4,5]}]}`,
		`{"id":"c","inputs":[{"name":"x","shape":[1,3],"datatype":"FP32","data":[6,7,8]}]}`,
	} {
		r, err := oip.ParseRequest([]byte(body), len(body))
		if err != nil {
			fmt.Println(err) // the client's answer, with status 400
			return
		}
		requests = append(requests, r)
	}
	batch, errs := oip.Merge(requests)
	fmt.Println(errs[2])
	_, _ = batch.WriteTo(os.Stdout) // to the server
	fmt.Println()

	response := []byte(`{"model_name":"m","outputs":[{"name":"y","shape":[3],"datatype":"INT32","data":[10,20,30]}]}`)
	parts, err := batch.Split(response, len(response))
	if err != nil {
		fmt.Println(err) // the clients' answer, with status 502, unless each request is sent again by itself
		return
	}
	for _, part := range parts[:2] {
		_, _ = part.WriteTo(os.Stdout) // to the client
		fmt.Println()
	}
	// Output:
	// inputs[0].shape is [1,3], the batch has [1,2], of which only the first dimension may differ
	// {"inputs":[{"name":"x","shape":[3,2],"datatype":"FP32","data":[0.5,1,2,3,4,5]}]}
	// {"model_name":"m","id":"a","outputs":[{"name":"y","shape":[1],"datatype":"INT32","data":[10]}]}
	// {"model_name":"m","id":"b","outputs":[{"name":"y","shape":[2],"datatype":"INT32","data":[20,30]}]}
}
