package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/gshare-dev/gshare/vgpu/planning"
)

func (p *planFlags) write(out io.Writer, plans []policyPlan) error {
	if p.plot != "" {
		if err := p.writeChart(); err != nil {
			return err
		}
	}
	document := struct {
		Currency string       `json:"currency"`
		Plans    []policyPlan `json:"plans"`
	}{p.input.Prices.Currency, plans}
	return p.format.Write(out, document, func(w io.Writer) error { return p.writeTable(w, plans) })
}

func (p *planFlags) writeTable(out io.Writer, plans []policyPlan) error {
	currency := strings.ToUpper(p.input.Prices.Currency)
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "POLICY\tMODEL\tAPPLICATIONS\tMODE\tON\tBATCH\tP99\tRATE\t%s/HOUR\t%s/MILLION\n", currency, currency)
	for _, plan := range plans {
		for i := range plan.Groups {
			g := &plan.Groups[i]
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%d\t%.0f ms\t%.4g/s\t%.4f\t%.4f\n", plan.Policy, g.Applications[0].Model, applicationNames(g.Applications),
				g.Config.Mode, g.Config, g.Config.Batch, 1e3*g.P99, g.Rate(), perHour(g.Cost), float64(g.PerRequest())/1e3)
		}
		fmt.Fprintf(t, "%s\tall\t\t\t\t\t\t\t%.4f\t\n", plan.Policy, perHour(plan.Cost))
	}
	return t.Flush()
}

// perHour converts a cost in billionths of the price unit per second to price units per hour.
func perHour(c planning.Cost) float64 { return float64(c) * 3600 / 1e9 }

// applicationNames returns the names of the first four applications and the number of the others, as text.
func applicationNames(applications []planning.Application) string {
	const most = 4
	var all []string
	for i, a := range applications {
		if i == most {
			all = append(all, fmt.Sprintf("%d more", len(applications)-most))
			break
		}
		all = append(all, a.Name)
	}
	return strings.Join(all, ", ")
}
