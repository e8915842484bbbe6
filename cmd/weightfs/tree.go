package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"

	"weightfs/fs/plan"
)

// find walks to a path of the tree; the error says which one.
func (o *opened) find(ctx context.Context, p string) (plan.Node, error) {
	n, err := plan.Walk(ctx, o.root, p)
	if err != nil {
		err = fmt.Errorf("%s in %s: %w", p, o.listing.Name, err)
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = hinted{err, fmt.Sprintf("weightfs ls %s shows what there is; names are as in the mount: release/config.json, bf16", o.arg)}
	}
	return n, err
}

// openFile is the plan of the file at a path.
func (o *opened) openFile(ctx context.Context, p string) (*plan.Plan, error) {
	n, err := o.find(ctx, p)
	if err != nil {
		return nil, err
	}
	if n.Dir != nil {
		return nil, usageError{fmt.Sprintf("%s is a directory", p), "weightfs ls shows what is in it"}
	}
	return openNode(ctx, n)
}

// openNode is the plan of a file; the present content of a live one.
func openNode(ctx context.Context, n plan.Node) (*plan.Plan, error) {
	if n.Live == nil {
		return n.Open(ctx)
	}
	data := n.Live()
	return plan.New(plan.Literal{Name: n.Name, Size: int64(len(data)), Bytes: data}), nil
}

// walk calls fn for every file at and below n, in the order of the listings; p is the path of n.
func walk(ctx context.Context, n plan.Node, p string, fn func(p string, n plan.Node) error) error {
	if n.Dir == nil {
		return fn(p, n)
	}
	nodes, err := n.Dir.List(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", p, err)
	}
	for _, x := range nodes {
		if err := walk(ctx, x, path.Join(p, x.Name), fn); err != nil {
			return err
		}
	}
	return nil
}

// releaseFiles calls fn for every file of the release at and below paths, with its position in the listing.
func (o *opened) releaseFiles(ctx context.Context, paths []string, fn func(name string, i int, n plan.Node) error) error {
	for _, p := range paths {
		p = cleanPath(p)
		n, err := o.find(ctx, p)
		if err != nil {
			return err
		}
		err = walk(ctx, n, p, func(name string, x plan.Node) error {
			rest, below := strings.CutPrefix(name, "release/")
			i := o.listing.Find(rest)
			if !below || i < 0 {
				return usageError{fmt.Sprintf("%s is no file of the release", name), "name release or what is below it; the bytes of views follow from those files"}
			}
			return fn(name, i, x)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// orRelease is the paths that a command was given, or else the release.
func orRelease(paths []string) []string {
	if len(paths) == 0 {
		return []string{"release"}
	}
	return paths
}

// filePath is the path of a file of the release, by its position in the listing.
func (o *opened) filePath(i int) string { return o.listing.Files[i].Path }

// content is a plan as a stream.
type content struct {
	ctx    context.Context
	reader *plan.Reader
	plan   *plan.Plan
	off    int64
}

func (c *content) Read(p []byte) (int, error) {
	if c.off >= c.plan.Size {
		return 0, io.EOF
	}
	n, err := c.reader.ReadAt(c.ctx, c.plan, p, c.off)
	c.off += int64(n)
	if err == io.EOF {
		err = nil
	}
	return n, err
}

// cleanPath is PATH without what people and shells put around it.
func cleanPath(p string) string { return strings.Trim(path.Clean("/"+p), "/") }

// splitPath is the elements of a clean path.
func splitPath(p string) []string {
	if p == "" {
		return nil
	}
	return strings.Split(p, "/")
}

// joinSpans sorts spans and joins those that touch or overlap.
func joinSpans(spans []plan.Span) []plan.Span {
	slices.SortFunc(spans, func(a, b plan.Span) int { return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Start, b.Start)) })
	out := spans[:0]
	for _, s := range spans {
		if n := len(out); n > 0 && out[n-1].File == s.File && s.Start <= out[n-1].End {
			out[n-1].End = max(out[n-1].End, s.End)
		} else if s.Len() > 0 {
			out = append(out, s)
		}
	}
	return out
}
