package v1alpha1

const (
	defaultGammaPercent   = 150
	defaultCandidateNodes = 64
	defaultAlphaPercent   = 60
)

// Default fills in the default of each argument that is not set.
func (a *SharingArgs) Default() {
	setDefault(&a.GammaPercent, defaultGammaPercent)
	setDefault(&a.CandidateNodes, defaultCandidateNodes)
	if a.Tenancy == "" {
		a.Tenancy = Namespace
	}
}

// Default fills in the default of each argument that is not set.
func (a *SlotPackingArgs) Default() {
	a.SharingArgs.Default()
	setDefault(&a.Balance.Fragmentation, true)
	setDefault(&a.Balance.Stranding, true)
	setDefault(&a.Balance.CPUShortage, true)
	setDefault(&a.Balance.Scarcity, true)
}

// Default fills in the default of each argument that is not set. If one of the weights is set, the other becomes what is missing to 100
// percent.
func (a *ComplementaryPackingArgs) Default() {
	a.SharingArgs.Default()
	if a.BetaPercent != nil {
		setDefault(&a.AlphaPercent, 100-*a.BetaPercent)
	}
	setDefault(&a.AlphaPercent, defaultAlphaPercent)
	setDefault(&a.BetaPercent, 100-*a.AlphaPercent)
}

func setDefault[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}
