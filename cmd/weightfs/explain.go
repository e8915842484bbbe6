package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"weightfs/cache"
	"weightfs/fs/plan"
)

func newExplainCommand(u *ui) *cobra.Command {
	var set settings
	c := &cobra.Command{
		Use:   "explain SOURCE PATH",
		Short: "Say how a file is made and which requests reading it sends; reads no weights",
		Long: `Say how a file is made: its pieces, the spans of the release that they depend on, and the requests that reading the whole file sends
to a remote source with an empty cache and the default budget. (Local files are read in place.) It reads headers, no weights.`,
		Example: "  weightfs explain hf://Qwen/Qwen3-30B-A3B-FP8 experts/bf16/blocks/L010/E003.bin\n  weightfs explain --json ./model bf16/model-00001-of-00002.safetensors",
		Args:    args(2, 2),
		RunE: func(c *cobra.Command, args []string) error {
			session, o, err := set.openOne(c.Context(), args[0])
			if err != nil {
				return err
			}
			defer session.Close()
			x, p, err := o.explain(c.Context(), cleanPath(args[1]))
			if err != nil {
				return err
			}
			if u.json {
				return u.printJSON(x)
			}
			return u.explain(o, x, p)
		},
	}
	set.addTo(c.Flags())
	return c
}

// explanation is what explain --json prints. Offsets count bytes, ends are exclusive; paths are those of the release.
type explanation struct {
	Path     string      `json:"path"` // of the virtual file
	Size     int64       `json:"size"`
	Pieces   int         `json:"pieces"`
	Digest   string      `json:"planDigest"`
	Spans    []byteRange `json:"spans"`    // of the release that the file depends on, joined
	Requests []byteRange `json:"requests"` // that reading the whole file sends, in the order they start
	Bytes    int64       `json:"bytes"`    // of all requests
}

// byteRange is a range of one file of the release.
type byteRange struct {
	Path  string `json:"path"`
	Start int64  `json:"start"`
	End   int64  `json:"end"`
}

func (o *opened) explain(ctx context.Context, name string) (explanation, *plan.Plan, error) {
	p, err := o.openFile(ctx, name)
	if err != nil {
		return explanation{}, nil, err
	}
	digest, err := plan.Digest(p, o.filePath)
	if err != nil {
		return explanation{}, nil, err
	}
	requests := o.requests(p)
	x := explanation{
		Path: name, Size: p.Size, Pieces: len(p.Pieces), Digest: fmt.Sprintf("%x", digest),
		Spans: o.ranges(p.Spans(0, p.Size)), Requests: o.ranges(requests),
	}
	for _, r := range requests {
		x.Bytes += r.Len()
	}
	return x, p, nil
}

// requests is what reading the whole plan sends to a remote source when nothing is cached: one gather a unit.
func (o *opened) requests(p *plan.Plan) []plan.Span {
	sizes := make([]int64, len(o.listing.Files))
	for i, f := range o.listing.Files {
		sizes[i] = f.Size
	}
	asker := cache.NewAsker(sizes)
	var out []plan.Span
	for u := range p.Units() {
		out = append(out, asker.Ask(nil, p.Spans(u.Start, u.End-u.Start))...)
	}
	return out
}

func (o *opened) ranges(spans []plan.Span) []byteRange {
	out := make([]byteRange, len(spans))
	for i, s := range spans {
		out[i] = byteRange{Path: o.filePath(s.File), Start: s.Start, End: s.End}
	}
	return out
}

// explain prints an explanation for people: totals, then the plan's text, then the requests.
func (u *ui) explain(o *opened, x explanation, p *plan.Plan) error {
	var total int64
	for _, s := range x.Spans {
		total += s.End - s.Start
	}
	u.printf("%s is %s (%d bytes) in %d pieces\n", x.Path, size(x.Size), x.Size, x.Pieces)
	u.printf("made from %s in %d spans of the release; reading it all sends %d requests for %s\n\n", size(total), len(x.Spans), len(x.Requests), size(x.Bytes))
	u.printf("offset +length piece\n")
	if err := plan.Text(u.out, p, o.filePath); err != nil {
		return err
	}
	u.printf("\nrequests\n")
	for _, r := range x.Requests {
		u.printf("%s [%d, %d)\n", r.Path, r.Start, r.End)
	}
	return nil
}
