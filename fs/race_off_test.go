//go:build !race

package fs

// raceEnabled says that the race detector slows everything down.
const raceEnabled = false
