package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"

	"weightfs/fs/plan"
	"weightfs/sources/release"
	"weightfs/transform"
)

// summary is what inspect prints and .weightfs/summary.json holds: what the headers say, and which views there are.
type summary struct {
	release.Summary
	Formats       []formatSummary `json:"formats"`       // of quantized modules
	Disagreements []string        `json:"disagreements"` // between the tensors and what config declares of them
	Warnings      []string        `json:"warnings"`      // what lies beside the values that dequantized weights mean
	Views         []viewSummary   `json:"views"`
}

// formatSummary is the modules of one weight format that were recognised in one way.
type formatSummary struct {
	Format  string `json:"format"` // "refused" if the modules cannot be dequantized
	How     string `json:"how"`    // or why not
	Modules int    `json:"modules"`
	First   string `json:"first"`
}

type viewSummary struct {
	Path   string `json:"path"`
	About  string `json:"about"`
	Absent string `json:"absent,omitempty"` // the reason
}

// summarise opens the release if need be.
func (o *opened) summarise(ctx context.Context) (*summary, error) {
	rel, err := o.release(ctx)
	if err != nil {
		return nil, err
	}
	s := &summary{Summary: release.Summarise(rel), Formats: []formatSummary{}}
	survey, err := transform.Survey(ctx, rel)
	if err != nil {
		return nil, err
	}
	for _, k := range survey.Kinds() {
		s.Formats = append(s.Formats, formatSummary{k.Format, k.How, k.Groups, k.First})
	}
	s.Disagreements = append([]string{}, survey.Disagreements()...)
	s.Warnings = append([]string{}, survey.Warnings()...)
	for _, v := range o.views {
		x := viewSummary{Path: v.Name, About: v.About}
		var absent *transform.Absent
		switch _, err := plan.Walk(ctx, o.root, v.Name); {
		case errors.As(err, &absent):
			x.Absent = reason(absent)
		case err != nil:
			return nil, fmt.Errorf("%s: %w", v.Name, err)
		}
		s.Views = append(s.Views, x)
	}
	return s, nil
}

// reason is why a view is absent, without saying again which.
func reason(a *transform.Absent) string {
	if a.Tensor == "" {
		return a.Reason
	}
	return "tensor " + a.Tensor + ": " + a.Reason
}

// text is the summary for people.
func (s *summary) text() string {
	var b strings.Builder
	release.WriteText(&b, s.Summary) // a Builder does not fail
	s.formats(&b)
	b.WriteString("\nviews\n")
	for _, v := range s.Views {
		if v.Absent == "" {
			fmt.Fprintf(&b, "  %s\n", v.Path)
		} else {
			fmt.Fprintf(&b, "  %s is absent: %s\n", v.Path, oneLine(v.Absent))
		}
	}
	return b.String()
}

// formats writes how modules are quantized, if any is.
func (s *summary) formats(b *strings.Builder) {
	notes := slices.Concat(s.Disagreements, s.Warnings)
	if len(s.Formats)+len(notes) == 0 {
		return
	}
	b.WriteString("\nweight formats\n")
	for _, f := range s.Formats {
		modules := humanize.Comma(int64(f.Modules)) + " " + english.PluralWord(f.Modules, "module", "")
		fmt.Fprintf(b, "  %s: %s, %s (%s)\n", oneLine(f.Format), modules, oneLine(f.How), oneLine(f.First))
	}
	for _, n := range notes {
		fmt.Fprintf(b, "  note: %s\n", oneLine(n))
	}
}
