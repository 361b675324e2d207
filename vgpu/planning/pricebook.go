package planning

// PriceBook is a price list with the sizes that are sold at these prices, and where they are from.
type PriceBook struct {
	Source   string    `json:"source,omitempty"` // such as the address of a provider's page
	Date     string    `json:"date,omitempty"`   // on which the prices were there
	Prices   PriceList `json:"prices"`
	Platform Platform  `json:"platform"`
}

// NewPriceBook returns a price book without prices, with the sizes of DefaultPlatform, into which a file can be decoded that leaves some of
// them out.
func NewPriceBook() PriceBook { return PriceBook{Platform: DefaultPlatform()} }
