package main

import (
	"bytes"
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"weightfs/cache"
	"weightfs/fs/plan"
)

func newExplainCommand(u *ui) *cobra.Command {
	var set settings
	var rank, of int
	c := &cobra.Command{
		Use:   "explain SOURCE PATH | explain SOURCE --rank R --of N",
		Short: "Say how a file is made and which requests reading it sends; reads no weights",
		Long: `Say how a file is made: its pieces, the spans of the release that they depend on, and the requests that reading the whole file sends
to a remote source with an empty cache and the default budget. (Local files are read in place.) It reads headers, no weights.

With --rank and --of it says what the view ranks/N/R costs: the shards with that rank's routed experts, the shards it reads at all and
those that there are, and the requests and bytes of reading all its files once.`,
		Example: "  weightfs explain hf://Qwen/Qwen3-30B-A3B-FP8 experts/bf16/blocks/L010/E003.bin\n  weightfs explain --json ./model bf16/model-00001-of-00002.safetensors\n  weightfs explain hf://org/name --rank 3 --of 16",
		Args: func(c *cobra.Command, a []string) error {
			if c.Flags().Changed("rank") || c.Flags().Changed("of") {
				return args(1, 1)(c, a)
			}
			return args(2, 2)(c, a)
		},
		RunE: func(c *cobra.Command, args []string) error {
			return set.with(c.Context(), args[0], func(ctx context.Context, o *opened) error {
				if len(args) == 1 {
					return u.explainRank(ctx, o, rank, of)
				}
				return u.explainFile(ctx, o, cleanPath(args[1]))
			})
		},
	}
	set.addTo(c.Flags())
	c.Flags().IntVar(&rank, "rank", 0, "`R`, from 0")
	c.Flags().IntVar(&of, "of", 0, "`N` ranks")
	return c
}

func (u *ui) explainFile(ctx context.Context, o *opened, name string) error {
	x, p, err := o.explain(ctx, name)
	if err != nil {
		return err
	}
	if u.json {
		return u.printJSON(x)
	}
	return u.explain(o, x, p)
}

// explanation is what explain --json prints. Offsets count bytes, ends are exclusive; paths are those of the release.
type explanation struct {
	Path     string      `json:"path"` // of the virtual file
	Size     int64       `json:"size"`
	Digest   string      `json:"planDigest"`
	Pieces   []piece     `json:"pieces"`
	Spans    []byteRange `json:"spans"`    // of the release that the file depends on, joined
	Requests []byteRange `json:"requests"` // that reading the whole file sends, in the order they start
	Bytes    int64       `json:"bytes"`    // of all requests
}

// piece is one piece of the plan.
type piece struct {
	Offset int64  `json:"offset"`
	Length int64  `json:"length"`
	Kind   string `json:"kind"`             // literal, zero, copy, rows, decode, repeat
	What   string `json:"what,omitempty"`   // name of a literal or repeat, codec of a decode
	Copies int64  `json:"copies,omitempty"` // of a repeat
}

func piecesOf(p *plan.Plan) []piece {
	out := make([]piece, len(p.Pieces))
	var at int64
	for i, x := range p.Pieces {
		q := piece{Offset: at, Length: x.Len()}
		switch x := x.(type) {
		case plan.Literal:
			q.Kind, q.What = "literal", x.Name
		case plan.Zero:
			q.Kind = "zero"
		case plan.Copy:
			q.Kind = "copy"
		case plan.Rows:
			q.Kind = "rows"
		case plan.Decode:
			q.Kind, q.What = "decode", x.Codec.String()
		case plan.Repeat:
			q.Kind, q.What, q.Copies = "repeat", x.Name, x.N
		}
		out[i] = q
		at += q.Length
	}
	return out
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
	requests := requests(o.newAsker(), p)
	x := explanation{
		Path: name, Size: p.Size, Pieces: piecesOf(p), Digest: fmt.Sprintf("%x", digest),
		Spans: o.ranges(p.Spans(0, p.Size)), Requests: o.ranges(requests),
	}
	x.Bytes = lengthOf(requests)
	return x, p, nil
}

// newAsker knows the requests of reads that begin with nothing cached.
func (o *opened) newAsker() *cache.Asker {
	sizes := make([]int64, len(o.listing.Files))
	for i, f := range o.listing.Files {
		sizes[i] = f.Size
	}
	return cache.NewAsker(sizes)
}

// requests is what reading the whole plan sends next.
func requests(asker *cache.Asker, p *plan.Plan) []plan.Span {
	var out []plan.Span
	for u, touched := range p.Gathers() {
		spans := p.Spans(u.Start, u.End-u.Start)
		if touched {
			out = append(out, asker.Ask(spans, nil)...)
		} else {
			out = append(out, asker.Ask(nil, spans)...)
		}
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
	u.printf("%s is %s (%d bytes) in %s\n", x.Path, size(x.Size), x.Size, counted(len(x.Pieces), "piece"))
	u.printf("made from %s in %s of the release; reading it all sends %s for %s\n\n",
		size(total), counted(len(x.Spans), "span"), counted(len(x.Requests), "request"), size(x.Bytes))
	u.printf("offset +length piece\n")
	lines := &firstLines{w: u.out, left: maxLines}
	if err := plan.Text(lines, p, o.filePath); err != nil {
		return err
	}
	lines.close()
	u.printf("\nrequests\n")
	lines = &firstLines{w: u.out, left: maxLines}
	for _, r := range x.Requests {
		fmt.Fprintf(lines, "%s [%d, %d)\n", r.Path, r.Start, r.End)
	}
	lines.close()
	return nil
}

// maxLines is how much of a long list people want to see; --json has all of it.
const maxLines = 100

// firstLines passes the first lines on and counts the others.
type firstLines struct {
	w       io.Writer
	left    int
	dropped int
}

func (f *firstLines) Write(p []byte) (int, error) {
	for line := range bytes.Lines(p) {
		if f.left == 0 {
			f.dropped += bytes.Count(line, []byte{'\n'})
			continue
		}
		if _, err := f.w.Write(line); err != nil {
			return 0, err
		}
		f.left -= bytes.Count(line, []byte{'\n'})
	}
	return len(p), nil
}

func (f *firstLines) close() {
	if f.dropped > 0 {
		fmt.Fprintf(f.w, "... and %d lines more\n", f.dropped)
	}
}
