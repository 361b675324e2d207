package install_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/kubernetes"
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
)

// elsewhere lists words of commands that need more than an API server, and what they need.
var elsewhere = map[string]string{
	"rollout":      "controllers and kubelets: test/cluster waits for the same pods",
	"port-forward": "a kubelet",
	"delete":       "the controller that ends namespaces: test/cluster deletes the same objects",

	"first.yaml": "a file with the manifest above the command, which TestExamples applies",

	// Files that make release writes.
	"gshare.yaml":           "test/cluster applies it",
	"gshare-serving.yaml":   "manifests/serving, which is applied here, with other images",
	"gshare-older.yaml":     "manifests/older, which is applied here",
	"gshare-uninstall.yaml": "manifests/node/uninstall.yaml, which is applied here",
}

// TestTranscript runs the documented kubectl commands on the API server, in the order of the documents. Commands mentioned within a sentence may be
// incomplete, and are not run.
func TestTranscript(t *testing.T) {
	enforce(t)
	defineServing(t)
	stage(t)
	all := commands(t, "kubectl")
	t.Chdir(root)
	ran := 0
	for _, c := range all {
		if c.Mention || slices.ContainsFunc(c.Words, func(word string) bool { return elsewhere[word] != "" }) {
			continue
		}
		ran++
		words := slices.Clone(c.Words[1:])
		if i := slices.Index(words, "NODE"); i >= 0 {
			words[i] = "n1"
		}
		if out, err := run(words); err != nil {
			t.Errorf("%v: %v\n%s", c, err, out)
		}
	}
	if ran < 10 {
		t.Errorf("only %d commands ran", ran)
	}
	for _, wrong := range []string{"get pods --selektor=x", "get pod leest", "apply -k manifests/overlays/exampel"} {
		if out, err := run(strings.Fields(wrong)); err == nil {
			t.Errorf("kubectl %s passes: %s", wrong, out)
		}
	}
}

// stage creates what the documents take for granted: a node, a namespace, the service account that controllers would create, the first pod, the
// plan, and the profile of a training.
func stage(t *testing.T) {
	t.Helper()
	core := kubernetes.NewForConfigOrDie(server).CoreV1()
	_, err := core.Nodes().Create(t.Context(), &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = core.Namespaces().Create(t.Context(), &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	_, err = core.ServiceAccounts("default").Create(t.Context(), &v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	for _, b := range blocks(t) {
		if b.Language == "yaml" && (strings.Contains(b.Text, "name: least\n") || strings.Contains(b.Text, "kind: InferencePlan\nmetadata: {name: vision}\n") ||
			strings.Contains(b.Text, "kind: GPUProfile\nmetadata: {name: train}\n")) {
			if err := create(t, objects(t, b.File, b.Text)[0], metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// failure is the message with which kubectl would exit.
type failure string

// run runs kubectl with these arguments, as an administrator.
func run(words []string) (output string, err error) {
	var out bytes.Buffer
	kubectlutil.BehaviorOnFatal(func(message string, _ int) { panic(failure(message)) })
	defer kubectlutil.DefaultBehaviorOnFatal()
	defer func() {
		output = out.String()
		switch said := recover().(type) {
		case nil:
		case failure:
			err = errors.New(string(said))
		default:
			panic(said)
		}
	}()
	cmd := kubectlCommand(&out)
	cmd.SetArgs(append(words, "--kubeconfig", kubeconfig))
	return "", cmd.Execute()
}

// kubectlCommand returns kubectl without plugins: while looking for plugins, it would parse the test's own flags.
func kubectlCommand(out io.Writer) *cobra.Command {
	streams := genericiooptions.IOStreams{In: os.Stdin, Out: out, ErrOut: out}
	cmd := kubectl.NewKubectlCommand(kubectl.KubectlOptions{ConfigFlags: genericclioptions.NewConfigFlags(true), IOStreams: streams})
	cmd.SetOut(out)
	cmd.SetErr(out)
	return cmd
}
