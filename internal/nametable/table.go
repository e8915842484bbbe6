// Package nametable finds numbers by names that somebody else holds.
package nametable

import (
	"hash/maphash"
	"math"
	"math/bits"
)

// Table is a hash table from names to numbers from 0, of open addressing with linear probing. It holds no names: who asks says whether
// the name of a number is the one that is looked for. It is safe for parallel use while nobody sets anything.
type Table struct {
	// slots are 0 where they are free, else a number+1 in the lower half and 32 bits of its name's hash in the upper one, so that other
	// names are passed by without a look at them.
	slots []uint64
	seed  maphash.Seed
}

// New is a table for at most n names.
func New(n int) Table {
	return Table{slots: make([]uint64, n+n/3+1), seed: maphash.MakeSeed()}
}

// Slot is the place of one name in a table.
type Slot struct {
	at  *uint64
	tag uint64
}

// Slot is the place of name; is says whether a number's name is that.
func (t *Table) Slot(name string, is func(number int) bool) Slot {
	n := uint64(len(t.slots))
	i, low := bits.Mul64(maphash.String(t.seed, name), n)
	tag := low &^ math.MaxUint32
	for {
		v := t.slots[i]
		if v == 0 || v&^math.MaxUint32 == tag && is(int(uint32(v))-1) {
			return Slot{&t.slots[i], tag}
		}
		if i++; i == n {
			i = 0
		}
	}
}

// Number is the number that was set for the name.
func (s Slot) Number() (number int, ok bool) { return int(uint32(*s.at)) - 1, *s.at != 0 }

// Set sets the number of the name, below 2^32-1.
func (s Slot) Set(number int) { *s.at = s.tag | uint64(number+1) }
