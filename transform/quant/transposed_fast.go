//go:build !purego

package quant

// turnColumns writes the first columns of what writeColumns writes in vectors, and returns their number: none, where there are no vectors or what is
// written would reach beyond dst.
func turnColumns(dst []byte, at, rb int64, src []byte, rows, k, stride int) int {
	if best == nil {
		return 0
	}
	return best.turnColumns(dst, at, rb, src, rows, k, stride)
}

func (v *vectors) turnColumns(dst []byte, at, rb int64, src []byte, rows, k, stride int) int {
	n := k &^ 7
	if n == 0 || rows == 0 || rows%16 != 0 || at < 0 || at+int64(n-1)*rb+2*int64(rows) > int64(len(dst)) {
		return 0
	}
	_ = src[2*((rows-1)*stride+n)-1]
	v.transposeWords(&dst[at], &src[0], int(rb), 2*stride, rows, n)
	return n
}
