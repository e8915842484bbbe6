//go:build amd64 && !purego

package quant

import (
	"testing"

	"weightfs/internal/generated"
)

func TestGenerated(t *testing.T) { generated.Check(t, "simd_amd64") }
