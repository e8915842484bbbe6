package release

import (
	"fmt"
	"hash/maphash"
	"math"
	"math/bits"
)

// nameIndex finds a tensor's global number, which counts the tensors of all shards in order, by its name. It holds no names: they stay
// in the headers.
type nameIndex struct {
	first []uint32 // first[s] is the number of the first tensor of shard s; one more entry at the end: the total
	// slots is a table of open addressing with linear probing: 0 is free, else a name's number+1 in the lower half and 32 bits of its
	// hash in the upper one, so that other names are passed by without a look at them.
	slots []uint64
	seed  maphash.Seed
}

// newNameIndex indexes the headers of the shards. One name in two shards is an error that names both.
func newNameIndex(shards []Shard) (nameIndex, error) {
	x := nameIndex{first: make([]uint32, 1, len(shards)+1), seed: maphash.MakeSeed()}
	for _, s := range shards {
		x.first = append(x.first, x.first[len(x.first)-1]+uint32(s.Header.Len()))
	}
	x.slots = make([]uint64, x.total()+x.total()/3+1)
	for s := range shards {
		for i := range shards[s].Header.Len() {
			ref := Ref{int32(s), int32(i)}
			name := shards[s].Header.Name(i)
			slot, tag := x.slot(shards, name)
			if x.slots[slot] != 0 {
				other := x.ref(uint32(x.slots[slot]) - 1)
				return nameIndex{}, fmt.Errorf("%w: tensor %s is in two shards, %s and %s; a copy that is cut for tensor parallelism is not one set of weights",
					ErrBadRelease, quoted(name), quoted(shards[other.Shard].Path), quoted(shards[s].Path))
			}
			x.slots[slot] = tag | uint64(x.number(ref)+1)
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

// slot is where name stands, or the free slot where it would, and the upper half of what stands there.
func (x *nameIndex) slot(shards []Shard, name string) (slot, tag uint64) {
	n := uint64(len(x.slots))
	hash := maphash.String(x.seed, name)
	slot, low := bits.Mul64(hash, n)
	tag = low &^ math.MaxUint32
	for x.slots[slot] != 0 {
		if v := x.slots[slot]; v&^math.MaxUint32 == tag {
			if ref := x.ref(uint32(v) - 1); shards[ref.Shard].Header.Name(int(ref.Index)) == name {
				break
			}
		}
		if slot++; slot == n {
			slot = 0
		}
	}
	return slot, tag
}

func (x *nameIndex) lookup(shards []Shard, name string) (Ref, bool) {
	if len(x.slots) == 0 {
		return Ref{}, false
	}
	slot, _ := x.slot(shards, name)
	if x.slots[slot] == 0 {
		return Ref{}, false
	}
	return x.ref(uint32(x.slots[slot]) - 1), true
}
