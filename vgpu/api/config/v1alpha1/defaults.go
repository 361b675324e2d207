package v1alpha1

const (
	defaultGammaPercent   = 150
	defaultCandidateNodes = 64
)

// Default fills in what was left out.
func (a *SharingArgs) Default() {
	setDefault(&a.GammaPercent, defaultGammaPercent)
	setDefault(&a.CandidateNodes, defaultCandidateNodes)
	if a.Tenancy == "" {
		a.Tenancy = Namespace
	}
}

// Default fills in what was left out.
func (a *SlotPackingArgs) Default() {
	a.SharingArgs.Default()
	setDefault(&a.Balance.Fragmentation, true)
	setDefault(&a.Balance.Stranding, true)
	setDefault(&a.Balance.CPUShortage, true)
	setDefault(&a.Balance.Scarcity, true)
}

func setDefault[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}
