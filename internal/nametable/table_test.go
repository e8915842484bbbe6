package nametable

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// TestTable does what a map does, up to a table that is full.
func TestTable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.SliceOfNDistinct(rapid.StringN(0, 4, 8), 0, 200, rapid.ID[string]).Draw(t, "names")
		table, last := New(len(names)), map[string]int{}
		number := make([]string, 2*len(names)) // by number
		for i := range number {
			name := names[rapid.IntRange(0, len(names)-1).Draw(t, "name")]
			slot := table.Slot(name, func(n int) bool { return number[n] == name })
			got, ok := slot.Number()
			want, known := last[name]
			if ok != known || ok && got != want {
				t.Fatalf("%q is %d, %t; want %d, %t", name, got, ok, want, known)
			}
			slot.Set(i)
			last[name], number[i] = i, name
		}
		for _, name := range append(names, "a name of more bytes") {
			got, ok := table.Slot(name, func(n int) bool { return number[n] == name }).Number()
			if want, known := last[name]; ok != known || ok && got != want {
				t.Fatalf("%q is %d, %t; want %d, %t", name, got, ok, want, known)
			}
		}
	})
}

// TestLooks: other names are passed by without a look at them.
func TestLooks(t *testing.T) {
	const n = 10_000
	table, looks := New(n), 0
	for i := range n {
		table.Slot(fmt.Sprint(i), func(int) bool { looks++; return false }).Set(i)
	}
	if looks > 3 { // one hash in 2^32 is alike
		t.Errorf("%d looks at other names", looks)
	}
}
