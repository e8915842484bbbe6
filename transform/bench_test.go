package transform

import (
	"context"
	"testing"

	"weightfs/fs/plan"
	"weightfs/internal/testrel"
	"weightfs/sources/release"
)

// BenchmarkOpen opens releases of 287,119 and 497,220 tensors: headers and index parsed, tensors sorted, every view made, README.md
// written.
func BenchmarkOpen(b *testing.B) {
	for _, r := range []*testrel.Release{testrel.Qwen38MaxFP8(), testrel.KimiK3()} {
		m := fromRelease(r)
		b.Run(r.Name+"/release", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := m.open(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		})
		rel, err := m.open(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		for _, v := range []struct {
			name  string
			paths []string
		}{{"root", nil}, {"views", []string{"bf16", "experts/native"}}} {
			b.Run(r.Name+"/"+v.name, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					dir := TreeOf(Views(), m.listing(), func(context.Context) (*release.Release, error) { return rel, nil })
					if _, err := dir.List(b.Context()); err != nil {
						b.Fatal(err)
					}
					for _, p := range v.paths {
						n, err := plan.Walk(b.Context(), dir, p)
						if err == nil {
							_, err = n.Dir.List(b.Context())
						}
						if err != nil {
							b.Fatal(err)
						}
					}
				}
			})
		}
	}
}
