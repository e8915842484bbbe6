package crc32c

import (
	"hash/crc32"
	"math/rand/v2"
	"testing"
)

// TestUpdate compares with hash/crc32 at every length up to several blocks, at every alignment and in two steps, and at some up to 4 MiB after any checksum.
func TestUpdate(t *testing.T) {
	if got := Checksum([]byte("123456789")); got != 0xe3069283 {
		t.Errorf("the checksum of 123456789 is %#x, want 0xe3069283", got) // the check value of CRC-32C
	}
	p := make([]byte, 4*block+130)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range p {
		p[i] = byte(rng.Uint32())
	}
	for n := range len(p) - 64 {
		at := rng.IntN(64)
		q := p[at : at+n]
		want := crc32.Checksum(q, table)
		if got := Checksum(q); got != want {
			t.Fatalf("%d bytes: %#x, want %#x", n, got, want)
		}
		cut := rng.IntN(n + 1)
		if got := Update(Checksum(q[:cut]), q[cut:]); got != want {
			t.Fatalf("%d bytes cut at %d: %#x, want %#x", n, cut, got, want)
		}
	}
	long := make([]byte, 4<<20)
	rand.NewChaCha8([32]byte{3}).Read(long)
	for range 50 {
		q, before := long[rng.IntN(64):][:rng.IntN(len(long)-64)], rng.Uint32()
		if got, want := Update(before, q), crc32.Update(before, table, q); got != want {
			t.Fatalf("%d bytes after %#x: %#x, want %#x", len(q), before, got, want)
		}
	}
	if !wide {
		t.Skip("wide polynomial multiplication is not compared: this processor, or this build, has none")
	}
}

func BenchmarkChecksum(b *testing.B) {
	p := make([]byte, 128<<10)
	for name, sum := range map[string]func([]byte) uint32{"ours": Checksum, "std": func(p []byte) uint32 { return crc32.Checksum(p, table) }} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(p)))
			for range b.N {
				sum(p)
			}
		})
	}
}
