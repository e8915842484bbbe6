package cache

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// arena is the memory of all cells: one anonymous mapping off the Go heap, with huge pages where the kernel grants them. Pages cost
// nothing before they are first written. Slots are handed out from a stack, so that few slots in use touch few pages.
type arena struct {
	mem     []byte
	free    []int32
	touched int // slots that were handed out at least once; they lie below all others
}

func newArena(slots int) (*arena, error) {
	mem, err := unix.Mmap(-1, 0, slots*cellSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes of memory for the cache: %w", slots*cellSize, err)
	}
	_ = unix.Madvise(mem, unix.MADV_HUGEPAGE) // advice; kernels without huge pages refuse it
	a := &arena{mem: mem, free: make([]int32, slots)}
	for i := range a.free {
		a.free[i] = int32(slots - 1 - i)
	}
	return a, nil
}

// take pops a slot; there must be one.
func (a *arena) take() int32 {
	n := len(a.free) - 1
	s := a.free[n]
	a.free = a.free[:n]
	a.touched = max(a.touched, int(s)+1)
	return s
}

// fresh says whether the next slot is one that was never used: the kernel has to find memory for it.
func (a *arena) fresh() bool {
	n := len(a.free)
	return n > 0 && int(a.free[n-1]) >= a.touched
}

func (a *arena) give(slot int32) { a.free = append(a.free, slot) }

// bytes is the first n bytes of a slot.
func (a *arena) bytes(slot int32, n int) []byte {
	off := int(slot) * cellSize
	return a.mem[off : off+n : off+n]
}

func (a *arena) close() error {
	mem := a.mem
	a.mem, a.free = nil, nil
	return unix.Munmap(mem)
}
