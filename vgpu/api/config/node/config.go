// Package node defines the configuration file of the node agent, gshare-node.
package node

import (
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gshare-dev/gshare/vgpu/api/strictyaml"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/share"
	"github.com/gshare-dev/gshare/vgpu/token"
)

// APIVersion and kind of a configuration file.
const (
	APIVersion = "gshare.dev/v1alpha1"
	Kind       = "NodeConfiguration"
)

// Configuration is the configuration file of the node agent. Everything has a default, and the file itself may be missing. It has many
// fields because they are the keys of one flat file.
type Configuration struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`

	// Directory is where the agent keeps its control socket and a directory for each run. Default: /run/gshare for root, otherwise
	// $XDG_RUNTIME_DIR/gshare.
	Directory string `json:"directory,omitempty"`

	// SimulatedDevices is a file with a list of devices. The agent simulates these and does not look for GPUs. Default: none, the GPUs of the
	// machine.
	SimulatedDevices string `json:"simulatedDevices,omitempty"`

	// SimulatedKernels makes the kernels of programs on simulated devices take time, with gshare-node --standalone and the simulated driver
	// (hook/fake). The programs end when the agent ends. Default: false, kernels take no time.
	SimulatedKernels bool `json:"simulatedKernels,omitempty"`

	// SimulatedMPS is a program to run in place of NVIDIA's MPS on simulated devices. Default: none.
	SimulatedMPS string `json:"simulatedMPS,omitempty"`

	// MPSVersion is the newest version of MPS to use: 2 or 3. Version 3 is used only where the driver has it, and a slice with shares keeps its
	// version. Default: 3.
	MPSVersion int `json:"mpsVersion,omitempty"`

	// Devices lists the GPUs that gshare manages, by UUID or, in a cluster, by index, such as "0". An index may mean another GPU after a reboot.
	// Other GPUs are left alone. Default: all GPUs.
	Devices []string `json:"devices,omitempty"`

	// Tenancy says who may have shares of the same device: "user", shares of one user only, or "mixed", shares of several users. Default: user.
	Tenancy string `json:"tenancy,omitempty"`

	// GammaPercent is the maximum of the sum of all limits on a device, in percent of the device. Default: 150.
	GammaPercent *int64 `json:"gammaPercent,omitempty"`

	// ReservePerMille is the part of each window that is kept free for switching between sets of shares. Default: 50.
	ReservePerMille *share.PerMille `json:"reservePerMille,omitempty"`

	// ContextReserveMiB is the memory of each GPU and MIG instance that is not given to shares, at most an eighth of its memory. It is for what
	// CUDA contexts take besides the memory of the shares (on an H100 18 MiB each, and 4.5 MiB for each SM of their SM limits) and for the MPS
	// server (66 MiB). Nothing is kept back on a device that cannot be shared. Default: 1024, and 0 for simulated devices.
	ContextReserveMiB *int64 `json:"contextReserveMiB,omitempty"`

	// MaxShares is the maximum number of shares on a device. Default: 16.
	MaxShares int `json:"maxShares,omitempty"`

	// Window is the period over which quotas are counted. A second must be a multiple of it. Default: 100ms.
	Window metav1.Duration `json:"window,omitzero"`

	// Turn is the time for which one set of shares runs before the next. Default: 5ms.
	Turn metav1.Duration `json:"turn,omitzero"`

	// RunAhead is how much unfinished work a process may have queued on the device. Default: 1ms.
	RunAhead metav1.Duration `json:"runAhead,omitzero"`

	// TokenPolicy is the order in which shares of class mps get their time tokens, one of those that docs/operate.md describes under "Order of time
	// tokens". Only the default guarantees the quota in each second. Shares of class elastic have block tokens instead. Default: table.
	TokenPolicy string `json:"tokenPolicy,omitempty"`

	// DebugAddress is the address at which gshare-node --standalone serves /metrics, such as 127.0.0.1:9477. It must be a loopback address, because
	// requests are not authenticated. Default: none, metrics are not served.
	DebugAddress string `json:"debugAddress,omitempty"`

	// Kubernetes holds the settings for a node of a cluster. gshare-node --standalone ignores them.
	Kubernetes Kubernetes `json:"kubernetes,omitzero"`
}

// Decode parses the text of a configuration file, refuses unknown fields, fills in all defaults but that of Directory, and validates the
// result.
func Decode(text []byte) (Configuration, error) {
	c := Configuration{}
	if err := strictyaml.Unmarshal(text, &c); err != nil {
		return Configuration{}, err
	}
	if c.APIVersion != APIVersion || c.Kind != Kind {
		return Configuration{}, fmt.Errorf("is %q of %q, want %s of %s", c.Kind, c.APIVersion, Kind, APIVersion)
	}
	c = c.WithDefaults()
	return c, c.Validate()
}

// WithDefaults returns the configuration with defaults for the fields that are not set, except Directory.
func (c Configuration) WithDefaults() Configuration {
	setDefault(&c.Tenancy, "user")
	setDefault(&c.MPSVersion, 3)
	setDefault(&c.TokenPolicy, token.Table.String())
	setDefault(&c.MaxShares, 16)
	setDefault(&c.Window.Duration, kube.DefaultWindow)
	setDefault(&c.Turn.Duration, 5*time.Millisecond)
	setDefault(&c.RunAhead.Duration, time.Millisecond)
	if c.GammaPercent == nil {
		c.GammaPercent = new(kube.DefaultRules().GammaPercent)
	}
	if c.ReservePerMille == nil {
		c.ReservePerMille = new(share.PerMille(50))
	}
	if c.ContextReserveMiB == nil && c.SimulatedDevices == "" {
		c.ContextReserveMiB = new(int64(1024))
	} else if c.ContextReserveMiB == nil {
		c.ContextReserveMiB = new(int64(0))
	}
	c.Kubernetes.setDefaults()
	return c
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// isLoopback reports whether an address with a port can be reached from this machine only.
func isLoopback(address string) bool {
	a, err := netip.ParseAddrPort(address)
	return err == nil && a.Addr().IsLoopback()
}

// Validate returns an error for values that cannot work. Package token checks the window and the turn further.
func (c Configuration) Validate() error {
	switch {
	case c.Tenancy != "user" && c.Tenancy != "mixed":
		return fmt.Errorf("tenancy: %q is neither user nor mixed", c.Tenancy)
	case *c.GammaPercent < 100 || *c.GammaPercent > 1000:
		return fmt.Errorf("gammaPercent: %d is not between 100 and 1000", *c.GammaPercent)
	case *c.ReservePerMille < 0 || *c.ReservePerMille > 500:
		return fmt.Errorf("reservePerMille: %d is not between 0 and 500", *c.ReservePerMille)
	case *c.ContextReserveMiB < 0 || *c.ContextReserveMiB > 1<<20:
		return fmt.Errorf("contextReserveMiB: %d is not between 0 and %d", *c.ContextReserveMiB, 1<<20)
	case c.MaxShares < 1 || c.MaxShares > 60:
		return fmt.Errorf("maxShares: %d is not between 1 and 60", c.MaxShares)
	case c.Window.Duration < 10*time.Millisecond || time.Second%c.Window.Duration != 0:
		return fmt.Errorf("window: %v does not divide a second into parts of 10ms or more", c.Window.Duration)
	case c.Turn.Duration < time.Millisecond || c.Turn.Duration > c.Window.Duration:
		return fmt.Errorf("turn: %v is not between a millisecond and the window", c.Turn.Duration)
	case c.RunAhead.Duration < 100*time.Microsecond || c.RunAhead.Duration > c.Window.Duration:
		return fmt.Errorf("runAhead: %v is not between 100us and the window", c.RunAhead.Duration)
	case len(c.Kubernetes.ResourceClaims) > 0 && c.Tenancy != "mixed":
		return errors.New("kubernetes.resourceClaims: needs tenancy: mixed, as the scheduler lets claims of all namespaces share a device")
	case c.SimulatedMPS != "" && c.SimulatedDevices == "":
		return errors.New("simulatedMPS: without simulatedDevices the machine's own MPS is used")
	case c.SimulatedKernels && c.SimulatedDevices == "":
		return errors.New("simulatedKernels: without simulatedDevices the kernels of the machine's GPUs are real")
	case c.MPSVersion != 2 && c.MPSVersion != 3:
		return fmt.Errorf("mpsVersion: %d is neither 2 nor 3", c.MPSVersion)
	case c.DebugAddress != "" && !isLoopback(c.DebugAddress):
		return fmt.Errorf("debugAddress: %.60q is no loopback address with a port, such as 127.0.0.1:9477", c.DebugAddress)
	}
	if _, err := token.ParsePolicy(c.TokenPolicy); err != nil {
		return fmt.Errorf("tokenPolicy: %w", err)
	}
	return c.Kubernetes.validate()
}

// Rules returns the rules by which the node admits shares (γ, tenancy, window), as its inventory publishes them.
func (c Configuration) Rules() kube.Rules {
	return kube.Rules{GammaPercent: *c.GammaPercent, MixTenants: c.Tenancy == "mixed", Window: c.Window}
}

// NewTokens returns a scheduler of the time tokens of one slice, with the configured policy, window, turn and reserve.
func (c Configuration) NewTokens() (*token.Slice, error) {
	policy, err := token.ParsePolicy(c.TokenPolicy)
	if err != nil {
		return nil, fmt.Errorf("tokenPolicy: %w", err)
	}
	return token.New(token.Config{
		Policy: policy, Window: c.Window.Duration, Turn: c.Turn.Duration, Floor: min(2*time.Millisecond, c.Turn.Duration), Reserve: *c.ReservePerMille,
	})
}

// ControlSocket is the name of the socket, in the node agent's directory, on which it serves its control API.
const ControlSocket = "control.sock"

// MaxDirectory is the maximum length of the node agent's directory. The longest path of a socket in it, runs/00000000/token.sock, then has the 107 bytes
// that the kernel allows.
const MaxDirectory = 82

// ProxyDirectory is the name of the directory, in the node agent's directory, that the agent shares with the proxy.
const ProxyDirectory = "proxy"

// DefaultDirectory returns the directory for the sockets of an agent that runs as the user: /run/gshare for root, else gshare in the user's
// runtime directory. It returns an error if the latter is not known.
func DefaultDirectory(uid int, runtimeDir string) (string, error) {
	switch {
	case uid == 0:
		return "/run/gshare", nil
	case runtimeDir == "":
		return "", errors.New("XDG_RUNTIME_DIR is not set: set it, or `directory` in a file that you pass with --config")
	}
	return filepath.Join(runtimeDir, "gshare"), nil
}
