package main

func tables() []table { return []table{} }

func names() []string {
	var out []string
	for _, t := range tables() {
		out = append(out, t.name)
	}
	return out
}
