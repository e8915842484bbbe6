package release

import "testing"

// BenchmarkClassify sorts 497,220 tensors into roles and classes.
func BenchmarkClassify(b *testing.B) {
	rel := kimiK3(b).open(b)
	b.ReportAllocs()
	for b.Loop() {
		rel.classify()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(rel.Len()), "ns/tensor")
}
