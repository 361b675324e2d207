package planning

// PriceBook is a price list with the sizes that are sold at these prices, and the source of both.
type PriceBook struct {
	Source   string    `json:"source,omitempty"` // such as the address of a provider's page
	Date     string    `json:"date,omitempty"`   // on which the prices were read
	Prices   PriceList `json:"prices"`
	Platform Platform  `json:"platform"`
}

// NewPriceBook returns a price book without prices and with the sizes of DefaultPlatform. Decoding a file into it keeps the default for
// each size that the file leaves out.
func NewPriceBook() PriceBook { return PriceBook{Platform: DefaultPlatform()} }
