package transform

import (
	"runtime"
	"testing"
	"time"

	"weightfs/internal/testrel"
)

func TestScale(t *testing.T) {
	start := time.Now()
	step := func(what string) {
		var ms runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&ms)
		t.Logf("%8v %4d MB heap, %4d MB taken: %s", time.Since(start).Round(time.Millisecond), ms.HeapAlloc>>20, ms.Sys>>20, what)
		start = time.Now()
	}
	dir, m := open(testrel.Qwen38MaxFP8())
	step("made")
	dir.List(t.Context())
	step("root")
	for _, v := range Views() {
		if v.Name == "experts/flash-moe" {
			continue
		}
		n := len(files(t, dir, v.Name))
		t.Log(n)
		step(v.Name)
	}
	_ = m
}
