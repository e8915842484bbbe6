package safetensors

import (
	"fmt"
	"runtime"
	"testing"
	"time"
)

const (
	kimiShards  = 96
	kimiTensors = 497_220
)

// kimiShard is the header of one shard of a release of Kimi K3's size: 497,220 tensors, nearly all of them the six parts of an expert in
// MXFP4, with names of about 76 bytes.
func kimiShard(tb testing.TB, shard int) []byte {
	parts := []struct {
		name  string
		dtype DType
		shape []int64
	}{
		{"w1.weight_packed", U8, []int64{3072, 1792}}, {"w1.weight_scale", U8, []int64{3072, 112}}, {"w1.weight_shape", I32, []int64{2}},
		{"w2.weight_packed", U8, []int64{3584, 1536}}, {"w2.weight_scale", U8, []int64{3584, 96}}, {"w2.weight_shape", I32, []int64{2}},
	}
	n := kimiTensors / kimiShards
	if shard < kimiTensors%kimiShards {
		n++
	}
	tensors := make([]Tensor, n)
	var at int64
	for i := range tensors {
		p := parts[i%len(parts)]
		size, err := Bytes(p.shape, p.dtype)
		if err != nil {
			tb.Fatal(err)
		}
		name := fmt.Sprintf("language_model.model.layers.%d.block_sparse_moe.experts.%d.%s", shard, i/len(parts), p.name)
		tensors[i] = Tensor{Name: name, DType: p.dtype, Shape: p.shape, Begin: at, End: at + size}
		at += size
	}
	b, err := Encode(tensors, map[string]string{"format": "pt"}, 8)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

func kimiFileSize(head []byte) int64 {
	// The data section ends where the last tensor's offsets say.
	var end int64
	for i := len(head) - 1; i > 0; i-- {
		if head[i] == ']' {
			j := i
			for head[j-1] != ',' {
				j--
			}
			fmt.Sscan(string(head[j:i]), &end)
			break
		}
	}
	return int64(len(head)) + end
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestIndexMemory holds the index of 497,220 tensors under 48 MB.
func TestIndexMemory(t *testing.T) {
	headers := make([]*Header, kimiShards)
	before := heap()
	total, names := 0, 0
	for i := range headers {
		head := kimiShard(t, i)
		h, err := Parse(head, kimiFileSize(head))
		if err != nil {
			t.Fatal(err)
		}
		headers[i] = h
		total += h.Len()
		names += len(h.names)
	}
	kept := heap() - before
	if total != kimiTensors {
		t.Fatalf("%d tensors", total)
	}
	t.Logf("%d tensors, names of %d bytes on average, %.1f MB kept: %.1f bytes a tensor", total, names/total, float64(kept)/1e6, float64(kept)/float64(total))
	if kept > 48e6 {
		t.Errorf("%d bytes kept", kept)
	}
	runtime.KeepAlive(headers)
}

// TestParserMemory: a Parser that has parsed a header of the size makes what the next one keeps, in few pieces, and next to nothing else.
func TestParserMemory(t *testing.T) {
	head := kimiShard(t, 0)
	size := kimiFileSize(head)
	var p Parser
	h, err := p.Parse(head, size)
	if err != nil {
		t.Fatal(err)
	}
	keeps := len(h.names) + 8*len(h.begins) + 4*(len(h.nameAt)+len(h.kinds))
	got := testing.Benchmark(func(b *testing.B) {
		for b.Loop() {
			if _, err := p.Parse(head, size); err != nil {
				b.Fatal(err)
			}
		}
	})
	if made, pieces := got.AllocedBytesPerOp(), got.AllocsPerOp(); made > int64(keeps)*11/10 || pieces > 32 {
		t.Errorf("%d bytes in %d pieces for %d tensors, of which %d are kept", made, pieces, h.Len(), keeps)
	}
}

// BenchmarkParse reports its speed also as a ratio to that of copying the same bytes, measured right after.
func BenchmarkParse(b *testing.B) {
	head := kimiShard(b, 0)
	size := kimiFileSize(head)
	index := make([]byte, 60<<20) // stands for the index beside it: with an empty heap the collector runs at every other parse
	b.SetBytes(int64(len(head)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Parse(head, size); err != nil {
			b.Fatal(err)
		}
	}
	runtime.KeepAlive(index)
	dst := make([]byte, len(head))
	start := time.Now()
	for range b.N {
		copy(dst, head)
	}
	b.ReportMetric(time.Since(start).Seconds()/b.Elapsed().Seconds(), "of-memcpy")
}
