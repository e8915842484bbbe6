package main

import (
	"context"
	"fmt"
	"path"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"weightfs/fs/plan"
)

func newWarmCommand(u *ui) *cobra.Command {
	var set settings
	var quiet bool
	c := &cobra.Command{
		Use:   "warm SOURCE [GLOB...]",
		Short: "Fill the disk cache with what files of the tree are made from",
		Long: `Fetch what files of the tree are made from into the disk cache, so that a mount finds it there. GLOB is a path of the tree with * and ?, or
a directory; without one it is release. Nothing is computed.`,
		Example: "  weightfs warm hf://Qwen/Qwen3-30B-A3B-FP8 resident\n  weightfs warm hf://Qwen/Qwen3-30B-A3B-FP8 'experts/native/blocks/L00?/*'",
		Args:    args(1, -1),
		RunE: func(c *cobra.Command, args []string) error {
			if set.cacheDir == noCacheDir {
				return usageError{"--cache-dir none leaves nothing to fill", "warm fills the disk cache"}
			}
			return set.with(c.Context(), args[0], func(ctx context.Context, o *opened) error { return u.warm(ctx, o, orRelease(args[1:]), quiet) })
		},
	}
	set.addTo(c.Flags())
	c.Flags().BoolVarP(&quiet, "quiet", "q", false, "no progress")
	return c
}

func (u *ui) warm(ctx context.Context, o *opened, globs []string, quiet bool) error {
	spans, err := o.spansOf(ctx, globs)
	if err != nil {
		return err
	}
	total := lengthOf(spans)
	bar := u.bar(total, quiet)
	err = o.fetch(ctx, spans, func(n int64) { bar.Add64(n) })
	bar.Exit()
	if err != nil {
		return err
	}
	if kept := o.kept(ctx, spans); kept < total {
		return hinted{fmt.Errorf("%s of %s are there: the disk cache does not keep the rest", size(kept), size(total)),
			"--cache-size bounds it, a tenth of the file system is left free, and files without a validator are never kept; weightfs cache info shows what it holds"}
	}
	if !quiet {
		u.notef("%s are there; %s were fetched now", size(total), size(o.cache.Stats().BytesFetched))
	}
	return nil
}

// kept is how much of spans that were fetched is on disk, once all of it that will be is.
func (o *opened) kept(ctx context.Context, spans []plan.Span) int64 {
	for o.cache.Stats().Pinned > 0 && ctx.Err() == nil {
		time.Sleep(10 * time.Millisecond)
	}
	return o.files.OnDisk(spans)
}

// warm fetches what the files that match are made from.
func (o *opened) warm(ctx context.Context, globs []string) error {
	spans, err := o.spansOf(ctx, globs)
	if err != nil {
		return err
	}
	return o.fetch(ctx, spans, func(int64) {})
}

func lengthOf(spans []plan.Span) (n int64) {
	for _, s := range spans {
		n += s.Len()
	}
	return n
}

// spansOf is what the files that match are made from, each range once for each file.
func (o *opened) spansOf(ctx context.Context, globs []string) (spans []plan.Span, err error) {
	for _, glob := range globs {
		matched, err := o.match(ctx, cleanPath(glob))
		if err != nil {
			return nil, err
		}
		for p, n := range matched {
			err := walk(ctx, n, p, func(file string, x plan.Node) error {
				if x.Live != nil {
					return nil
				}
				p, err := x.Open(ctx)
				if err != nil {
					return fmt.Errorf("%s: %w", file, err)
				}
				spans = append(spans, p.Spans(0, p.Size)...)
				return nil
			})
			if err != nil {
				return nil, err
			}
		}
	}
	return joinSpans(spans), nil
}

// match finds the nodes whose paths match a glob, element by element. No match is an error.
func (o *opened) match(ctx context.Context, glob string) (map[string]plan.Node, error) {
	if n, err := plan.Walk(ctx, o.root, glob); err == nil {
		return map[string]plan.Node{glob: n}, nil
	}
	found := map[string]plan.Node{"": {Dir: o.root}}
	for _, part := range splitPath(glob) {
		next := map[string]plan.Node{}
		for p, n := range found {
			if n.Dir == nil {
				continue
			}
			nodes, err := n.Dir.List(ctx)
			if err != nil {
				return nil, err
			}
			for _, x := range nodes {
				if ok, err := path.Match(part, x.Name); err != nil {
					return nil, usageError{fmt.Sprintf("%q is no pattern", glob), "* and ? stand for parts of a name"}
				} else if ok {
					next[path.Join(p, x.Name)] = x
				}
			}
		}
		found = next
	}
	if len(found) == 0 {
		_, err := o.find(ctx, glob)
		return nil, err
	}
	return found, nil
}

// warmStep is how much one gather asks for, and warmJobs how many there are at once.
const (
	warmStep = 16 << 20
	warmJobs = 4
)

// fetch brings spans through the cache and drops them; done is told how many bytes have arrived.
func (o *opened) fetch(ctx context.Context, spans []plan.Span, done func(int64)) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(warmJobs)
	for _, s := range spans {
		for off := int64(0); off < s.Len() && ctx.Err() == nil; off += warmStep {
			part := s.Sub(off, min(warmStep, s.Len()-off))
			g.Go(func() error {
				if err := o.files.Gather(ctx, []plan.Read{{Span: part, Dst: make([]byte, part.Len())}}, nil); err != nil {
					return err
				}
				done(part.Len())
				return nil
			})
		}
	}
	return g.Wait()
}
