package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"weightfs/fs/plan"
	"weightfs/sources/release"
	"weightfs/transform"
)

// summary is what inspect prints and .weightfs/summary.json holds: what the headers say, and which views there are.
type summary struct {
	release.Summary
	Views []viewSummary `json:"views"`
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
	s := &summary{Summary: release.Summarise(rel)}
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
