package cache

import (
	"fmt"
	"os"
	"testing"
	"time"

	"weightfs/fs/plan"
)

// BenchmarkGather reads 128 KiB and 1 MiB at offsets that are aligned and not, out of memory and out of disk, and reports the time as a
// ratio to the floor measured in the same run: a copy between buffers, or a pread of the same file.
func BenchmarkGather(b *testing.B) {
	const size = 64 << 20
	src := newFake(fakeFile{path: "a", data: content0(1, size), named: true})
	o := Options{Dir: b.TempDir(), Size: 1 << 40, Memory: 256 << 20}
	for _, n := range []int64{128 << 10, 1 << 20} {
		for _, shift := range []int64{0, 4096} {
			name := fmt.Sprintf("%dK+%d", n>>10, shift)
			inMemory := o
			inMemory.Dir = ""
			c := newCache(b, inMemory)
			f := c.Release(src, src.listing())
			dst := make([]byte, n)
			read := func(i int) {
				off := shift + int64(i)*n%(size-n-shift)/n*n
				if err := f.Gather(ctxb(), []plan.Read{{Span: span(0, off, off+n), Dst: dst}}, nil); err != nil {
					b.Fatal(err)
				}
			}
			for i := range int(size / n) {
				read(i)
			}
			b.Run("memory/"+name, func(b *testing.B) {
				from := src.files[0].data
				ratio(b, n, read, func(i int) {
					off := shift + int64(i)*n%(size-n-shift)/n*n
					copy(dst, from[off:off+n])
				})
			})
			closeCache(b, c)
			small := o
			small.Memory = 8 << 20
			c = newCache(b, small)
			f = c.Release(src, src.listing())
			for i := range int(size / n) {
				read(i)
			}
			raw := openData(b, o.Dir)
			b.Run("disk/"+name, func(b *testing.B) {
				ratio(b, n, read, func(i int) {
					off := shift + int64(i)*n%(size-n-shift)/n*n
					if _, err := raw.ReadAt(dst, off); err != nil {
						b.Fatal(err)
					}
				})
			})
			closeCache(b, c)
			raw.Close()
		}
	}
}

func openData(b *testing.B, dir string) *os.File {
	var name string
	for _, p := range filesOf(b, dir, ".data") {
		name = p
	}
	f, err := os.Open(name)
	must(b, err)
	return f
}

// ratio times fn and floor by turns.
func ratio(b *testing.B, n int64, fn, floor func(i int)) {
	b.SetBytes(n)
	b.ReportAllocs()
	var own, base time.Duration
	for i := 0; i < b.N; {
		k := min(64, b.N-i)
		t := time.Now()
		for j := range k {
			fn(i + j)
		}
		own += time.Since(t)
		b.StopTimer()
		t = time.Now()
		for j := range k {
			floor(i + j)
		}
		base += time.Since(t)
		b.StartTimer()
		i += k
	}
	b.ReportMetric(base.Seconds()/own.Seconds(), "of-floor")
}
