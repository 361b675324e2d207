package usage

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/gshare-dev/gshare/vgpu/api/serving/profileview"
	api "github.com/gshare-dev/gshare/vgpu/api/serving/v1alpha1"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Container is what identifies a container with a whole GPU, and that GPU.
type Container struct {
	ImageID       string // as the kubelet names it
	Command, Args []string
	Model         string // of the GPU, or of NVIDIA's product
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

// Match says whether a profile is of a container, or how the nearest one differs.
type Match int

// The nearest one is of another image, or of this one on another GPU or with another command, or is that of the container.
const (
	OtherImage Match = iota
	OtherGPU
	OtherCommand
	Same
)

// Profiles has the GPUProfiles that can be used.
type Profiles struct {
	byImage map[string][]candidate // by the digest of the image; those first which are to be used
	usable  int
	notes   []string
}

// candidate is a profile that can be used.
type candidate struct {
	Profiled
	model         string // of the GPU, as modelOf returns it
	anyCommand    bool   // a function was measured, whose command is not known here
	command, args []string
}

// NewProfiles returns the profiles to use: those that are complete and not Stale. Of several of the same image, GPU and command, it is the one with the most
// SM-time, then the most memory, then the first name.
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

// candidateOf returns a profile as one to use, or an error that says why it is none.
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

// compare orders candidates of one image: those of a command before those of any, then the larger share.
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

// For returns the share that a profile recommends for a container; if there is none, how the nearest one differs. Profiles may be nil.
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

// Notes returns which profiles cannot be used, and why.
func (p *Profiles) Notes() []string {
	if p == nil {
		return nil
	}
	return p.notes
}

// digestOf returns the digest of an image, under which every registry has the same one, from what the kubelet calls its ID: with containerd and CRI-O
// registry.example/a@sha256:0a1b or sha256:0a1b, with cri-dockerd docker-pullable://registry.example/a@sha256:0a1b. Tags say nothing, since they move.
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

// modelOf returns the model of a GPU in small letters, from that of an inventory or the product in the labels of NVIDIA's GPU feature discovery: a100 from A100
// and from NVIDIA-A100-SXM4-80GB.
func modelOf(product string) string {
	return modelDetail.ReplaceAllString(modelBrand.ReplaceAllString(strings.ToLower(modelWords.Replace(product)), ""), "")
}
