package usage

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/gshare-dev/gshare/serving/api/profileview"
	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Container holds what identifies a container that has a whole GPU, and the model of that GPU.
type Container struct {
	ImageID       string // as the kubelet names it
	Command, Args []string
	Model         string // of the GPU, or the product name in NVIDIA's labels
}

// Profiled is the share that a GPUProfile recommends.
type Profiled struct {
	Profile   string // namespace/name
	Image     string // its digest
	SM, Quota int64  // percent
	MemoryMiB int64
}

// String returns the profile with its share, in the syntax of ParseAssumption.
func (p Profiled) String() string {
	return fmt.Sprintf("GPUProfile %s, sm=%d,quota=%d,mem=%d", p.Profile, p.SM, p.Quota, p.MemoryMiB)
}

// Match says whether a profile applies to a container or, if none does, how the nearest one differs.
type Match int

// The nearest profile is of another image, of the same image on another GPU, of both but with another command, or it applies.
const (
	OtherImage Match = iota
	OtherGPU
	OtherCommand
	Same
)

// Profiles holds the usable GPUProfiles.
type Profiles struct {
	byImage map[string][]candidate // by the digest of the image, the preferred ones first
	usable  int
	notes   []string
}

// candidate is a usable profile.
type candidate struct {
	Profiled
	model         string // of the GPU, as modelOf returns it
	anyCommand    bool   // the profile is of a GPUFunction, whose command is not known here
	command, args []string
}

// NewProfiles selects the usable profiles: those that are complete and not Stale. Of several for the same image, GPU and command, it uses the
// one with the most SM-time, then the most memory, then the first name.
func NewProfiles(all []api.GPUProfile) *Profiles {
	p := &Profiles{byImage: map[string][]candidate{}}
	var found []candidate
	for i := range all {
		c, err := candidateOf(&all[i])
		if err != nil {
			p.notes = append(p.notes, fmt.Sprintf("GPUProfile %s is not used: %v", profileview.Name(&all[i]), err))
			continue
		}
		found = append(found, c)
	}
	slices.SortStableFunc(found, compare)
	for _, c := range found {
		others := p.byImage[c.Image]
		if at := slices.IndexFunc(others, c.sameAs); at >= 0 {
			p.notes = append(p.notes, fmt.Sprintf("GPUProfile %s is not used: %s is of the same image, GPU and command, and its share is not smaller", c.Profile, others[at].Profile))
			continue
		}
		p.byImage[c.Image] = append(others, c)
		p.usable++
	}
	return p
}

// candidateOf returns the candidate that a profile makes, or an error that says why the profile cannot be used.
func candidateOf(p *api.GPUProfile) (candidate, error) {
	r, err := profileview.RecommendedOf(p)
	if err != nil {
		return candidate{}, err
	}
	if why, stale := profileview.IsStale(p); stale {
		return candidate{}, fmt.Errorf("it is Stale: %.200q", why)
	}
	f := p.Status.Fingerprint
	if f == nil || f.Image == "" || f.Model == "" {
		return candidate{}, errors.New("status.fingerprint: the image and the model of the GPU are not known")
	}
	c := candidate{
		Profiled:   Profiled{profileview.Name(p), digestOf(f.Image), r.SM, r.Quota, int64((r.Memory + share.MiB - 1) / share.MiB)},
		model:      modelOf(f.Model),
		anyCommand: p.Spec.FunctionRef != nil,
	}
	if containers := p.Spec.Template.Spec.Containers; !c.anyCommand && len(containers) > 0 {
		c.command, c.args = containers[0].Command, containers[0].Args
	}
	return c, nil
}

// compare orders candidates of one image: profiles of a certain command come before those of any command, then larger shares first.
func compare(a, b candidate) int {
	if a.anyCommand != b.anyCommand {
		if b.anyCommand {
			return -1
		}
		return 1
	}
	return cmp.Or(cmp.Compare(b.SM*b.Quota, a.SM*a.Quota), cmp.Compare(b.MemoryMiB, a.MemoryMiB), cmp.Compare(b.SM, a.SM), cmp.Compare(a.Profile, b.Profile))
}

func (c candidate) sameAs(other candidate) bool {
	return c.model == other.model && c.anyCommand == other.anyCommand && slices.Equal(c.command, other.command) && slices.Equal(c.args, other.args)
}

// For returns the share that a profile recommends for a container and Same or, if no profile applies, how the nearest one differs. p may be nil.
func (p *Profiles) For(c Container) (Profiled, Match) {
	nearest := OtherImage
	if p == nil || c.ImageID == "" {
		return Profiled{}, nearest
	}
	model := modelOf(c.Model)
	for _, found := range p.byImage[digestOf(c.ImageID)] {
		switch {
		case model == "" || found.model != model:
			nearest = max(nearest, OtherGPU)
		case !found.anyCommand && !(slices.Equal(found.command, c.Command) && slices.Equal(found.args, c.Args)):
			nearest = max(nearest, OtherCommand)
		default:
			return found.Profiled, Same
		}
	}
	return Profiled{}, nearest
}

// Usable returns the number of profiles that can be used.
func (p *Profiles) Usable() int {
	if p == nil {
		return 0
	}
	return p.usable
}

// Notes returns a line for each profile that cannot be used, with the reason.
func (p *Profiles) Notes() []string {
	if p == nil {
		return nil
	}
	return p.notes
}

// digestOf returns the digest in the image ID that a kubelet reports: with containerd and CRI-O registry.example/a@sha256:0a1b or sha256:0a1b,
// with cri-dockerd docker-pullable://registry.example/a@sha256:0a1b. An image has the same digest in every registry. Tags identify nothing,
// because they move.
func digestOf(imageID string) string {
	if _, id, scheme := strings.Cut(imageID, "://"); scheme {
		imageID = id
	}
	return imageID[strings.LastIndexByte(imageID, '@')+1:]
}

var (
	modelWords  = strings.NewReplacer("-", " ", "_", " ")
	modelBrand  = regexp.MustCompile(`^(?:(?:nvidia|tesla|geforce|quadro) )+`)
	modelDetail = regexp.MustCompile(` (?:\d+gb|pcie|sxm\d?|nvl|hbm\w+)\b.*$`) // form factor and memory
)

// modelOf returns the model of a GPU in lower case, from the model in an inventory or the product in the labels of NVIDIA's GPU feature
// discovery: a100 from A100 and from NVIDIA-A100-SXM4-80GB.
func modelOf(product string) string {
	return modelDetail.ReplaceAllString(modelBrand.ReplaceAllString(strings.ToLower(modelWords.Replace(product)), ""), "")
}
