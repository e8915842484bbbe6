package release

import (
	"fmt"
	"hash/maphash"
	"math/bits"
)

// nameIndex finds a tensor's global number, which counts the tensors of all shards in order, by its name. It holds no names: they stay
// in the headers.
type nameIndex struct {
	first []uint32 // first[s] is the number of the first tensor of shard s; one more entry at the end: the total
	slots []uint32 // open addressing with linear probing: 0 is free, else number+1
	seed  maphash.Seed
}

// newNameIndex indexes the headers of the shards. One name in two shards is an error that names both.
func newNameIndex(shards []Shard) (nameIndex, error) {
	x := nameIndex{first: make([]uint32, 1, len(shards)+1), seed: maphash.MakeSeed()}
	for _, s := range shards {
		x.first = append(x.first, x.first[len(x.first)-1]+uint32(s.Header.Len()))
	}
	x.slots = make([]uint32, x.total()+x.total()/3+1)
	for s := range shards {
		for i := range shards[s].Header.Len() {
			ref := Ref{int32(s), int32(i)}
			name := shards[s].Header.At(i).Name
			slot := x.slot(shards, name)
			if x.slots[slot] != 0 {
				other := x.ref(x.slots[slot] - 1)
				return nameIndex{}, fmt.Errorf("%w: tensor %s is in two shards, %s and %s; a copy that is cut for tensor parallelism is not one set of weights",
					ErrBadRelease, quoted(name), quoted(shards[other.Shard].Path), quoted(shards[s].Path))
			}
			x.slots[slot] = x.number(ref) + 1
		}
	}
	return x, nil
}

func (x *nameIndex) total() int { return int(x.first[len(x.first)-1]) }

func (x *nameIndex) number(ref Ref) uint32 { return x.first[ref.Shard] + uint32(ref.Index) }

// ref is the inverse of number.
func (x *nameIndex) ref(number uint32) Ref {
	lo, hi := 0, len(x.first)-1
	for hi-lo > 1 {
		if m := (lo + hi) / 2; x.first[m] <= number {
			lo = m
		} else {
			hi = m
		}
	}
	return Ref{int32(lo), int32(number - x.first[lo])}
}

// slot is where name stands, or the free slot where it would.
func (x *nameIndex) slot(shards []Shard, name string) uint64 {
	n := uint64(len(x.slots))
	s, _ := bits.Mul64(maphash.String(x.seed, name), n)
	for x.slots[s] != 0 {
		if ref := x.ref(x.slots[s] - 1); shards[ref.Shard].Header.At(int(ref.Index)).Name == name {
			break
		}
		if s++; s == n {
			s = 0
		}
	}
	return s
}

func (x *nameIndex) lookup(shards []Shard, name string) (Ref, bool) {
	if len(x.slots) == 0 {
		return Ref{}, false
	}
	s := x.slots[x.slot(shards, name)]
	if s == 0 {
		return Ref{}, false
	}
	return x.ref(s - 1), true
}
