package results

// tableNames returns the names of all tables in the order of RESULTS.md.
func tableNames() []string {
	var out []string
	for _, t := range tables() {
		out = append(out, t.name)
	}
	return out
}

func tables() []table {
	return []table{openb(), orders(), fleet(), shapes("0"), shapes("0.05"), churn(), delivery(), events(), mig(), elasticShares(), elasticLoads(), elasticPolicies(), elasticInference(), elasticTraining(), maxTokens(), scaling(), migServing(), callServing()}
}

// columnsOf returns a column for each policy, all of the same figure. The unit is appended to the policy's name in the column's head.
func columnsOf(figure, unit string, digits int, policies ...string) []column {
	var out []column
	for _, p := range policies {
		out = append(out, column{policy: p, figure: figure, head: p + unit, digits: digits})
	}
	return out
}

func rows(flag string, values ...string) []row {
	var out []row
	for _, v := range values {
		out = append(out, row{name: v, args: []string{flag, v}})
	}
	return out
}
