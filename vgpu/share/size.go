package share

import "strconv"

// sizeUnits maps the suffix of a size to its factor, in MiB.
var sizeUnits = map[string]int64{"Mi": 1, "Gi": 1 << 10, "Ti": 1 << 20}

// maxSizeDigits is the number of digits of MaxMemory in MiB, the longest number that a size can have.
const maxSizeDigits = 10

// ParseMemorySize parses an amount of device memory in the annotation gshare.dev/mem, such as "16Gi", and returns it in MiB, or nil if the
// text is empty. A size is a whole number without leading zeros, followed by Mi, Gi or Ti. The error is a *FieldError.
func ParseMemorySize(text string) (*int64, error) {
	if text == "" {
		return nil, nil
	}
	mib, err := parseSize(FieldMemorySize, text)
	if err != nil {
		return nil, err
	}
	return &mib, nil
}

// parseSize parses a size in an annotation, and returns it in MiB. The error is a *FieldError for the field.
func parseSize(field, text string) (mib int64, err error) {
	number, unit := text[:max(0, len(text)-2)], text[max(0, len(text)-2):]
	value, err := strconv.ParseInt(number, 10, 64)
	scale, known := sizeUnits[unit]
	if err != nil || !known || len(number) > maxSizeDigits || strconv.FormatInt(value, 10) != number {
		return 0, Invalid(field, "%.64q is not a whole number of Mi, Gi or Ti, such as 16Gi", text)
	}
	mib = value * scale // cannot overflow: below 2^54, given the number of digits
	return mib, inRange(field, mib, 1, int64(MaxMemory/MiB), "MiB")
}
