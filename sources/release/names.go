package release

import (
	"fmt"

	"weightfs/internal/nametable"
)

// nameIndex finds a tensor's global number, which counts the tensors of all shards in order, by its name.
type nameIndex struct {
	first []uint32 // first[s] is the number of the first tensor of shard s; one more entry at the end: the total
	table nametable.Table
}

// newNameIndex indexes the headers of the shards. One name in two shards is an error that names both.
func newNameIndex(shards []Shard) (nameIndex, error) {
	x := nameIndex{first: make([]uint32, 1, len(shards)+1)}
	for _, s := range shards {
		x.first = append(x.first, x.first[len(x.first)-1]+uint32(s.Header.Len()))
	}
	x.table = nametable.New(x.total())
	for s := range shards {
		for i := range shards[s].Header.Len() {
			name := shards[s].Header.Name(i)
			slot := x.slot(shards, name)
			if n, taken := slot.Number(); taken {
				return nameIndex{}, fmt.Errorf("%w: tensor %s is in two shards, %s and %s; a copy that is cut for tensor parallelism is not one set of weights",
					ErrBadRelease, quoted(name), quoted(shards[x.ref(uint32(n)).Shard].Path), quoted(shards[s].Path))
			}
			slot.Set(int(x.number(Ref{int32(s), int32(i)})))
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

func (x *nameIndex) slot(shards []Shard, name string) nametable.Slot {
	return x.table.Slot(name, func(n int) bool {
		ref := x.ref(uint32(n))
		return shards[ref.Shard].Header.Name(int(ref.Index)) == name
	})
}

func (x *nameIndex) lookup(shards []Shard, name string) (Ref, bool) {
	n, ok := x.slot(shards, name).Number()
	if !ok {
		return Ref{}, false
	}
	return x.ref(uint32(n)), true
}
